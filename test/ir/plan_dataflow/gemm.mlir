// RUN: tesela-opt %s -p plan-dataflow --target sm_90a | FileCheck %s
// RUN: tesela-opt %s -p plan-dataflow --target sm_80 | FileCheck %s --check-prefix=MMA
// RUN: tesela-opt %s -p plan-dataflow --target sm_90a | tesela-opt - | FileCheck %s

// Both operands travel through channels; the puts stay where the loads were. The release waits for the dot's read token.

// CHECK-LABEL: tile.kernel @gemm
// CHECK-SAME: attributes {warps = 8 : i64}
// CHECK-NEXT: %[[CA:.*]] = async.channel depth 1 : !async.channel<128x64xbf16>
// CHECK-NEXT: %[[CB:.*]] = async.channel depth 1 : !async.channel<128x64xbf16>
// CHECK: scf.for
// CHECK-NEXT: async.put %[[CA]], %A[%m, %k]
// CHECK-NEXT: async.put %[[CB]], %B[%n, %k]
// CHECK-NEXT: %[[A:.*]] = async.get %[[CA]]
// CHECK-NEXT: %[[B:.*]] = async.get %[[CB]]
// CHECK-NEXT: %[[T:.*]] = async.transpose %[[B]] [1, 0] : !async.buffer<128x64xbf16> -> !async.buffer<64x128xbf16>
// CHECK-NEXT: %[[P:.*]], %[[READ:.*]] = async.dot %[[A]], %[[T]], %c
// CHECK-NEXT: %[[D:.*]] = async.await %[[P]]
// CHECK-NEXT: async.release %[[CA]] after %[[READ]]
// CHECK-NEXT: async.release %[[CB]] after %[[READ]]
// CHECK-NEXT: scf.yield %[[D]]

// MMA-LABEL: tile.kernel @gemm
// MMA: %[[A:.*]] = async.get
// MMA: %[[B:.*]] = async.get
// MMA: %[[LHS:.*]] = async.read %[[A]]
// MMA: %[[T:.*]] = async.transpose %[[B]]
// MMA: %[[RHS:.*]] = async.read %[[T]]
// MMA: tile.dot %[[LHS]], %[[RHS]], %c
// MMA-NEXT: async.release
// MMA-NEXT: async.release
tile.kernel @gemm(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K], %B: memref<?x?xbf16, strided<[?, 1]>> [N, K],
                  %C: memref<?x?xf32, strided<[?, 1]>> [M, N])
    dims(%K = K) grid(%bm = M ceildiv 128, %bn = N ceildiv 128) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %m = arith.muli %bm, %c128 : index
  %n = arith.muli %bn, %c128 : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> tensor<128x128xf32>
  %acc = scf.for %k = %c0 to %K step %c64 iter_args(%c = %zero) -> (tensor<128x128xf32>) {
    %a = tile.load %A[%m, %k] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<128x64xbf16>
    %b = tile.load %B[%n, %k] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<128x64xbf16>
    %t = tile.transpose %b [1, 0] : tensor<128x64xbf16> -> tensor<64x128xbf16>
    %d = tile.dot %a, %t, %c : tensor<128x64xbf16>, tensor<64x128xbf16> -> tensor<128x128xf32>
    scf.yield %d : tensor<128x128xf32>
  }
  tile.store %acc, %C[%m, %n] : tensor<128x128xf32>, memref<?x?xf32, strided<[?, 1]>>
}

// A kernel without dots gets its number of warps, and nothing else.

// CHECK-LABEL: tile.kernel @copy
// CHECK-SAME: attributes {warps = 8 : i64}
// CHECK-NOT: async
// CHECK: tile.load
// CHECK-NEXT: tile.store
tile.kernel @copy(%x: memref<?x?xf32> [M, N], %y: memref<?x?xf32> [M, N]) grid(%b = M) {
  %c0 = arith.constant 0 : index
  %v = tile.load %x[%b, %c0] : memref<?x?xf32> -> tensor<16x1024xf32>
  tile.store %v, %y[%b, %c0] : tensor<16x1024xf32>, memref<?x?xf32>
}
