// Both operands of a loop's dot are put, got and released together: one set of mbarriers, and slots side by side.
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,specialize-warps,pipeline-loops{stages=3},verify" --target sm_90a | FileCheck %s --check-prefix=BEFORE
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,specialize-warps,pipeline-loops{stages=3},join-channels,alloc-shared,verify" --target sm_90a | FileCheck %s --check-prefix=AFTER
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,specialize-warps,pipeline-loops{stages=3},join-channels{when=never},verify" --target sm_90a | FileCheck %s --check-prefix=BEFORE
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,specialize-warps,pipeline-loops{stages=3},join-channels,alloc-shared,tile-to-ptx,assign-registers" --target sm_90a | FileCheck %s --check-prefix=PTX

// BEFORE: %a_channel = async.channel depth 3 :
// BEFORE-NEXT: %b_channel = async.channel depth 3 :

// Slot 1 of %a is at 32768, that of %b at 49152; full mbarriers at 98304 to 98320, empty ones after them.
// AFTER: %a_channel = async.channel depth 3 lockstep 0 offset 0 barrier 98304 :
// AFTER-NEXT: %b_channel = async.channel depth 3 lockstep 0 offset 16384 barrier 98304 :

// One wait for both operands, one arrival for both slots; the role that loads waits once and announces 2·128·64·2 bytes.
// PTX-COUNT-6: mbarrier.init.shared::cta.b64
// PTX-NOT: mbarrier.init
// PTX: ptx.wait_parity
// PTX-NOT: ptx.wait_parity
// PTX: wgmma.commit_group
// PTX: wgmma.wait_group
// PTX: ptx.inst "mbarrier.arrive.shared::cta.b64"
// PTX-NOT: mbarrier.arrive
// PTX: wgmma.wait_group
// PTX: ptx.inst "mbarrier.arrive.shared::cta.b64"
// PTX-NOT: mbarrier.arrive
// PTX: ptx.wait_parity
// PTX-NOT: ptx.wait_parity
// PTX: ptx.if
// PTX-NEXT: mbarrier.arrive.expect_tx.shared::cta.b64
// PTX-NOT: ptx.if
// PTX: cp.async.bulk.tensor.2d
// PTX-NOT: ptx.if
// PTX: cp.async.bulk.tensor.2d
tile.kernel @gemm(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K] {align = 16}, %B: memref<?x?xbf16, strided<[?, 1]>> [N, K] {align = 16},
                  %C: memref<?x?xf32, strided<[?, 1]>> [M, N] {noalias}) dims(%K = K) grid(%bm = M ceildiv 128, %bn = N ceildiv 128) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %f0 = arith.constant 0.0 : f32
  %m = arith.muli %bm, %c128 : index
  %n = arith.muli %bn, %c128 : index
  %zero = tile.full %f0 : f32 -> tensor<128x128xf32>
  %acc = scf.for %k = %c0 to %K step %c64 iter_args(%c = %zero) -> (tensor<128x128xf32>) {
    %a = tile.load %A[%m, %k] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<128x64xbf16>
    %b = tile.load %B[%n, %k] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<128x64xbf16>
    %t = tile.transpose %b [1, 0] : tensor<128x64xbf16> -> tensor<64x128xbf16>
    %d = tile.dot %a, %t, %c : tensor<128x64xbf16>, tensor<64x128xbf16> -> tensor<128x128xf32>
    scf.yield %d : tensor<128x128xf32>
  }
  tile.store %acc, %C[%m, %n] : tensor<128x128xf32>, memref<?x?xf32, strided<[?, 1]>>
}
