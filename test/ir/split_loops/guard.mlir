// A selection by comparisons of places outside of loops is made only where one of them may be false.
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,split-loops,verify" --target sm_80 | FileCheck %s --check-prefix=GUARD
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,split-loops{guard=false},verify" --target sm_80 | FileCheck %s --check-prefix=PLAIN

// GUARD: [[V:%[a-z0-9_]+]] = tile.load
// GUARD: scf.if {{%[0-9]+}} -> (tensor<4096xf32
// GUARD-NEXT: scf.yield [[V]]
// GUARD: else
// GUARD: tile.cmp slt
// GUARD: tile.select
// GUARD: tile.store

// PLAIN-NOT: scf.if
// PLAIN: tile.cmp slt
// PLAIN-NEXT: tile.select
tile.kernel @tail(%x: memref<?xf32> [N], %y: memref<?xf32> [N]) dims(%N = N) grid(%r = 1) {
  %c0 = arith.constant 0 : index
  %f0 = arith.constant 0.0 : f32
  %fill = tile.full %f0 : f32 -> tensor<4096xf32>
  %v = tile.load %x[%c0] : memref<?xf32> -> tensor<4096xf32>
  %place = tile.iota axis 0 : tensor<4096xi32>
  %narrow = tile.cast %N : index -> i32
  %bound = tile.full %narrow : i32 -> tensor<4096xi32>
  %in = tile.cmp slt %place, %bound : tensor<4096xi32> -> tensor<4096xi1>
  %s = tile.select %in, %v, %fill : tensor<4096xi1>, tensor<4096xf32>
  tile.store %s, %y[%c0] : tensor<4096xf32>, memref<?xf32>
}
