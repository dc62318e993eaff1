// Numbers that are written as other languages do.
// RUN: tesela-opt %s --split-input-file --verify-diagnostics

tile.kernel @k() grid(%i = 4) {
  // expected-error@+2 {{'1e10' is no constant: a float has a point}}
  // expected-hint@+1 {{write 1.0e10}}
  %0 = arith.constant 1e10 : f32
  tile.return
}

// -----

tile.kernel @k() grid(%i = 4) {
  // expected-error@+2 {{'-2E-3' is no constant: a float has a point}}
  // expected-hint@+1 {{write -2.0E-3}}
  %0 = arith.constant -2E-3 : f32
  tile.return
}

// -----

tile.kernel @k() grid(%i = 4) {
  // expected-error@+2 {{'1e10' is a float, and the constant's type an integer type}}
  // expected-hint@+1 {{write 10000000000}}
  %0 = arith.constant 1e10 : index
  tile.return
}

// -----

tile.kernel @k() grid(%i = 4) {
  // expected-error@+2 {{'-2.5' is a float, and the constant's type an integer type}}
  // expected-hint@+1 {{round it, or take a float type}}
  %0 = arith.constant -2.5 : i32
  tile.return
}
