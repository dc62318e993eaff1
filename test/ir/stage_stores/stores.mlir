// Results leave through two buffers of 128-byte rows where TMA can store them, else as before.
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,stage-stores{when=always},verify" --target sm_90a | FileCheck %s
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,stage-stores{when=always},verify" --target sm_90a | tesela-opt - | FileCheck %s
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,stage-stores{when=never},verify" --target sm_90a | FileCheck %s --check-prefix=NEVER
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,stage-stores{when=always},verify" --target sm_80 | FileCheck %s --check-prefix=NEVER
// NEVER-NOT: async.store

// CHECK-LABEL: tile.kernel @narrow
// CHECK: %C_parts = async.channel depth 2 : !async.channel<64x64xbf16, #shared
// CHECK: async.store %h, %C[%m, %c0] through %C_parts : tensor<64x128xbf16, #tv>, memref<?x?xbf16, strided<[?, 1]>>, !async.channel<64x64xbf16
tile.kernel @narrow(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K], %C: memref<?x?xbf16, strided<[?, 1]>> [M, N] {align = 16, noalias})
    where(N divisible 8) grid(%bm = M ceildiv 64) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %m = arith.muli %bm, %c64 : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> tensor<64x128xf32>
  %a = tile.load %A[%m, %c0] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<64x16xbf16>
  %b = tile.load %A[%c0, %c0] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<16x128xbf16>
  %d = tile.dot %a, %b, %zero : tensor<64x16xbf16>, tensor<16x128xbf16> -> tensor<64x128xf32>
  %h = tile.cast %d : tensor<64x128xf32> -> tensor<64x128xbf16>
  tile.store %h, %C[%m, %c0] : tensor<64x128xbf16>, memref<?x?xbf16, strided<[?, 1]>>
}

// N may end inside of 16 bytes: a store by TMA would write on.
// CHECK-LABEL: tile.kernel @tail
// CHECK-NOT: async.store
tile.kernel @tail(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K], %C: memref<?x?xf32, strided<[?, 1]>> [M, N] {align = 16, noalias})
    where(N divisible 2) grid(%bm = M ceildiv 64) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %m = arith.muli %bm, %c64 : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> tensor<64x128xf32>
  %a = tile.load %A[%m, %c0] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<64x16xbf16>
  %b = tile.load %A[%c0, %c0] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<16x128xbf16>
  %d = tile.dot %a, %b, %zero : tensor<64x16xbf16>, tensor<16x128xbf16> -> tensor<64x128xf32>
  tile.store %d, %C[%m, %c0] : tensor<64x128xf32>, memref<?x?xf32, strided<[?, 1]>>
}

// The same memory is read afterwards.
// CHECK-LABEL: tile.kernel @later
// CHECK-NOT: async.store
tile.kernel @later(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K], %C: memref<?x?xf32, strided<[?, 1]>> [M, N] {align = 16, noalias},
                   %D: memref<?x?xf32, strided<[?, 1]>> [M, N] {noalias}) where(N divisible 4) grid(%bm = M ceildiv 64) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %m = arith.muli %bm, %c64 : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> tensor<64x128xf32>
  %a = tile.load %A[%m, %c0] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<64x16xbf16>
  %b = tile.load %A[%c0, %c0] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<16x128xbf16>
  %d = tile.dot %a, %b, %zero : tensor<64x16xbf16>, tensor<16x128xbf16> -> tensor<64x128xf32>
  tile.store %d, %C[%m, %c0] : tensor<64x128xf32>, memref<?x?xf32, strided<[?, 1]>>
  %x = tile.load %C[%m, %c0] : memref<?x?xf32, strided<[?, 1]>> -> tensor<64x128xf32>
  tile.store %x, %D[%m, %c0] : tensor<64x128xf32>, memref<?x?xf32, strided<[?, 1]>>
}
