// Wrong modules of the builtin dialects: each error is found with its exact message on its exact line, and an error in
// one part hides none in another.
// RUN: tesela-opt %s --split-input-file --verify-diagnostics

func.func @undefined_value(%a: i32) -> i32 {
  %0 = arith.addi %a, %b : i32 // expected-error {{use of undefined value %b}}
  // expected-error@+1 {{use of undefined value %c}}
  func.return %c : i32
}

// -----

func.func @use_before_definition(%a: i32) {
  // expected-error@+1 {{'arith.addi': %b is used before it is defined}}
  %0 = arith.addi %a, %b : i32
  %b = arith.addi %a, %a : i32 // expected-note {{%b is defined here}}
  func.return
}

// -----

func.func @sibling_region(%c: i1) -> i32 {
  %r = scf.if %c -> (i32) {
    %x = arith.constant 1 : i32 // expected-note {{%x is defined here, in a region that cannot be seen from the use}}
    scf.yield %x : i32
  } else {
    scf.yield %x : i32 // expected-error {{use of undefined value %x}}
  }
  func.return %r : i32
}

// -----

// The parser resolves a name to a definition that comes later, even in another region; dominance rejects it.
func.func @later_region(%c: i1) {
  scf.if %c {
    // expected-error@+2 {{'arith.addi': %x is defined inside 'scf.if' and cannot be seen here}}
    // expected-hint@+1 {{return the value from that region as a result of the operation}}
    %y = arith.addi %x, %x : i32
  } else {
    %x = arith.constant 1 : i32 // expected-note {{%x is defined here}}
  }
  func.return
}

// -----

func.func @first() -> i32 {
  // expected-error@+1 {{'func.return': %v is defined inside 'func.func' @second and cannot be seen here}}
  func.return %v : i32
}
func.func @second() {
  %v = arith.constant 1 : i32 // expected-note {{%v is defined here}}
  func.return
}

// -----

%outer = arith.constant 1 : i32 // expected-note {{%outer is defined here}}
func.func @isolated() -> i32 {
  // expected-error@+2 {{'func.return': %outer is defined outside of 'func.func' @isolated, which sees no values from above}}
  // expected-hint@+1 {{pass the value as an argument}}
  func.return %outer : i32
}

// -----

func.func @inside_own_definition(%n: index) -> index {
  // expected-note@+1 {{%r is defined here}}
  %r = scf.for %i = %n to %n step %n iter_args(%c = %n) -> (index) {
    // expected-error@+1 {{'scf.yield': %r is used inside its own definition}}
    scf.yield %r : index
  }
  func.return %r : index
}

// -----

func.func @not_on_every_path(%c: i1) -> i32 {
  cf.cond_br %c, ^left, ^right
^left:
  %x = arith.constant 1 : i32 // expected-note {{%x is defined here}}
  cf.br ^join
^right:
  cf.br ^join
^join:
  // expected-error@+2 {{'func.return': %x is not defined on every path that leads here}}
  // expected-hint@+1 {{pass the value as a block argument}}
  func.return %x : i32
}

// -----

func.func @operand_type(%a: i32, %f: f32) {
  // expected-error@+1 {{operand is used with type i32, but has been previously used or defined with type f32}}
  %0 = arith.addi %a, %f : i32
  func.return
}

// -----

func.func @forward_type(%c: i1) {
  cf.br ^second
^first:
  %0 = arith.addi %b, %b : i32
  cf.br ^second
^second:
  %b = arith.constant 1.0 : f32 // expected-error {{result %b is defined with type f32, but used with type i32}}
  func.return
}

// -----

func.func @redefinition(%a: i32) {
  %a = arith.constant 1 : i32 // expected-error {{SSA value %a is already defined}}
  func.return
}

// -----

func.func @result_count(%a: i32) {
  %x, %y = arith.addi %a, %a : i32 // expected-error {{operation has 1 results, but was given 2 to bind}}
  func.return
}

// -----

