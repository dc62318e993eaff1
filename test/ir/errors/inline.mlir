// Wrong inline PTX.
// RUN: tesela-opt %s --split-input-file --verify-diagnostics

tile.kernel @k(%f: f32, %i: i32) grid(%g = 4) {
  %t = tile.full %f : f32 -> tensor<8xf32>
  // expected-error@+1 {{'tile.inline_ptx': operands and results must have one shape, found f32 and tensor<8xf32>}}
  %0 = tile.inline_ptx "neg.f32 $0, $1;" (%t) : (tensor<8xf32>) -> (f32)
  // expected-error@+1 {{'tile.inline_ptx': 'neg.f32 $0, $2': there is no $2}}
  %1 = tile.inline_ptx "neg.f32 $0, $2;" (%f) : (f32) -> (f32)
  // expected-error@+1 {{'tile.inline_ptx': 'bar.sync' has effects (convergent, sync)}}
  %2 = tile.inline_ptx "bar.sync 0;" (%f) : (f32) -> (f32)
  // expected-error@+1 {{'tile.inline_ptx': inline PTX gives one result at least: without one it would do nothing}}
  tile.inline_ptx "" (%f) : (f32) -> ()
  tile.return
}
