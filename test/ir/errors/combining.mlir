// RUN: tesela-opt %s --split-input-file --verify-diagnostics

tile.kernel @elements(%x: f32, %y: i32) grid(%b = 1) {
  %t = tile.full %x : f32 -> tensor<4x8xf32>
  %u = tile.full %y : i32 -> tensor<4x8xi32>
  // expected-error@+1 {{'tile.fold': the combining function takes an element of each tile, of the left and of the right: f32, f32; found f32}}
  %r = tile.fold (%t) axis 1 : (tensor<4x8xf32>) -> (tensor<4xf32>) {
  ^bb0(%p: f32):
    tile.yield %p : f32
  }
}

// -----

tile.kernel @given(%x: f32, %y: i32) grid(%b = 1) {
  %t = tile.full %x : f32 -> tensor<4x8xf32>
  %u = tile.full %y : i32 -> tensor<4x8xi32>
  // expected-error@+1 {{'tile.fold': the combining function gives f32, found i32}}
  %r = tile.fold (%t) axis 1 : (tensor<4x8xf32>) -> (tensor<4xf32>) {
  ^bb0(%p: f32, %q: f32):
    tile.yield %y : i32
  }
}

// -----

tile.kernel @result(%x: f32, %y: i32) grid(%b = 1) {
  %t = tile.full %x : f32 -> tensor<4x8xf32>
  %u = tile.full %y : i32 -> tensor<4x8xi32>
  // expected-error@+1 {{'tile.fold': a fold over axis 1 of tensor<4x8xf32> gives tensor<4xf32>, found tensor<8xf32>}}
  %r = tile.fold (%t) axis 1 : (tensor<4x8xf32>) -> (tensor<8xf32>) {
  ^bb0(%p: f32, %q: f32):
    tile.yield %p : f32
  }
}

// -----

tile.kernel @computes(%x: f32, %y: i32) grid(%b = 1) {
  %t = tile.full %x : f32 -> tensor<4x8xf32>
  %u = tile.full %y : i32 -> tensor<4x8xi32>
  // expected-error@+1 {{'tile.fold': the combining function computes with elements only, found 'tile.full'}}
  %r = tile.fold (%t) axis 1 : (tensor<4x8xf32>) -> (tensor<4xf32>) {
  ^bb0(%p: f32, %q: f32):
    %w = tile.full %p : f32 -> tensor<4xf32>
    tile.yield %p : f32
  }
}

// -----

tile.kernel @shapes(%x: f32, %y: i32) grid(%b = 1) {
  %t = tile.full %x : f32 -> tensor<4x8xf32>
  %u = tile.full %y : i32 -> tensor<4x8xi32>
  // expected-error@+2 {{'tile.scan': the tiles must have one shape, found tensor<4x8xf32>, tensor<8xf32>}}
  %v = tile.full %x : f32 -> tensor<8xf32>
  %r, %s = tile.scan (%t, %v) axis 0 : (tensor<4x8xf32>, tensor<8xf32>) -> (tensor<4x8xf32>, tensor<8xf32>) {
  ^bb0(%a: f32, %c: f32, %p: f32, %q: f32):
    tile.yield %a, %c : f32, f32
  }
}

// -----

tile.kernel @identity(%x: f32, %y: i32) grid(%b = 1) {
  %t = tile.full %x : f32 -> tensor<4x8xf32>
  %u = tile.full %y : i32 -> tensor<4x8xi32>
  // expected-error@+1 {{'tile.scan': an exclusive scan by a function takes an identity of each element type, another scan takes none}}
  %r = tile.scan (%t) axis 0 exclusive : (tensor<4x8xf32>) -> (tensor<4x8xf32>) {
  ^bb0(%p: f32, %q: f32):
    tile.yield %p : f32
  }
}

// -----

tile.kernel @end(%x: f32, %y: i32) grid(%b = 1) {
  %t = tile.full %x : f32 -> tensor<4x8xf32>
  %u = tile.full %y : i32 -> tensor<4x8xi32>
  // expected-error@+2 {{'tile.fold': the combining function ends with tile.yield}}
  // expected-error@+3 {{a block of 'tile.fold' ends with 'arith.addf', which is no terminator; it must end with a terminator}}
  %r = tile.fold (%t) axis 1 : (tensor<4x8xf32>) -> (tensor<4xf32>) {
  ^bb0(%p: f32, %q: f32):
    %s = arith.addf %p, %q : f32
  }
}
