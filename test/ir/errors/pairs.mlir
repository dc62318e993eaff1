// Wrong pairs and counts.
// RUN: tesela-opt %s --split-input-file --verify-diagnostics

tile.kernel @k(%f: f32, %i: i32) grid(%g = 4) {
  %x = tile.full %f : f32 -> tensor<16xf32>
  %y = tile.full %i : i32 -> tensor<16xi32>
  // expected-error@+1 {{'tile.join': both tiles must have one type, found tensor<16xf32> and tensor<16xi32>}}
  %0 = tile.join %x, %y : tensor<16xf32>, tensor<16xi32> -> tensor<16x2xf32>
  // expected-error@+1 {{'tile.join': the pairs must have the shape (16, 2), found (2, 16)}}
  %1 = tile.join %x, %x : tensor<16xf32>, tensor<16xf32> -> tensor<2x16xf32>
  // expected-error@+1 {{'tile.join': pairs keep the element type}}
  %2 = tile.join %x, %x : tensor<16xf32>, tensor<16xf32> -> tensor<16x2xi32>
  // expected-error@+1 {{'tile.split': the pairs must have the shape (8, 2), found (16,)}}
  %3, %4 = tile.split %x : tensor<16xf32> -> tensor<8xf32>, tensor<8xf32>
  // expected-error@+1 {{'tile.histogram': the values must be i32, found f32}}
  %5 = tile.histogram %x : tensor<16xf32> -> tensor<8xi32>
  // expected-error@+1 {{'tile.histogram': the counts must be i32, found f32}}
  %6 = tile.histogram %y : tensor<16xi32> -> tensor<8xf32>
  // expected-error@+1 {{'tile.histogram': the counts are a tile of one dimension, found tensor<8x8xi32>}}
  %7 = tile.histogram %y : tensor<16xi32> -> tensor<8x8xi32>
  tile.return
}
