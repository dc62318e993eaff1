// RUN: tesela-opt %s -p infer-layouts --target sm_80 | FileCheck %s

// Indices are where the result is; of several layouts of the source, that in which rows stay within warps is worth a slower load: nothing is converted, and
// nothing goes through shared memory.

// CHECK-DAG: #[[L:[a-z0-9_]+]] = #layout.tv<thread [32:(0,1), 4:(1,0)], value [4:(4,0)]>
// CHECK: tile.gather {{.*}} axis 1 : tensor<16x32xf32, #[[L]]>[tensor<16x32xi32, #[[L]]>] -> tensor<16x32xf32, #[[L]]>
// CHECK-NOT: layout.convert
tile.kernel @rows(%x: memref<?x?xf32, strided<[?, 1]>> [M, N], %p: memref<?x?xi32, strided<[?, 1]>> [M, N], %y: memref<?x?xf32, strided<[?, 1]>> [M, N]) grid(%i = M) attributes {warps = 4 : i64} {
  %c0 = arith.constant 0 : index
  %v = tile.load %x[%i, %c0] : memref<?x?xf32, strided<[?, 1]>> -> tensor<16x32xf32>
  %w = tile.load %p[%i, %c0] : memref<?x?xi32, strided<[?, 1]>> -> tensor<16x32xi32>
  %z = tile.gather %v[%w] axis 1 : tensor<16x32xf32>[tensor<16x32xi32>] -> tensor<16x32xf32>
  tile.store %z, %y[%i, %c0] : tensor<16x32xf32>, memref<?x?xf32, strided<[?, 1]>>
}
