// Parts that meet: one tile or several, printed as written.
// RUN: tesela-opt %s | FileCheck %s
// RUN: tesela-opt %s | tesela-opt - | FileCheck %s

// CHECK: %all, %last = tile.sum_parts %x at %i part %p of 4 : tensor<8x16xf32>
// CHECK: %one, %two, %came = tile.sum_parts %x, %n at %i part %p of 16 {note = "x"} : tensor<8x16xf32>, tensor<8xi32>
tile.kernel @meet(%x_array: memref<?x16xf32, strided<[16, 1]>> [N, 16], %n_array: memref<?xi32> [N]) grid(%i = N ceildiv 8, %p = 4) {
  %c0 = arith.constant 0 : index
  %x = tile.load %x_array[%i, %c0] : memref<?x16xf32, strided<[16, 1]>> -> tensor<8x16xf32>
  %n = tile.load %n_array[%i] : memref<?xi32> -> tensor<8xi32>
  %all, %last = tile.sum_parts %x at %i part %p of 4 : tensor<8x16xf32>
  %one, %two, %came = tile.sum_parts %x, %n at %i part %p of 16 {note = "x"} : tensor<8x16xf32>, tensor<8xi32>
}
