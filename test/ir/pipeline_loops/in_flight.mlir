// Which dots stay in flight from one trip to the next: those whose accumulator nothing else in the loop reads.
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,pipeline-loops{stages=2 dots=in-flight},alloc-shared,verify" --target sm_90a | FileCheck %s
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,pipeline-loops{stages=2 dots=in-flight},alloc-shared,tile-to-ptx" --target sm_90a | FileCheck %s --check-prefix=PTX

// The loop reads its accumulator: it is awaited in the trip.
// CHECK-LABEL: tile.kernel @read
// CHECK: scf.for {{.*}} -> (tensor<64x64xf32, #tv>)
// CHECK: async.put %k_channel
// CHECK: async.get %k_channel
// CHECK: [[S:%[0-9a-z_]+]], [[SREAD:%[0-9a-z_]+]] = async.dot %q{{(_1)?}}, {{%.+}}, {{%.+}} {{.*}}:
// CHECK-NEXT: async.await [[S]]
// CHECK-NEXT: async.release %k_channel after [[SREAD]]
// CHECK-NEXT: scf.yield
// PTX-LABEL: ptx.kernel @read
// PTX: ptx.for
// PTX: wgmma.wait_group.sync.aligned" {imms = [0 : i64]}
// PTX-NOT: wgmma.wait_group
// PTX: st.global
tile.kernel @read(%Q: memref<?x?xbf16, strided<[?, 1]>> [M, D] {align = 16}, %K: memref<?x?xbf16, strided<[?, 1]>> [N, D] {align = 16},
                  %O: memref<?x?xf32, strided<[?, 1]>> [M, D])
    dims(%N = N) grid(%g = 1) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %f0 = arith.constant 0.0 : f32
  %half = arith.constant 0.5 : f32
  %h = tile.full %half : f32 -> tensor<64x64xf32>
  %q = tile.load %Q[%c0, %c0] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<64x64xbf16>
  %zero = tile.full %f0 : f32 -> tensor<64x64xf32>
  %acc = scf.for %n = %c0 to %N step %c64 iter_args(%o = %zero) -> (tensor<64x64xf32>) {
    %k = tile.load %K[%n, %c0] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<64x64xbf16>
    %kt = tile.transpose %k [1, 0] : tensor<64x64xbf16> -> tensor<64x64xbf16>
    %scaled = arith.mulf %o, %h : tensor<64x64xf32>
    %s = tile.dot %q, %kt, %scaled : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
    scf.yield %s : tensor<64x64xf32>
  }
  tile.store %acc, %O[%c0, %c0] : tensor<64x64xf32>, memref<?x?xf32, strided<[?, 1]>>
}

// Two accumulators, two dots a trip: both of the trip before may go on until both of this one are issued; then the wait leaves two under way.
// CHECK-LABEL: tile.kernel @two
// CHECK: scf.for {{.*}} iter_args(%x = {{%.+}}, %y = {{%.+}}, [[T:%[0-9a-z_]+]] = {{%.+}}, [[U:%[0-9a-z_]+]] = {{%.+}}) -> (!async.pending<tensor<64x64xf32, #tv>>, !async.pending<tensor<64x64xf32, #tv>>, !async.token, !async.token)
// CHECK: [[P:%[0-9a-z_]+]], [[PREAD:%[0-9a-z_]+]] = async.dot {{.*}}, %x {{.*}}:
// CHECK: [[R:%[0-9a-z_]+]], [[RREAD:%[0-9a-z_]+]] = async.dot {{.*}}, %y {{.*}}:
// CHECK-DAG: async.release %a_channel after
// CHECK-DAG: async.release %b_channel after
// CHECK-DAG: async.release %e_channel after
// CHECK: async.put %a_channel
// CHECK: scf.yield [[P]], [[R]],
// PTX-LABEL: ptx.kernel @two
// PTX: ptx.for
// PTX: wgmma.wait_group.sync.aligned" {imms = [2 : i64]}
// PTX: ptx.yield
tile.kernel @two(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K] {align = 16}, %B: memref<?x?xbf16, strided<[?, 1]>> [K, N] {align = 16},
                 %E: memref<?x?xbf16, strided<[?, 1]>> [K, N] {align = 16}, %C: memref<?x?xf32, strided<[?, 1]>> [M, N])
    dims(%K = K) grid(%g = 1) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> tensor<64x64xf32>
  %acc, %gate = scf.for %k = %c0 to %K step %c64 iter_args(%x = %zero, %y = %zero) -> (tensor<64x64xf32>, tensor<64x64xf32>) {
    %a = tile.load %A[%c0, %k] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<64x64xbf16>
    %b = tile.load %B[%k, %c0] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<64x64xbf16>
    %e = tile.load %E[%k, %c0] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<64x64xbf16>
    %p = tile.dot %a, %b, %x : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
    %r = tile.dot %a, %e, %y : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
    scf.yield %p, %r : tensor<64x64xf32>, tensor<64x64xf32>
  }
  %both = arith.mulf %acc, %gate : tensor<64x64xf32>
  tile.store %both, %C[%c0, %c0] : tensor<64x64xf32>, memref<?x?xf32, strided<[?, 1]>>
}
