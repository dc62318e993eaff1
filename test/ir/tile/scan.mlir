// Scans, and dots of every type, print as they are written, and read back.
// RUN: tesela-opt %s | FileCheck %s
// RUN: tesela-opt %s | tesela-opt - | FileCheck %s

// CHECK: tile.kernel @scan
tile.kernel @scan(%x: memref<?x?xf32, strided<[?, 1]>> [M, N], %a: f8E4M3FN, %b: f8E5M2, %u: ui8) grid(%i = M) {
  %c0 = arith.constant 0 : index
  %f = arith.constant 0.0 : f32
  %n = arith.constant 0 : i32
  // CHECK: [[X:%.*]] = tile.load
  %0 = tile.load %x[%i, %c0] : memref<?x?xf32, strided<[?, 1]>> -> tensor<16x16xf32>
  // CHECK: tile.scan sum [[X]] axis 1 : tensor<16x16xf32> -> tensor<16x16xf32>
  %1 = tile.scan sum %0 axis 1 : tensor<16x16xf32> -> tensor<16x16xf32>
  // CHECK: tile.scan max {{%.*}} axis 0 exclusive {note} : tensor<16x16xf32> -> tensor<16x16xf32>
  %2 = tile.scan max %1 axis 0 exclusive {note} : tensor<16x16xf32> -> tensor<16x16xf32>
  // CHECK: tile.dot {{.*}} {precision = "tf32"} : tensor<16x16xf32>, tensor<16x16xf32> -> tensor<16x16xf32>
  %3 = tile.dot %0, %1, %2 {precision = "tf32"} : tensor<16x16xf32>, tensor<16x16xf32> -> tensor<16x16xf32>
  %4 = tile.full %a : f8E4M3FN -> tensor<16x16xf8E4M3FN>
  %5 = tile.full %b : f8E5M2 -> tensor<16x16xf8E5M2>
  // CHECK: tile.dot {{.*}} : tensor<16x16xf8E4M3FN>, tensor<16x16xf8E5M2> -> tensor<16x16xf32>
  %6 = tile.dot %4, %5, %3 : tensor<16x16xf8E4M3FN>, tensor<16x16xf8E5M2> -> tensor<16x16xf32>
  %7 = tile.full %u : ui8 -> tensor<16x16xui8>
  %8 = tile.full %n : i32 -> tensor<16x16xi32>
  // CHECK: tile.dot {{.*}} : tensor<16x16xui8>, tensor<16x16xui8> -> tensor<16x16xi32>
  %9 = tile.dot %7, %7, %8 : tensor<16x16xui8>, tensor<16x16xui8> -> tensor<16x16xi32>
  tile.return
}
