// Wrong gathers from tiles.
// RUN: tesela-opt %s --split-input-file --verify-diagnostics

tile.kernel @k(%f: f32, %i: i32) grid(%g = 4) {
  %x = tile.full %f : f32 -> tensor<8x16xf32>
  %p = tile.full %i : i32 -> tensor<8x4xi32>
  %one = tile.full %i : i32 -> tensor<8xi32>
  %h = tile.cast %p : tensor<8x4xi32> -> tensor<8x4xi16>
  // expected-error@+1 {{'tile.gather': axis 2 is outside the 2 dimensions of the tile}}
  %0 = tile.gather %x[%p] axis 2 : tensor<8x16xf32>[tensor<8x4xi32>] -> tensor<8x4xf32>
  // expected-error@+1 {{'tile.gather': axis -1 is outside the 2 dimensions of the tile}}
  %1 = tile.gather %x[%p] axis -1 : tensor<8x16xf32>[tensor<8x4xi32>] -> tensor<8x4xf32>
  // expected-error@+1 {{'tile.gather': the indices must be i32 or i64, found i16}}
  %2 = tile.gather %x[%h] axis 1 : tensor<8x16xf32>[tensor<8x4xi16>] -> tensor<8x4xf32>
  // expected-error@+1 {{'tile.gather': the indices' shape must be that of the tile, (8, 16), but along axis 0, found (8, 4)}}
  %3 = tile.gather %x[%p] axis 0 : tensor<8x16xf32>[tensor<8x4xi32>] -> tensor<8x4xf32>
  // expected-error@+1 {{'tile.gather': the indices' shape must be that of the tile, (8, 16), but along axis 1, found (8,)}}
  %4 = tile.gather %x[%one] axis 1 : tensor<8x16xf32>[tensor<8xi32>] -> tensor<8xf32>
  // expected-error@+1 {{'tile.gather': the result must be tensor<8x4xf32>, found tensor<8x16xf32>}}
  %5 = tile.gather %x[%p] axis 1 : tensor<8x16xf32>[tensor<8x4xi32>] -> tensor<8x16xf32>
  // expected-error@+1 {{'tile.gather': the result must be tensor<8x4xf32>, found tensor<8x4xi32>}}
  %6 = tile.gather %x[%p] axis 1 : tensor<8x16xf32>[tensor<8x4xi32>] -> tensor<8x4xi32>
  tile.return
}
