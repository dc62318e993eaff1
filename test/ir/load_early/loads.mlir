// RUN: tesela-opt %s -p plan-dataflow,infer-layouts,load-early --split-input-file --target sm_90a | FileCheck %s

// A bias that is read after the loop is asked for before it, and the place it is read at is computed there.

// CHECK-LABEL: tile.kernel @moved
// CHECK: %[[AT:.*]] = arith.addi
// CHECK: tile.load %bias[%[[AT]]]
// CHECK: scf.for
// CHECK-NOT: tile.load
tile.kernel @moved(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K] {align = 16}, %B: memref<?x?xbf16, strided<[?, 1]>> [N, K] {align = 16},
                      %bias: memref<?xf32, strided<[1]>> [N], %C: memref<?x?xf32, strided<[?, 1]>> [M, N] {noalias})
    dims(%K = K divisible 8) where(N divisible 8) grid(%bm = M ceildiv 128, %bn = N ceildiv 64) attributes {warps = 8 : i64} {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %m = arith.muli %bm, %c128 : index
  %n = arith.muli %bn, %c64 : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> tensor<128x64xf32>
  %acc = scf.for %k = %c0 to %K step %c64 iter_args(%c = %zero) -> (tensor<128x64xf32>) {
    %a = tile.load %A[%m, %k] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<128x64xbf16>
    %b = tile.load %B[%n, %k] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<64x64xbf16>
    %t = tile.transpose %b [1, 0] : tensor<64x64xbf16> -> tensor<64x64xbf16>
    %d = tile.dot %a, %t, %c : tensor<128x64xbf16>, tensor<64x64xbf16> -> tensor<128x64xf32>
    scf.yield %d : tensor<128x64xf32>
  }
  %at = arith.addi %n, %c0 : index
  %v = tile.load %bias[%at] : memref<?xf32, strided<[1]>> -> tensor<64xf32>
  %e = tile.expand %v axis 0 : tensor<64xf32> -> tensor<1x64xf32>
  %w = tile.broadcast %e : tensor<1x64xf32> -> tensor<128x64xf32>
  %r = arith.addf %acc, %w : tensor<128x64xf32>
  tile.store %r, %C[%m, %n] : tensor<128x64xf32>, memref<?x?xf32, strided<[?, 1]>>
}

// -----

// Between, the bias may change: a store to what may be the same array.

// CHECK-LABEL: tile.kernel @written
// CHECK: scf.for
// CHECK: tile.store
// CHECK: tile.load %bias
tile.kernel @written(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K] {align = 16}, %B: memref<?x?xbf16, strided<[?, 1]>> [N, K] {align = 16},
                      %bias: memref<?xf32, strided<[1]>> [N], %C: memref<?x?xf32, strided<[?, 1]>> [M, N])
    dims(%K = K divisible 8) where(N divisible 8) grid(%bm = M ceildiv 128, %bn = N ceildiv 64) attributes {warps = 8 : i64} {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %m = arith.muli %bm, %c128 : index
  %n = arith.muli %bn, %c64 : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> tensor<128x64xf32>
  %acc = scf.for %k = %c0 to %K step %c64 iter_args(%c = %zero) -> (tensor<128x64xf32>) {
    %a = tile.load %A[%m, %k] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<128x64xbf16>
    %b = tile.load %B[%n, %k] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<64x64xbf16>
    %t = tile.transpose %b [1, 0] : tensor<64x64xbf16> -> tensor<64x64xbf16>
    %d = tile.dot %a, %t, %c : tensor<128x64xbf16>, tensor<64x64xbf16> -> tensor<128x64xf32>
    scf.yield %d : tensor<128x64xf32>
  }
  tile.store %acc, %C[%m, %n] : tensor<128x64xf32>, memref<?x?xf32, strided<[?, 1]>>
  %v = tile.load %bias[%n] : memref<?xf32, strided<[1]>> -> tensor<64xf32>
  %e = tile.expand %v axis 0 : tensor<64xf32> -> tensor<1x64xf32>
  %w = tile.broadcast %e : tensor<1x64xf32> -> tensor<128x64xf32>
  %r = arith.addf %acc, %w : tensor<128x64xf32>
  tile.store %r, %C[%m, %n] : tensor<128x64xf32>, memref<?x?xf32, strided<[?, 1]>>
}

// -----

