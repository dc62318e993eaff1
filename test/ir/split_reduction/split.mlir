// Which loops are split, how their trips are dealt out, and what comes after them.
// RUN: tesela-opt %s -p "split-reduction{parts=3},verify" | FileCheck %s
// RUN: tesela-opt %s -p "split-reduction{parts=3},verify" | tesela-opt - | FileCheck %s
// RUN: tesela-opt %s -p "split-reduction,verify" | FileCheck %s --check-prefix=NOT
// NOT-LABEL: tile.kernel @product
// NOT-NOT: tile.sum_parts
// NOT-LABEL: tile.kernel @stated
// NOT: grid(%i = N, %part = 2)
// NOT: tile.sum_parts {{.*}} of 2

// The part is a third coordinate; the point, the number of its row and column.
// CHECK-LABEL: tile.kernel @product
// CHECK-SAME: grid(%bm = M ceildiv 64, %bn = N ceildiv 64, %part = 3)
// CHECK: [[ROWS:%[0-9]+]] = tile.grid_extent 0 : index
// CHECK: [[AT:%[0-9]+]] = arith.muli %bn, [[ROWS]] : index
// CHECK: [[POINT:%[0-9]+]] = arith.addi [[AT]], %bm : index
// CHECK: [[TRIPS:%[0-9]+]] = arith.ceildivsi
// CHECK: arith.muli %part, [[TRIPS]] : index
// CHECK: scf.for %k = {{%[0-9]+}} to {{%[0-9]+}} step %c64
// CHECK: [[ALL:%acc[_0-9]*]], [[LAST:%[0-9]+]] = tile.sum_parts %acc{{[_0-9]*}} at [[POINT]] part %part of 3 : tensor<64x64xf32>
// CHECK: scf.if [[LAST]] {
// CHECK-NEXT: tile.store [[ALL]], %C
// CHECK: }
// CHECK-NEXT: tile.return
tile.kernel @product(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K], %B: memref<?x?xbf16, strided<[?, 1]>> [N, K],
                     %C: memref<?x?xf32, strided<[?, 1]>> [M, N]) dims(%K = K) grid(%bm = M ceildiv 64, %bn = N ceildiv 64) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %m = arith.muli %bm, %c64 : index
  %n = arith.muli %bn, %c64 : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> tensor<64x64xf32>
  %acc = scf.for %k = %c0 to %K step %c64 iter_args(%c = %zero) -> (tensor<64x64xf32>) {
    %a = tile.load %A[%m, %k] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<64x64xbf16>
    %b = tile.load %B[%n, %k] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<64x64xbf16>
    %t = tile.transpose %b [1, 0] : tensor<64x64xbf16> -> tensor<64x64xbf16>
    %d = tile.dot %a, %t, %c : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
    scf.yield %d : tensor<64x64xf32>
  }
  tile.store %acc, %C[%m, %n] : tensor<64x64xf32>, memref<?x?xf32, strided<[?, 1]>>
}

// An initial value is added once, to the sum of all; what is stated goes before the option; integers are added as such.
// CHECK-LABEL: tile.kernel @stated
// CHECK-SAME: grid(%i = N, %part = 2)
// CHECK: %first = tile.load
// CHECK: [[ZERO:%[0-9]+]] = tile.full {{%[0-9]+}} : i32 -> tensor<8xi32>
// CHECK: iter_args({{%.*}} = [[ZERO]])
// CHECK: [[ALL:%sum[_0-9]*]], {{%[0-9]+}} = tile.sum_parts %sum{{[_0-9]*}} at %i part %part of 2
// CHECK: arith.addi %first, [[ALL]] : tensor<8xi32>
tile.kernel @stated(%x: memref<?x8xi32> [N, 8], %y: memref<?x8xi32> [N, 8]) dims(%N = N) grid(%i = N) attributes {split = 2 : i64} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %first = tile.load %x[%i, %c0] : memref<?x8xi32> -> tensor<8xi32>
  %sum = scf.for %k = %c1 to %N step %c1 iter_args(%s = %first) -> (tensor<8xi32>) {
    %v = tile.load %x[%k, %c0] : memref<?x8xi32> -> tensor<8xi32>
    %t = arith.addi %v, %s : tensor<8xi32>
    scf.yield %t : tensor<8xi32>
  }
  tile.store %sum, %y[%i, %c0] : tensor<8xi32>, memref<?x8xi32>
}

// In a grid of three axes parts are dealt out along the third.
// CHECK-LABEL: tile.kernel @cube
// CHECK-SAME: grid(%i = X, %j = Y, %k = Z * 3)
// CHECK: [[THREE:%[0-9]+]] = arith.constant 3 : index
// CHECK: arith.divsi {{%[0-9]+}}, [[THREE]] : index
// CHECK: %part = arith.divsi %k, [[OWN:%[0-9]+]] : index
// CHECK: %k_1 = arith.maxsi
// CHECK: tile.load %x[%i, %j, %k_1]
// CHECK: tile.sum_parts {{.*}} part %part of 3
tile.kernel @cube(%x: memref<?x?x?xf32> [X, Y, Z], %y: memref<?x?x?xf32> [X, Y, Z]) dims(%X = X) grid(%i = X, %j = Y, %k = Z) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> tensor<1xf32>
  %v = tile.load %x[%i, %j, %k] : memref<?x?x?xf32> -> tensor<1xf32>
  %sum = scf.for %n = %c0 to %X step %c1 iter_args(%s = %zero) -> (tensor<1xf32>) {
    %t = arith.addf %s, %v : tensor<1xf32>
    scf.yield %t : tensor<1xf32>
  }
  tile.store %sum, %y[%i, %j, %k] : tensor<1xf32>, memref<?x?x?xf32>
}
