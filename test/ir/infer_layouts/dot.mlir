// RUN: tesela-opt %s -p plan-dataflow,infer-layouts --target sm_90a | FileCheck %s
// RUN: tesela-opt %s -p plan-dataflow,infer-layouts --target sm_80 | FileCheck %s --check-prefix=MMA

// The accumulator's layout is that of wgmma (m64nNk16, two warpgroups down the rows), and a bias that is broadcast over it
// is loaded as its columns need it.

// CHECK-DAG: #[[ACC:[a-z0-9_]+]] = #layout.tv<thread [4:(0,2), 8:(1,0), 8:(16,0)], value [2:(0,1), 2:(8,0), 8:(0,8)]>
// CHECK-DAG: #[[BIAS:[a-z0-9_]+]] = #layout.tv<thread [4:(2), 64:(0)], value [2:(1), 8:(8)]>
// CHECK: async.put {{.*}} via "tma"
// CHECK: async.dot {{.*}}, tensor<128x64xf32, #[[ACC]]>
// CHECK: tile.load {{.*}} -> tensor<64xf32, #[[BIAS]]>
// CHECK-NOT: layout.convert
// CHECK: tile.store

// MMA: async.put {{.*}} via "cp.async"
// MMA: %[[A:.*]] = async.read
// MMA: %[[B:.*]] = async.read
// MMA: tile.dot %[[A]], %[[B]],
// MMA-NOT: layout.convert
// MMA: tile.store
tile.kernel @gemm_bias(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K] {align = 16}, %B: memref<?x?xbf16, strided<[?, 1]>> [K, N] {align = 16},
                       %bias: memref<?xf32, strided<[1]>> [N] {align = 16}, %C: memref<?x?xf32, strided<[?, 1]>> [M, N] {noalias})
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
    %b = tile.load %B[%k, %n] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<64x64xbf16>
    %d = tile.dot %a, %b, %c : tensor<128x64xbf16>, tensor<64x64xbf16> -> tensor<128x64xf32>
    scf.yield %d : tensor<128x64xf32>
  }
  %v = tile.load %bias[%n] : memref<?xf32, strided<[1]>> -> tensor<64xf32>
  %e = tile.expand %v axis 0 : tensor<64xf32> -> tensor<1x64xf32>
  %w = tile.broadcast %e : tensor<1x64xf32> -> tensor<128x64xf32>
  %r = arith.addf %acc, %w : tensor<128x64xf32>
  tile.store %r, %C[%m, %n] : tensor<128x64xf32>, memref<?x?xf32, strided<[?, 1]>>
}
