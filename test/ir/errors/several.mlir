// All errors of a module come in one run, in the order of the text, each with its line and a caret.
// RUN: not tesela-opt %s 2>&1 | FileCheck %s

func.func @several(%a: i32) {
  %0 = "arith.addi"(%a) : (i32) -> i32
  %1 = arith.muli %a, %2 : i32
  %2 = "arith.subi"() : () -> i32
  func.return
}

// CHECK: several.mlir:5:3: error: 'arith.addi':
// CHECK-NEXT{LITERAL}:   %0 = "arith.addi"(%a) : (i32) -> i32
// CHECK-NEXT: {{^   *}}^
// CHECK-NEXT: several.mlir:6:3: error: 'arith.muli': operand 1 is used before it is defined
// CHECK-NEXT{LITERAL}:   %1 = arith.muli %a, %2 : i32
// CHECK-NEXT:   ^
// CHECK-NEXT: several.mlir:7:3: note: operand 1 is defined here
// CHECK: several.mlir:7:3: error: 'arith.subi':
