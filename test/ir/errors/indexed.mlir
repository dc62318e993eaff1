// Wrong accesses at tiles of indices, and wrong atomic updates.
// RUN: tesela-opt %s --split-input-file --verify-diagnostics

tile.kernel @k(%x: memref<?x?xf32> [M, N], %n: memref<?xi32> [K], %b: memref<?xi8> [L], %h: memref<?xf16> [H], %f: f32, %i: i32, %c: i8, %g: f16) grid(%j = M) {
  %t = tile.iota axis 0 : tensor<16xi32>
  %v = tile.full %f : f32 -> tensor<16xf32>
  %w = tile.full %f : f32 -> tensor<4x16xf32>
  // expected-error@+1 {{'tile.load_indexed': an array of rank 2 takes as many indices, found 1}}
  %0 = tile.load_indexed %x[%t] dims [-1] : memref<?x?xf32>[tensor<16xi32>] -> tensor<16xf32>
  // expected-error@+1 {{'tile.load_indexed': the array's elements are f32, the tile's are i32}}
  %1 = tile.load_indexed %x[%t, %j] dims [-1] : memref<?x?xf32>[tensor<16xi32>, index] -> tensor<16xi32>
  // expected-error@+1 {{'tile.load_indexed': dims must name, for each of the 1 dimensions of the tile, a different dimension of the array or -1, found [2]}}
  %2 = tile.load_indexed %x[%t, %j] dims [2] : memref<?x?xf32>[tensor<16xi32>, index] -> tensor<16xf32>
  // expected-error@+1 {{'tile.load_indexed': index 0 must be an index or a tile of i32 or i64, found tensor<16xf32>}}
  %3 = tile.load_indexed %x[%v, %j] dims [-1] : memref<?x?xf32>[tensor<16xf32>, index] -> tensor<16xf32>
  // expected-error@+1 {{'tile.load_indexed': index 0 is a tile, so that the tile cannot be a slice along dimension 0}}
  %4 = tile.load_indexed %x[%t, %j] dims [0] : memref<?x?xf32>[tensor<16xi32>, index] -> tensor<16xf32>
  // expected-error@+1 {{'tile.store_indexed': index 0 of shape (16,) does not broadcast to the tile's shape (4, 16) (of equal rank)}}
  tile.store_indexed %w, %x[%t, %j] dims [-1, 1] : tensor<4x16xf32>, memref<?x?xf32>[tensor<16xi32>, index]
  // expected-error@+1 {{'tile.load_indexed': the value past the edges must be f32, found i32}}
  %5 = "tile.load_indexed"(%x, %t, %j, %i) <{dims = array<i64: -1>, operandSegmentSizes = array<i32: 1, 2, 1>}> : (memref<?x?xf32>, tensor<16xi32>, index, i32) -> tensor<16xf32>
  // expected-error@+1 {{'tile.atomic': 'and' is for integers, found f32}}
  %6 = tile.atomic and %f, %x[%j, %j] dims [] : f32, memref<?x?xf32>[index, index] -> f32
  // expected-error@+1 {{'tile.atomic': 'add' of i8 has no atomic form: i32 and i64 have}}
  %7 = tile.atomic add %c, %b[%j] dims [] : i8, memref<?xi8>[index] -> i8
  // expected-error@+1 {{'tile.atomic': 'max' of f16 has no atomic form: f32 has, and for f16, bf16 and f64 only 'add'}}
  %8 = tile.atomic max %g, %h[%j] dims [] : f16, memref<?xf16>[index] -> f16
  // expected-error@+1 {{'tile.atomic': 'cas' takes an expected value, and nothing else does}}
  %9 = tile.atomic cas %i, %n[%j] dims [] : i32, memref<?xi32>[index] -> i32
  // expected-error@+1 {{'tile.atomic': the result has the operand's type, i32, found i64}}
  %10 = tile.atomic add %i, %n[%j] dims [] : i32, memref<?xi32>[index] -> i64
  tile.return
}
