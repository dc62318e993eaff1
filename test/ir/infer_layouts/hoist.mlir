// RUN: tesela-opt %s -p plan-dataflow,infer-layouts,verify --target sm_80 | FileCheck %s

// A row that does not change in the loop, loaded by whole lines, is converted for the broadcast once, before the loop.

// CHECK-LABEL: tile.kernel @loop
// CHECK: tile.expand
// CHECK-NEXT: layout.convert
// CHECK: scf.for
// CHECK-NOT: layout.convert
// CHECK: tile.store
tile.kernel @loop(%x: memref<?x?xf32, strided<[?, 1]>> [M, N] {align = 16}, %v: memref<?xf32, strided<[1]>> [M] {align = 16},
                  %y: memref<?x?xf32, strided<[?, 1]>> [M, N] {align = 16}) where(N divisible 16, M divisible 64) grid(%i = M ceildiv 64) attributes {warps = 4 : i64} {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %m = arith.muli %i, %c64 : index
  %a = tile.load %v[%m] {layout = #layout.tv<thread [16:(4), 8:(0)], value [4:(1)]>} : memref<?xf32, strided<[1]>> -> tensor<64xf32>
  %e = tile.expand %a axis 1 {layout = #layout.tv<thread [16:(4,0), 8:(0,0)], value [4:(1,0)]>} : tensor<64xf32> -> tensor<64x1xf32>
  scf.for %j = %c0 to %m step %c64 {
    %t = tile.load %x[%m, %j] : memref<?x?xf32, strided<[?, 1]>> -> tensor<64x64xf32>
    %b = tile.broadcast %e : tensor<64x1xf32> -> tensor<64x64xf32>
    %s = arith.addf %t, %b : tensor<64x64xf32>
    %c = tile.broadcast %e : tensor<64x1xf32> -> tensor<64x64xf32>
    %u = arith.mulf %s, %c : tensor<64x64xf32>
    tile.store %u, %y[%m, %j] : tensor<64x64xf32>, memref<?x?xf32, strided<[?, 1]>>
    scf.yield
  }
}
