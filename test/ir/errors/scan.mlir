// RUN: tesela-opt %s --split-input-file --verify-diagnostics

tile.kernel @kind(%x: f32) grid(%b = 1) {
  %t = tile.full %x : f32 -> tensor<4x8xf32>
  // expected-error@+1 {{'tile.scan': a scan is one of sum, prod, max, min, found argmax}}
  %r = tile.scan argmax %t axis 1 : tensor<4x8xf32> -> tensor<4x8xf32>
}

// -----

tile.kernel @axis(%x: f32) grid(%b = 1) {
  %t = tile.full %x : f32 -> tensor<4x8xf32>
  // expected-error@+1 {{'tile.scan': axis 2 is outside the 2 dimensions of the tile}}
  %r = tile.scan sum %t axis 2 : tensor<4x8xf32> -> tensor<4x8xf32>
}

// -----

tile.kernel @kept(%x: f32) grid(%b = 1) {
  %t = tile.full %x : f32 -> tensor<4x8xf32>
  // expected-error@+1 {{'tile.scan': a scan keeps the type, found tensor<4x8xf32> and tensor<8x4xf32>}}
  %r = tile.scan sum %t axis 1 : tensor<4x8xf32> -> tensor<8x4xf32>
}