func.func @operand_count(%a: i32) {
  // expected-error@+1 {{'arith.addi': ...2 operands, but got 1}}
  %x = "arith.addi"(%a) : (i32) -> i32
  // expected-error@+1 {{'arith.muli': ...2 operands, but got 3}}
  %y = "arith.muli"(%a, %a, %a) : (i32, i32, i32) -> i32
  func.return
}

// -----

func.func @unknown_operation() {
  // expected-error@+2 {{unknown operation 'arith.adi'}}
  // expected-hint@+1 {{did you mean ...'arith.addi'...}}
  arith.adi
}

// -----

func.func @unknown_dialect() {
  // expected-error@+2 {{unknown dialect 'foo' of operation 'foo.bar'}}
  // expected-hint@+1 {{known dialects: ...}}
  "foo.bar"() : () -> ()
}

// -----

// expected-error@+1 {{... is not registered}}
func.func @unknown_type(%a: !memref.buffer) {
  func.return
}

// -----

func.func @dense_shape() {
  // expected-error@+1 {{shape mismatch in dense literal...}}
  %0 = arith.constant dense<[1, 2]> : tensor<3xi32>
  func.return
}

// -----

func.func @dense_infinite() {
  // expected-error@+2 {{'arith.constant': the dense constant 'value' holds -inf; dense constants must be finite}}
  // expected-hint@+1 {{fill the tile from a scalar with tile.full}}
  %0 = arith.constant dense<0xFF800000> : tensor<4xf32>
  func.return
}

// -----

func.func @dense_too_wide() {
  // expected-error@+1 {{'0x1FF80' has more bits than bf16}}
  %0 = arith.constant dense<0x1FF80> : tensor<4xbf16>
  func.return
}

// -----

func.func @integer_range() {
  // expected-error@+1 {{...300...i8...}}
  %0 = arith.constant 300 : i8
  func.return
}

// -----

func.func @unknown_block() {
  cf.br ^nowhere // expected-error {{use of undefined block ^nowhere}}
}

// -----

func.func @no_terminator(%a: i32) {
  // expected-error@+1 {{a block of 'func.func' ends with 'arith.addi', which is no terminator; it must end with a terminator}}
  %0 = arith.addi %a, %a : i32
}

// -----

func.func @return_type(%a: i32) -> f32 {
  // expected-error@+1 {{'func.return': ...}}
  func.return %a : i32
}

// -----

func.func @condition_type(%a: i32) {
  // expected-error@+1 {{...i1...}}
  scf.if %a {
  }
  func.return
}

// -----

func.func @redefined_block() {
  cf.br ^a
^a: // expected-note {{originally declared here}}
  cf.br ^a
^a: // expected-error {{re-declaration of block 'a'}}
  func.return
}

// -----

%0 = arith.constant 1 : i32
+ // expected-error {{expected an operation}}

// -----

// A loop's own variable stands in its body only.
func.func @own_region(%n: index) {
  // expected-note@+2 {{%i is defined here, in a region that cannot be seen from the use}}
  // expected-error@+1 {{use of undefined value %i}}
  scf.for %i = %n to %n step %i {
  }
  func.return
}

// -----

func.func @later_in_own_region(%n: index) {
  scf.for %i = %n to %m step %n { // expected-error {{use of undefined value %m}}
    %m = arith.addi %i, %n : index // expected-note {{%m is defined here, in a region that cannot be seen from the use}}
  }
  func.return
}

// -----

func.func @index_range() {
  %0 = arith.constant 9223372036854775807 : index
  // expected-error@+1 {{'arith.constant': an index has 64 bits and a sign, which 9223372036854775808 does not fit}}
  %1 = arith.constant 9223372036854775808 : index
  %2 = arith.constant -9223372036854775808 : index
  // expected-error@+1 {{'arith.constant': an index has 64 bits and a sign, which -9223372036854775809 does not fit}}
  %3 = arith.constant -9223372036854775809 : index
  func.return
}

// -----

// expected-error@+1 {{a name is required after '%', '@', '#', '!' or '^'}}
# = #layout.tv<thread [4:(1,0)], value []>

// -----

func.func @unclosed(%a: i32) { // expected-error@+2 {{expected an operation, a block label or '}'}}
  func.return
