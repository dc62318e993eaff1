// Scans and folds by a function print as they are written, and read back.
// RUN: tesela-opt %s | FileCheck %s
// RUN: tesela-opt %s | tesela-opt - | FileCheck %s

// CHECK: tile.kernel @combine
tile.kernel @combine(%x: memref<?x?xf32, strided<[?, 1]>> [M, N], %best: memref<?xf32, strided<[1]>> [M]) grid(%i = M) {
  %c0 = arith.constant 0 : index
  %one = arith.constant 1.0 : f32
  %zero = arith.constant 0.0 : f32
  %0 = tile.load %x[%i, %c0] : memref<?x?xf32, strided<[?, 1]>> -> tensor<16x16xf32>
  // CHECK: tile.scan sum {{%.*}} axis 1 reverse : tensor<16x16xf32> -> tensor<16x16xf32>
  %1 = tile.scan sum %0 axis 1 reverse : tensor<16x16xf32> -> tensor<16x16xf32>
  // CHECK: tile.scan min {{%.*}} axis 0 reverse exclusive : tensor<16x16xf32> -> tensor<16x16xf32>
  %2 = tile.scan min %1 axis 0 reverse exclusive : tensor<16x16xf32> -> tensor<16x16xf32>
  // CHECK: {{%.*}}, {{%.*}} = tile.scan ({{%.*}}, {{%.*}}) axis 1 exclusive ({{%.*}}, {{%.*}}) {note} : (tensor<16x16xf32>, tensor<16x16xf32>) -> (tensor<16x16xf32>, tensor<16x16xf32>) {
  // CHECK-NEXT: ^bb0({{%.*}}: f32, {{%.*}}: f32, {{%.*}}: f32, {{%.*}}: f32):
  // CHECK: tile.yield {{%.*}}, {{%.*}} : f32, f32
  // CHECK-NEXT: }
  %3, %4 = tile.scan (%0, %2) axis 1 exclusive (%one, %zero) {note} : (tensor<16x16xf32>, tensor<16x16xf32>) -> (tensor<16x16xf32>, tensor<16x16xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32, %d: f32):
    %ac = arith.mulf %a, %c : f32
    %cb = arith.mulf %c, %b : f32
    %cbd = arith.addf %cb, %d : f32
    tile.yield %ac, %cbd : f32, f32
  }
  // CHECK: tile.fold ({{%.*}}, {{%.*}}) axis 1 : (tensor<16x16xf32>, tensor<16x16xf32>) -> (tensor<16xf32>, tensor<16xf32>) {
  %5, %6 = tile.fold (%3, %4) axis 1 : (tensor<16x16xf32>, tensor<16x16xf32>) -> (tensor<16xf32>, tensor<16xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32, %d: f32):
    %more = tile.cmp ogt %c, %a : f32 -> i1
    %p = tile.select %more, %c, %a : i1, f32
    %q = tile.select %more, %d, %b : i1, f32
    tile.yield %p, %q : f32, f32
  }
  // CHECK: {{%.*}} = tile.fold ({{%.*}}) axis 0 : (tensor<16xf32>) -> (f32) {
  %7 = tile.fold (%6) axis 0 : (tensor<16xf32>) -> (f32) {
  ^bb0(%a: f32, %b: f32):
    tile.yield %b : f32
  }
  tile.store %7, %best[%i] : f32, memref<?xf32, strided<[1]>>
  tile.return
}
