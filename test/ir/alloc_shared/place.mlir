// RUN: tesela-opt %s -p plan-dataflow,infer-layouts,alloc-shared --target sm_90a | FileCheck %s

// The swizzled buffer begins at a multiple of 1024, whatever comes before it in the program; mbarriers come last, one for each buffer that TMA fills.

// CHECK-LABEL: tile.kernel @two
// CHECK-SAME: shared = 4112 : i64
// CHECK: %[[A:.*]] = async.channel depth 1 offset 2048 barrier 4096 : !async.channel<64x16xbf16
// CHECK: %[[B:.*]] = async.channel depth 1 offset 0 barrier 4104 : !async.channel<16x64xbf16
tile.kernel @two(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K] {align = 16 : i64}, %B: memref<?x?xbf16, strided<[?, 1]>> [K, N] {align = 16 : i64},
                 %C: memref<?x?xf32, strided<[?, 1]>> [M, N]) grid(%g = 1) attributes {warps = 4 : i64} {
  %c0 = arith.constant 0 : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> tensor<64x64xf32>
  %a = tile.load %A[%c0, %c0] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<64x16xbf16>
  %b = tile.load %B[%c0, %c0] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<16x64xbf16>
  %d = tile.dot %a, %b, %zero : tensor<64x16xbf16>, tensor<16x64xbf16> -> tensor<64x64xf32>
  tile.store %d, %C[%c0, %c0] : tensor<64x64xf32>, memref<?x?xf32, strided<[?, 1]>>
}
