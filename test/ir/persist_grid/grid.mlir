// A loop over the points of the grid that fall to a block, in panels where points along both axes share loads.
// RUN: tesela-opt %s -p "persist-grid{when=always},verify" --target sm_90a | FileCheck %s
// RUN: tesela-opt %s -p "persist-grid{when=always},verify" --target sm_90a | tesela-opt - | FileCheck %s
// RUN: tesela-opt %s -p "persist-grid{when=always panel=4},verify" --target sm_90a | FileCheck %s --check-prefix=FOUR
// RUN: tesela-opt %s -p "persist-grid{when=never},verify" --target sm_90a | FileCheck %s --check-prefix=NEVER
// NEVER-NOT: tile.block_index

// FOUR: [[FOUR:%[0-9]+]] = arith.constant 4 : i32
// FOUR: arith.minsi {{%[0-9]+}}, [[FOUR]] : i32

// CHECK-LABEL: tile.kernel @shared
// CHECK: [[X:%[0-9]+]] = tile.grid_extent 0 : index
// CHECK-NEXT: [[Y:%[0-9]+]] = tile.grid_extent 1 : index
// CHECK-NEXT: [[ALL:%[0-9]+]] = arith.muli [[X]], [[Y]] : index
// CHECK-NEXT: [[FIRST:%[0-9]+]] = tile.block_index : index
// CHECK-NEXT: [[COUNT:%[0-9]+]] = tile.block_count : index
// CHECK: [[EIGHT:%[0-9]+]] = arith.constant 8 : i32
// CHECK: scf.for %point = [[FIRST]] to [[ALL]] step [[COUNT]] {
// CHECK: arith.divui
// CHECK: arith.minsi {{%[0-9]+}}, [[EIGHT]] : i32
// CHECK: arith.divui
// CHECK: tile.store %v, %y[%i_1, %j_1]
// CHECK: } {independent}
// CHECK-NEXT: tile.return
tile.kernel @shared(%y: memref<?x?xi32, strided<[?, 1]>> [X, Y], %a: memref<?xi32> [X], %b: memref<?xi32> [Y]) grid(%i = X, %j = Y) {
  %u = tile.load %a[%i] : memref<?xi32> -> i32
  %w = tile.load %b[%j] : memref<?xi32> -> i32
  %v = arith.addi %u, %w : i32
  tile.store %v, %y[%i, %j] : i32, memref<?x?xi32, strided<[?, 1]>>
}

// CHECK-LABEL: tile.kernel @apart
// CHECK: scf.for %point{{.*}} {
// CHECK: arith.divui
// CHECK-NOT: arith.divui
// CHECK: tile.store
tile.kernel @apart(%y: memref<?x?xi32, strided<[?, 1]>> [X, Y]) grid(%i = X, %j = Y) {
  %v = arith.constant 7 : i32
  tile.store %v, %y[%i, %j] : i32, memref<?x?xi32, strided<[?, 1]>>
}

// CHECK-LABEL: tile.kernel @one
// CHECK: scf.for %i_1 = {{%[0-9]+}} to {{%[0-9]+}} step {{%[0-9]+}} {
// CHECK-NOT: arith.div
// CHECK: tile.store %v, %y[%i_1]
tile.kernel @one(%y: memref<?xi32> [X]) grid(%i = X) {
  %v = arith.constant 7 : i32
  tile.store %v, %y[%i] : i32, memref<?xi32>
}

// CHECK-LABEL: tile.kernel @not_this
// CHECK-NOT: scf.for
tile.kernel @not_this(%y: memref<?xi32> [X]) grid(%i = X) attributes {persistent = false} {
  %v = arith.constant 7 : i32
  tile.store %v, %y[%i] : i32, memref<?xi32>
}
