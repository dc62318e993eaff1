// Wrong assumptions.
// RUN: tesela-opt %s --split-input-file --verify-diagnostics

tile.kernel @k(%f: f32, %n: i32) grid(%i = 4) {
  // expected-error@+1 {{'tile.assume': assume takes an index or an integer to itself, found f32 and f32}}
  %0 = tile.assume %f at_least 0 : f32
  // expected-error@+1 {{'tile.assume': state what is assumed: divisible, at_least, at_most}}
  %1 = tile.assume %i : index
  // expected-error@+1 {{'tile.assume': a divisor must be positive, found 0}}
  %2 = tile.assume %i divisible 0 : index
  // expected-error@+1 {{'tile.assume': no number is at least 5 and at most 4}}
  %3 = tile.assume %n at_least 5 at_most 4 : i32
  tile.return
}
