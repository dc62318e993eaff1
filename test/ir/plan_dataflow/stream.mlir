// A tile that a loop loads beside a dot, for other purposes, comes through a channel too; or by an ordinary load.
// RUN: tesela-opt %s -p "plan-dataflow,verify" --target sm_90a | FileCheck %s --check-prefix=STREAM
// RUN: tesela-opt %s -p "plan-dataflow{stream=false},verify" --target sm_90a | FileCheck %s --check-prefix=LOAD

// STREAM: scf.for
// STREAM-NOT: tile.load %X
// STREAM: async.put %{{[a-z0-9_]+}}, %X[%m, %k]

// LOAD: scf.for
// LOAD-NOT: async.put %{{[a-z0-9_]+}}, %X
// LOAD: tile.load %X[%m, %k]
tile.kernel @biased(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K] {align = 16}, %B: memref<?x?xbf16, strided<[?, 1]>> [K, N] {align = 16},
                    %X: memref<?x?xbf16, strided<[?, 1]>> [M, K] {align = 16}, %C: memref<?x?xf32, strided<[?, 1]>> [M, N])
    dims(%K = K) grid(%bm = M ceildiv 128, %bn = N ceildiv 128) {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %f0 = arith.constant 0.0 : f32
  %m = arith.muli %bm, %c128 : index
  %n = arith.muli %bn, %c128 : index
  %zero = tile.full %f0 : f32 -> tensor<128x128xf32>
  %acc, %rest = scf.for %k = %c0 to %K step %c128 iter_args(%c = %zero, %e = %zero) -> (tensor<128x128xf32>, tensor<128x128xf32>) {
    %a = tile.load %A[%m, %k] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<128x128xbf16>
    %b = tile.load %B[%k, %n] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<128x128xbf16>
    %x = tile.load %X[%m, %k] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<128x128xbf16>
    %d = tile.dot %a, %b, %c : tensor<128x128xbf16>, tensor<128x128xbf16> -> tensor<128x128xf32>
    %w = tile.cast %x : tensor<128x128xbf16> -> tensor<128x128xf32>
    %f = arith.addf %e, %w : tensor<128x128xf32>
    scf.yield %d, %f : tensor<128x128xf32>, tensor<128x128xf32>
  }
  %r = arith.addf %acc, %rest : tensor<128x128xf32>
  tile.store %r, %C[%m, %n] : tensor<128x128xf32>, memref<?x?xf32, strided<[?, 1]>>
}
