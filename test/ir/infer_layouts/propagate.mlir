// RUN: tesela-opt %s -p plan-dataflow,infer-layouts --target sm_80 | FileCheck %s

// A row softmax over a whole tile: the load is coalesced along the rows, and each row is given to one warp, which reduces it by shuffles alone. The row
// statistics are the same layout without dimension 1, and coming back needs no conversion.

// CHECK-DAG: #[[X:[a-z0-9_]+]] = #layout.tv<thread [32:(0,1), 4:(1,0)], value [8:(0,32), 2:(4,0)]>
// CHECK-DAG: #[[ROW:[a-z0-9_]+]] = #layout.tv<thread [32:(0), 4:(1)], value [2:(4)]>
// CHECK-DAG: #[[WIDE:[a-z0-9_]+]] = #layout.tv<thread [128:(4)], value [4:(1), 2:(512)]>
// CHECK-DAG: #[[IN:[a-z0-9_]+]] = #layout.tv<thread [64:(0,1), 2:(1,0)], value [16:(2,0)]>
// CHECK-DAG: #[[OUT:[a-z0-9_]+]] = #layout.tv<thread [32:(0,1), 4:(1,0)], value [16:(4,0)]>
// CHECK-DAG: #[[PIN:[a-z0-9_]+]] = #layout.tv<thread [128:(1)], value [2:(128)]>
// CHECK-LABEL: tile.kernel @rows
// CHECK: tile.load {{.*}} -> tensor<8x256xf32, #[[X]]>
// CHECK: tile.reduce max {{.*}} : tensor<8x256xf32, #[[X]]> -> tensor<8xf32, #[[ROW]]>
// CHECK-NOT: layout.convert
// CHECK: tile.store
tile.kernel @rows(%x: memref<?x?xf32, strided<[?, 1]>> [M, N], %y: memref<?x?xf32, strided<[?, 1]>> [M, N]) grid(%b = M ceildiv 8)
    attributes {warps = 4 : i64} {
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %m = arith.muli %b, %c8 : index
  %v = tile.load %x[%m, %c0] : memref<?x?xf32, strided<[?, 1]>> -> tensor<8x256xf32>
  %r = tile.reduce max %v axis 1 : tensor<8x256xf32> -> tensor<8xf32>
  %e = tile.expand %r axis 1 : tensor<8xf32> -> tensor<8x1xf32>
  %w = tile.broadcast %e : tensor<8x1xf32> -> tensor<8x256xf32>
  %d = arith.subf %v, %w : tensor<8x256xf32>
  tile.store %d, %y[%m, %c0] : tensor<8x256xf32>, memref<?x?xf32, strided<[?, 1]>>
}

// Where alignment and extents are stated, a thread takes 16 bytes at a time.

// CHECK-LABEL: tile.kernel @aligned
// CHECK: tile.load {{.*}} -> tensor<1024xf32, #[[WIDE]]>
tile.kernel @aligned(%x: memref<?xf32, strided<[1]>> [N] {align = 16}, %y: memref<?xf32, strided<[1]>> [N] {align = 16})
    where(N divisible 16) grid(%b = N ceildiv 1024) attributes {warps = 4 : i64} {
  %c1024 = arith.constant 1024 : index
  %i = arith.muli %b, %c1024 : index
  %v = tile.load %x[%i] : memref<?xf32, strided<[1]>> -> tensor<1024xf32>
  tile.store %v, %y[%i] : tensor<1024xf32>, memref<?xf32, strided<[1]>>
}

// Load and store are contiguous along different dimensions: each keeps its own order, and the transposition's operand is converted.

// CHECK-LABEL: tile.kernel @transpose
// CHECK: tile.load {{.*}} -> tensor<32x64xf32, #[[IN]]>
// CHECK: %[[C:.*]] = layout.convert
// CHECK: tile.transpose %[[C]] [1, 0]
// CHECK: tile.store {{.*}} : tensor<64x32xf32, #[[OUT]]>
tile.kernel @transpose(%x: memref<?x?xf32, strided<[?, 1]>> [M, N], %y: memref<?x?xf32, strided<[?, 1]>> [N, M])
    grid(%i = M ceildiv 32, %j = N ceildiv 64) attributes {warps = 4 : i64} {
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %m = arith.muli %i, %c32 : index
  %n = arith.muli %j, %c64 : index
  %v = tile.load %x[%m, %n] : memref<?x?xf32, strided<[?, 1]>> -> tensor<32x64xf32>
  %t = tile.transpose %v [1, 0] : tensor<32x64xf32> -> tensor<64x32xf32>
  tile.store %t, %y[%n, %m] : tensor<64x32xf32>, memref<?x?xf32, strided<[?, 1]>>
}

// A layout that the author states is an anchor before all others.

// CHECK-LABEL: tile.kernel @pinned
// CHECK: tile.load {{.*}} -> tensor<256xf32, #[[PIN]]>
// CHECK: arith.addf {{.*}} : tensor<256xf32, #[[PIN]]>
tile.kernel @pinned(%x: memref<?xf32, strided<[1]>> [N] {align = 16}, %y: memref<?xf32, strided<[1]>> [N])
    where(N divisible 16) grid(%b = N ceildiv 256) attributes {warps = 4 : i64} {
  %c256 = arith.constant 256 : index
  %i = arith.muli %b, %c256 : index
  %v = tile.load %x[%i] : memref<?xf32, strided<[1]>> -> tensor<256xf32, #layout.tv<thread [128:(1)], value [2:(128)]>>
  %s = arith.addf %v, %v : tensor<256xf32, #layout.tv<thread [128:(1)], value [2:(128)]>>
  tile.store %s, %y[%i] : tensor<256xf32, #layout.tv<thread [128:(1)], value [2:(128)]>>, memref<?xf32, strided<[1]>>
}
