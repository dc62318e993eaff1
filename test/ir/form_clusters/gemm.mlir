// Blocks of one column of the grid load the same tiles of B: pairs of them load half each. A's tiles are only half as large, so pairs of a row save less.
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,verify" --target sm_90a | FileCheck %s --check-prefix=BEFORE
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,form-clusters,verify" --target sm_90a | FileCheck %s --check-prefix=PAIRS
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,form-clusters{cluster=4},verify" --target sm_90a | FileCheck %s --check-prefix=QUAD
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,form-clusters{cluster=1},verify" --target sm_90a | FileCheck %s --check-prefix=BEFORE
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,form-clusters,persist-grid,verify" --target sm_90a | FileCheck %s --check-prefix=WALK
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,form-clusters,persist-grid,specialize-warps,pipeline-loops,join-channels,alloc-shared,tile-to-ptx,assign-registers" --target sm_90a | FileCheck %s --check-prefix=PTX

// BEFORE-NOT: cluster_shape
// BEFORE: async.put %a_channel, %A[%m, %k] via "tma" :
// BEFORE-NEXT: async.put %b_channel, %B[%n, %k] via "tma" :

// PAIRS: cluster_shape = array<i64: 2, 1>
// PAIRS: async.put %a_channel, %A[%m, %k] via "tma" :
// PAIRS-NEXT: async.put %b_channel, %B[%n, %k] via "tma" multicast 2 :

// QUAD: cluster_shape = array<i64: 4, 1>
// QUAD: multicast 4

// A cluster walks over pairs of rows; a block's row is twice the pair's and its place in the cluster. What is outside of the grid is not stored.
// WALK: [[ROWS:%[0-9a-z_]+]] = tile.grid_extent 0
// WALK: [[BLOCK:%[0-9a-z_]+]] = tile.block_index
// WALK: [[PLACE:%[0-9a-z_]+]] = arith.remsi [[BLOCK]], {{%[0-9a-z_]+}} : index
// WALK: [[FIRST:%[0-9a-z_]+]] = arith.floordivsi [[BLOCK]], {{%[0-9a-z_]+}} : index
// WALK: scf.for %point = [[FIRST]] to
// WALK: {{%[0-9a-z_]+}} = arith.constant 2 : index
// WALK-NEXT: [[TWICE:%[0-9a-z_]+]] = arith.muli
// WALK-NEXT: [[BM:%[0-9a-z_]+]] = arith.addi [[TWICE]], [[PLACE]] : index
// WALK-NEXT: [[INSIDE:%[0-9a-z_]+]] = arith.cmpi slt, [[BM]], [[ROWS]] : index
// WALK: arith.muli [[BM]], %c128
// WALK: scf.if [[INSIDE]] {
// WALK-NEXT: tile.store
// WALK-NEXT: }

// Two warpgroups of either block give a slot back; each tells both blocks, from two lanes. Half of B, 128 rows, goes to both (mask 3).
// PTX: \22cluster\22:[2,1,1],\22cluster_axis\22:0
// PTX: [[ARRIVALS:%[0-9]+]] = ptx.constant 4 : !ptx.reg<b32>
// PTX: mbarrier.init.shared::cta.b64" {{%[0-9]+}}, [[ARRIVALS]] if {{.*}}offsets = array<i64: 32>
// PTX: barrier.cluster.arrive.relaxed.aligned
// PTX-NEXT: ptx.inst "barrier.cluster.wait.aligned"
// PTX: mapa.shared::cluster.u32
// PTX: wgmma.wait_group
// PTX: mbarrier.arrive.shared::cluster.b64
// PTX: ptx.special "%cluster_ctarank"
// PTX: mbarrier.arrive.expect_tx.shared::cta.b64
// PTX: cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes
// PTX: cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
// PTX: "barrier.cluster.arrive"
// PTX-NEXT: "barrier.cluster.wait"

tile.kernel @gemm(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K] {align = 16}, %B: memref<?x?xbf16, strided<[?, 1]>> [N, K] {align = 16},
                  %C: memref<?x?xf32, strided<[?, 1]>> [M, N] {noalias}) dims(%K = K) grid(%bm = M ceildiv 128, %bn = N ceildiv 256) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %c256 = arith.constant 256 : index
  %f0 = arith.constant 0.0 : f32
  %m = arith.muli %bm, %c128 : index
  %n = arith.muli %bn, %c256 : index
  %zero = tile.full %f0 : f32 -> tensor<128x256xf32>
  %acc = scf.for %k = %c0 to %K step %c64 iter_args(%c = %zero) -> (tensor<128x256xf32>) {
    %a = tile.load %A[%m, %k] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<128x64xbf16>
    %b = tile.load %B[%n, %k] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<256x64xbf16>
    %t = tile.transpose %b [1, 0] : tensor<256x64xbf16> -> tensor<64x256xbf16>
    %d = tile.dot %a, %t, %c : tensor<128x64xbf16>, tensor<64x256xbf16> -> tensor<128x256xf32>
    scf.yield %d : tensor<128x256xf32>
  }
  tile.store %acc, %C[%m, %n] : tensor<128x256xf32>, memref<?x?xf32, strided<[?, 1]>>
}
