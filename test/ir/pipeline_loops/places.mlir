// Where a later trip loads from: scalar operations are computed again, for the loop's own counter and for carried ones that grow by a
// constant; what the loop loads, stores or carries otherwise keeps its load in its trip, with a note.
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,pipeline-loops{stages=2},verify" --target sm_80 --split-input-file 2>&1 | FileCheck %s

// CHECK-LABEL: tile.kernel @moving
// CHECK: scf.for %j = %c0 to %N step %c3 iter_args(%c = {{%.+}}, %at = %c16, {{%.+}} = {{%.+}})
// CHECK: [[AT:%[0-9a-z_]+]] = arith.addi %at, %c16 : index
// CHECK-NEXT: async.put %a_channel, %A[%c0, [[AT]]]
// CHECK-NEXT: [[Q:%[0-9a-z_]+]] = arith.divui [[NEXT:%[0-9a-z_]+]], %c3 : index
// CHECK-NEXT: [[R:%[0-9a-z_]+]] = arith.muli [[Q]], %c16 : index
// CHECK-NEXT: async.put %b_channel, %B[%c0, [[R]]]
// CHECK-NOT: note
tile.kernel @moving(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K] {align = 16}, %B: memref<?x?xbf16, strided<[?, 1]>> [M, K] {align = 16},
                    %C: memref<?x?xf32, strided<[?, 1]>> [M, M]) dims(%N = K) grid(%g = 1) {
  %c0 = arith.constant 0 : index
  %c3 = arith.constant 3 : index
  %c16 = arith.constant 16 : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> tensor<16x16xf32>
  %acc, %end = scf.for %j = %c0 to %N step %c3 iter_args(%c = %zero, %at = %c16) -> (tensor<16x16xf32>, index) {
    %q = arith.divui %j, %c3 : index
    %r = arith.muli %q, %c16 : index
    %a = tile.load %A[%c0, %at] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<16x16xbf16>
    %b = tile.load %B[%c0, %r] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<16x16xbf16>
    %d = tile.dot %a, %b, %c : tensor<16x16xbf16>, tensor<16x16xbf16> -> tensor<16x16xf32>
    %next = arith.addi %at, %c16 : index
    scf.yield %d, %next : tensor<16x16xf32>, index
  }
  tile.store %acc, %C[%c0, %c0] : tensor<16x16xf32>, memref<?x?xf32, strided<[?, 1]>>
}

// -----

// CHECK-LABEL: tile.kernel @stays
// CHECK: %a_channel = async.channel depth 1
// CHECK: %b_channel = async.channel depth 1
// CHECK: %e_channel = async.channel depth 1
// CHECK: %f_channel = async.channel depth 2
// CHECK-DAG: note: the load of %A is not made ahead of its trip: its place depends on the result of tile.load
// CHECK-DAG: note: the load of %B is not made ahead of its trip: its place depends on a value that the loop carries
// CHECK-DAG: note: the load of %X is not made ahead of its trip: the loop stores to %X
tile.kernel @stays(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K] {align = 16}, %B: memref<?x?xbf16, strided<[?, 1]>> [M, K] {align = 16},
                   %X: memref<?x?xbf16, strided<[?, 1]>> [M, K] {align = 16, noalias}, %P: memref<?xi64, strided<[1]>> [K],
                   %C: memref<?x?xf32, strided<[?, 1]>> [M, M]) dims(%N = K) grid(%g = 1) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c16 = arith.constant 16 : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> tensor<16x16xf32>
  %acc, %end = scf.for %j = %c0 to %N step %c16 iter_args(%c = %zero, %at = %c16) -> (tensor<16x16xf32>, index) {
    %p = tile.load %P[%j] : memref<?xi64, strided<[1]>> -> i64
    %r = arith.index_cast %p : i64 to index
    %s = arith.muli %r, %c16 : index
    %a = tile.load %A[%c0, %s] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<16x16xbf16>
    %b = tile.load %B[%c0, %at] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<16x16xbf16>
    %d = tile.dot %a, %b, %c : tensor<16x16xbf16>, tensor<16x16xbf16> -> tensor<16x16xf32>
    %e = tile.load %X[%c0, %j] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<16x16xbf16>
    %f = tile.load %A[%c0, %j] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<16x16xbf16>
    %g2 = tile.dot %e, %f, %d : tensor<16x16xbf16>, tensor<16x16xbf16> -> tensor<16x16xf32>
    %h = tile.cast %g2 : tensor<16x16xf32> -> tensor<16x16xbf16>
    tile.store %h, %X[%c0, %j] : tensor<16x16xbf16>, memref<?x?xbf16, strided<[?, 1]>>
    %next = arith.muli %at, %c2 : index
    scf.yield %g2, %next : tensor<16x16xf32>, index
  }
  tile.store %acc, %C[%c0, %c0] : tensor<16x16xf32>, memref<?x?xf32, strided<[?, 1]>>
}
