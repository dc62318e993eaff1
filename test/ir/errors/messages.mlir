// Wrong prints and assertions.
// RUN: tesela-opt %s --split-input-file --verify-diagnostics

tile.kernel @k(%f: f32, %i: i32) grid(%g = 4) {
  %t = tile.full %f : f32 -> tensor<512x1024xf32>
  // expected-error@+1 {{'tile.print': the text must have one {} for each of the 1 values, found 'x'}}
  tile.print "x" (%f) : f32
  // expected-error@+1 {{'tile.print': the text must have one {} for each of the 1 values, found '{0}'}}
  tile.print "{0}" (%f) : f32
  // expected-error@+1 {{'tile.print': the text is no format: Single '}' encountered in format string}}
  tile.print "}" ()
  // expected-error@+1 {{'tile.print': one message has at most 1048560 bytes, found 2097160}}
  tile.print "{}" (%t) : tensor<512x1024xf32>
  tile.return
}
