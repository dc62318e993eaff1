// Where blocks cannot share a load, none are paired; a note says why, if it was asked for.
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,form-clusters,verify" --target sm_90a | FileCheck %s --check-prefix=NONE
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,form-clusters{cluster=2},verify" --target sm_90a 2>&1 | FileCheck %s --check-prefix=SAYS
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,form-clusters{cluster=2},verify" --target sm_80 2>&1 | FileCheck %s --check-prefix=AMPERE
// RUN: not tesela-opt %s -p "plan-dataflow,infer-layouts,form-clusters{cluster=3},verify" --target sm_90a 2>&1 | FileCheck %s --check-prefix=THREE
// NONE-NOT: cluster_shape
// NONE-NOT: multicast

// How many keys a block sees depends on its row and on its column: two blocks would need different numbers of them.
// SAYS: refused.mlir:13:1: note: no clusters of 2 blocks are formed: the tile of %A is another one at each point along axis 0; how often the tile of %B is loaded depends on the point along axis 0; how often the tile of %A is loaded depends on the point along axis 1; the tile of %B is another one at each point along axis 1
// AMPERE: note: no clusters of 2 blocks are formed: sm_80 has none
// THREE: error: a cluster has 1, 2, 4 or 8 blocks, found 3
tile.kernel @triangle(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K] {align = 16}, %B: memref<?x?xbf16, strided<[?, 1]>> [N, K] {align = 16},
                      %C: memref<?x?xf32, strided<[?, 1]>> [M, N] {noalias}) dims(%K = K) grid(%bm = M ceildiv 128, %bn = N ceildiv 128) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %f0 = arith.constant 0.0 : f32
  %m = arith.muli %bm, %c128 : index
  %n = arith.muli %bn, %c128 : index
  %both = arith.addi %m, %n : index
  %end = arith.minsi %both, %K : index
  %zero = tile.full %f0 : f32 -> tensor<128x128xf32>
  %acc = scf.for %k = %c0 to %end step %c64 iter_args(%c = %zero) -> (tensor<128x128xf32>) {
    %a = tile.load %A[%m, %k] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<128x64xbf16>
    %b = tile.load %B[%n, %k] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<128x64xbf16>
    %t = tile.transpose %b [1, 0] : tensor<128x64xbf16> -> tensor<64x128xbf16>
    %d = tile.dot %a, %t, %c : tensor<128x64xbf16>, tensor<64x128xbf16> -> tensor<128x128xf32>
    scf.yield %d : tensor<128x128xf32>
  }
  tile.store %acc, %C[%m, %n] : tensor<128x128xf32>, memref<?x?xf32, strided<[?, 1]>>
}
