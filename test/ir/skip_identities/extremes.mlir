// A maximum that only matters above a bound is marked, and comes after the bound; its lanes are combined where one lies above.
// RUN: tesela-opt %s -p "infer-layouts,skip-identities,verify" --target sm_80 | FileCheck %s
// RUN: tesela-opt %s -p "infer-layouts,skip-identities{extremes=false},verify" --target sm_80 | FileCheck %s --check-prefix=NONE
// RUN: tesela-opt %s -p "infer-layouts,skip-identities,tile-to-ptx,verify" --target sm_80 | FileCheck %s --check-prefix=PTX
// NONE-NOT: only_beyond

// CHECK-LABEL: tile.kernel @running
// CHECK: %bound = arith.addf
// CHECK-NEXT: %peak = tile.reduce max %x axis 1 {only_beyond}
// CHECK-NEXT: tile.cmp ogt %peak, %bound
// CHECK: %least = tile.reduce min %x axis 1 :
// PTX-LABEL: ptx.kernel @running
// PTX: ptx.inst "setp.gt.f32"
// PTX: [[ANY:%[a-z0-9_]+]] = ptx.inst "vote.sync.any.pred"
// PTX: ptx.if [[ANY]]
// PTX: shfl.sync.bfly
// PTX: } else {
// PTX-NEXT: ptx.yield
tile.kernel @running(%X: memref<?x?xf32, strided<[?, 1]>> [M, N], %A: memref<?xf32> [M], %Y: memref<?xf32> [M], %Z: memref<?xf32> [M]) grid(%g = 1) attributes {warps = 4 : i64} {
  %c0 = arith.constant 0 : index
  %f3 = arith.constant 3.0 : f32
  %x = tile.load %X[%c0, %c0] : memref<?x?xf32, strided<[?, 1]>> -> tensor<8x32xf32>
  %before = tile.load %A[%c0] : memref<?xf32> -> tensor<8xf32>
  %peak = tile.reduce max %x axis 1 : tensor<8x32xf32> -> tensor<8xf32>
  %slack = tile.full %f3 : f32 -> tensor<8xf32>
  %bound = arith.addf %before, %slack : tensor<8xf32>
  %high = tile.cmp ogt %peak, %bound : tensor<8xf32> -> tensor<8xi1>
  %now = tile.select %high, %peak, %before : tensor<8xi1>, tensor<8xf32>
  tile.store %now, %Y[%c0] : tensor<8xf32>, memref<?xf32>
  %least = tile.reduce min %x axis 1 : tensor<8x32xf32> -> tensor<8xf32>
  %low = tile.cmp olt %least, %bound : tensor<8xf32> -> tensor<8xi1>
  %other = tile.select %low, %least, %before : tensor<8xi1>, tensor<8xf32>
  %both = arith.addf %other, %least : tensor<8xf32>
  tile.store %both, %Z[%c0] : tensor<8xf32>, memref<?xf32>
}