// Where it stands depends on what the loop computes.

// CHECK-LABEL: tile.kernel @dependent
// CHECK: scf.for
// CHECK: tile.load %bias
tile.kernel @dependent(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K] {align = 16}, %B: memref<?x?xbf16, strided<[?, 1]>> [N, K] {align = 16},
                      %bias: memref<?xf32, strided<[1]>> [N], %C: memref<?x?xf32, strided<[?, 1]>> [M, N] {noalias})
    dims(%K = K divisible 8) where(N divisible 8) grid(%bm = M ceildiv 128, %bn = N ceildiv 64) attributes {warps = 8 : i64} {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %m = arith.muli %bm, %c128 : index
  %n = arith.muli %bn, %c64 : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> tensor<128x64xf32>
  %acc = scf.for %k = %c0 to %K step %c64 iter_args(%c = %zero) -> (tensor<128x64xf32>) {
    %a = tile.load %A[%m, %k] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<128x64xbf16>
    %b = tile.load %B[%n, %k] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<64x64xbf16>
    %t = tile.transpose %b [1, 0] : tensor<64x64xbf16> -> tensor<64x64xbf16>
    %d = tile.dot %a, %t, %c : tensor<128x64xbf16>, tensor<64x64xbf16> -> tensor<128x64xf32>
    scf.yield %d : tensor<128x64xf32>
  }
  %s = tile.reduce max %acc axis 1 : tensor<128x64xf32> -> tensor<128xf32>
  %top = tile.reduce max %s axis 0 : tensor<128xf32> -> f32
  %i = arith.fptosi %top : f32 to i64
  %at = arith.index_cast %i : i64 to index
  %v = tile.load %bias[%at] : memref<?xf32, strided<[1]>> -> tensor<64xf32>
  %e = tile.expand %v axis 0 : tensor<64xf32> -> tensor<1x64xf32>
  %w = tile.broadcast %e : tensor<1x64xf32> -> tensor<128x64xf32>
  %r = arith.addf %acc, %w : tensor<128x64xf32>
  tile.store %r, %C[%m, %n] : tensor<128x64xf32>, memref<?x?xf32, strided<[?, 1]>>
}

// -----

// A tile of the result's size would take 32 registers of each thread through the loop; the bias after it may go.

// CHECK-LABEL: tile.kernel @large
// CHECK: tile.load %bias
// CHECK: scf.for
// CHECK: tile.load %C
tile.kernel @large(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K] {align = 16}, %B: memref<?x?xbf16, strided<[?, 1]>> [N, K] {align = 16},
                      %bias: memref<?xf32, strided<[1]>> [N], %C: memref<?x?xf32, strided<[?, 1]>> [M, N] {noalias})
    dims(%K = K divisible 8) where(N divisible 8) grid(%bm = M ceildiv 128, %bn = N ceildiv 64) attributes {warps = 8 : i64} {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %m = arith.muli %bm, %c128 : index
  %n = arith.muli %bn, %c64 : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> tensor<128x64xf32>
  %acc = scf.for %k = %c0 to %K step %c64 iter_args(%c = %zero) -> (tensor<128x64xf32>) {
    %a = tile.load %A[%m, %k] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<128x64xbf16>
    %b = tile.load %B[%n, %k] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<64x64xbf16>
    %t = tile.transpose %b [1, 0] : tensor<64x64xbf16> -> tensor<64x64xbf16>
    %d = tile.dot %a, %t, %c : tensor<128x64xbf16>, tensor<64x64xbf16> -> tensor<128x64xf32>
    scf.yield %d : tensor<128x64xf32>
  }
  %old = tile.load %C[%m, %n] : memref<?x?xf32, strided<[?, 1]>> -> tensor<128x64xf32>
  %v = tile.load %bias[%n] : memref<?xf32, strided<[1]>> -> tensor<64xf32>
  %e = tile.expand %v axis 0 : tensor<64xf32> -> tensor<1x64xf32>
  %w = tile.broadcast %e : tensor<1x64xf32> -> tensor<128x64xf32>
  %sum = arith.addf %acc, %old : tensor<128x64xf32>
  %r = arith.addf %sum, %w : tensor<128x64xf32>
  tile.store %r, %C[%m, %n] : tensor<128x64xf32>, memref<?x?xf32, strided<[?, 1]>>
}
