// RUN: tesela-opt %s -p dce,verify | FileCheck %s

// CHECK-LABEL: tile.kernel @dead
// CHECK-NOT: arith.muli
// CHECK-NOT: tile.load
// CHECK: tile.store %v, %y[%i]
// CHECK-NEXT: tile.return
tile.kernel @dead(%x: memref<?xf32> [N], %y: memref<?xf32> [N]) grid(%i = N ceildiv 64) {
  %unused = arith.muli %i, %i : index
  %f = arith.constant 1.0 : f32
  %dead = tile.load %x[%unused] : memref<?xf32> -> tensor<64xf32>
  %v = tile.full %f : f32 -> tensor<64xf32>
  tile.store %v, %y[%i] : tensor<64xf32>, memref<?xf32>
}
