// RUN: tesela-opt %s -p infer-layouts,alloc-shared,tile-to-ptx --target sm_80 | FileCheck %s

// A fragment of mma.sync becomes rows of four neighbours: words change places in half of the lanes, go to other lanes, and change places again. No
// shared memory, no barrier.

// CHECK-LABEL: ptx.kernel @rows target sm_80 threads 32 shared 0
// CHECK-NOT: bar.sync
// CHECK: ptx.inst "selp.b32"
// CHECK: ptx.inst "shfl.sync.idx.b32"
// CHECK: ptx.inst "selp.b32"
// CHECK-NOT: ptx.inst "st.shared
// CHECK: ptx.inst "st.global.v4.b32"
tile.kernel @rows(%x: memref<?x?xf32, strided<[?, 1]>> [M, N] {align = 16, noalias}, %y: memref<?x?xf32, strided<[?, 1]>> [M, N] {align = 16, noalias}) where(N divisible 4) grid(%i = M ceildiv 8) attributes {warps = 1 : i64} {
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %m = arith.muli %i, %c8 : index
  %v = tile.load %x[%m, %c0] : memref<?x?xf32, strided<[?, 1]>> -> tensor<8x16xf32, #layout.tv<thread [4:(0,2), 8:(1,0)], value [2:(0,1), 2:(0,8)]>>
  %w = layout.convert %v : tensor<8x16xf32, #layout.tv<thread [4:(0,2), 8:(1,0)], value [2:(0,1), 2:(0,8)]>> -> tensor<8x16xf32, #layout.tv<thread [4:(0,4), 8:(1,0)], value [4:(0,1)]>>
  tile.store %w, %y[%m, %c0] : tensor<8x16xf32, #layout.tv<thread [4:(0,4), 8:(1,0)], value [4:(0,1)]>>, memref<?x?xf32, strided<[?, 1]>>
}

// Bit 0 of the lane and bit 0 of the word change places: a butterfly, and one word of each two stays.

// CHECK-LABEL: ptx.kernel @pairs target sm_80 threads 32 shared 0
// CHECK: ptx.inst "selp.b32"
// CHECK: ptx.inst "shfl.sync.bfly.b32" {{.*}} : {{.*}} -> !ptx.reg<b32>
// CHECK: ptx.inst "selp.b32"
tile.kernel @pairs(%y: memref<?x?xf32, strided<[?, 1]>> [M, N]) grid(%i = M ceildiv 2) attributes {warps = 1 : i64} {
  %c0 = arith.constant 0 : index
  %v = tile.load %y[%i, %c0] : memref<?x?xf32, strided<[?, 1]>> -> tensor<2x32xf32, #layout.tv<thread [2:(1,0), 16:(0,2)], value [2:(0,1)]>>
  %w = layout.convert %v : tensor<2x32xf32, #layout.tv<thread [2:(1,0), 16:(0,2)], value [2:(0,1)]>> -> tensor<2x32xf32, #layout.tv<thread [2:(0,1), 16:(0,2)], value [2:(1,0)]>>
  tile.store %w, %y[%i, %c0] : tensor<2x32xf32, #layout.tv<thread [2:(0,1), 16:(0,2)], value [2:(1,0)]>>, memref<?x?xf32, strided<[?, 1]>>
}
