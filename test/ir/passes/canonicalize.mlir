// RUN: tesela-opt %s -p canonicalize | FileCheck %s
// RUN: tesela-opt %s -p canonicalize --print-debuginfo | FileCheck %s --check-prefix=LOC

// What a pattern or a fold creates stands where the operation stood that it replaces.
// CHECK-LABEL: @fold
// LOC-LABEL: @fold
func.func @fold(%a: i32) -> (i32, f32, i32) {
  %1 = arith.constant 1 : i32
  %2 = arith.constant 2 : i32
  // CHECK: [[three:%.+]] = arith.constant 3 : i32
  // LOC: arith.constant 3 : i32 loc("{{.*}}canonicalize.mlir":[[# @LINE + 1]]:3)
  %3 = arith.addi %1, %2 : i32
  %f = arith.constant 3.0e38 : f32
  // An overflow folds to infinity, as it computes.
  // CHECK: arith.constant 0x7f800000 : f32
  // LOC: arith.constant 0x7f800000 : f32 loc("{{.*}}canonicalize.mlir":[[# @LINE + 1]]:3)
  %g = arith.addf %f, %f : f32
  // The constant moves to the right: a new operation at the old place.
  // CHECK: arith.addi %a, [[three]] : i32
  // LOC: arith.addi %a, {{%.+}} : i32 loc("{{.*}}canonicalize.mlir":[[# @LINE + 1]]:3)
  %4 = arith.addi %3, %a : i32
  func.return %3, %g, %4 : i32, f32, i32
}

// A loop that runs once is inlined, and its operations keep their places.
// CHECK-LABEL: @one_trip
// CHECK-NOT: scf.for
// LOC-LABEL: @one_trip
func.func @one_trip(%x: f32) -> f32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = scf.for %i = %c0 to %c1 step %c1 iter_args(%c = %x) -> (f32) {
    // LOC: arith.addf {{.*}} loc("{{.*}}canonicalize.mlir":[[# @LINE + 2]]:5)
    // CHECK: arith.addf %x, %x : f32
    %y = arith.addf %c, %x : f32
    scf.yield %y : f32
  }
  func.return %r : f32
}

// A division by zero is left alone: folding must not decide what it gives.
// CHECK-LABEL: @division_by_zero
// CHECK: arith.divsi
func.func @division_by_zero() -> i32 {
  %0 = arith.constant 0 : i32
  %1 = arith.constant 1 : i32
  %2 = arith.divsi %1, %0 : i32
  func.return %2 : i32
}
