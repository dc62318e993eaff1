// Two products of one left operand, whose right ones lie side by side: one wgmma over the columns of both, and one group.
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,specialize-warps,pipeline-loops{stages=3},join-channels,alloc-shared,join-dots,verify" --target sm_90a | FileCheck %s --check-prefix=JOINED
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,specialize-warps,pipeline-loops{stages=3},join-channels,alloc-shared,join-dots{when=never},verify" --target sm_90a | FileCheck %s --check-prefix=APART
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,specialize-warps,pipeline-loops{stages=3},join-channels,alloc-shared,join-dots,tile-to-ptx,assign-registers" --target sm_90a | FileCheck %s --check-prefix=PTX
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,specialize-warps,pipeline-loops{stages=3},alloc-shared,join-dots,verify" --target sm_90a | FileCheck %s --check-prefix=APART

// JOINED: async.dot {{.*}}with_next
// JOINED: async.dot
// JOINED-NOT: with_next
// APART-NOT: with_next

// Four steps of 16 along K; the accumulators stay where they are.
// PTX: wgmma.fence
// PTX-COUNT-4: wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16
// PTX-NEXT: ptx.pick
// PTX-NEXT: ptx.pick
// PTX-NEXT: wgmma.commit_group
// PTX: wgmma.wait_group.sync.aligned" {imms = [1
// PTX-NOT: ptx.move
// PTX-NOT: wgmma.mma_async
tile.kernel @gate(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K] {align = 16}, %B: memref<?x?xbf16, strided<[?, 1]>> [N, K] {align = 16},
                  %G: memref<?x?xbf16, strided<[?, 1]>> [N, K] {align = 16}, %C: memref<?x?xf32, strided<[?, 1]>> [M, N] {noalias})
    dims(%K = K) grid(%bm = M ceildiv 128, %bn = N ceildiv 64) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %f0 = arith.constant 0.0 : f32
  %m = arith.muli %bm, %c128 : index
  %n = arith.muli %bn, %c64 : index
  %zero = tile.full %f0 : f32 -> tensor<128x64xf32>
  %p, %q = scf.for %k = %c0 to %K step %c64 iter_args(%c = %zero, %d = %zero) -> (tensor<128x64xf32>, tensor<128x64xf32>) {
    %a = tile.load %A[%m, %k] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<128x64xbf16>
    %b = tile.load %B[%n, %k] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<64x64xbf16>
    %bt = tile.transpose %b [1, 0] : tensor<64x64xbf16> -> tensor<64x64xbf16>
    %x = tile.dot %a, %bt, %c : tensor<128x64xbf16>, tensor<64x64xbf16> -> tensor<128x64xf32>
    %g = tile.load %G[%n, %k] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<64x64xbf16>
    %gt = tile.transpose %g [1, 0] : tensor<64x64xbf16> -> tensor<64x64xbf16>
    %y = tile.dot %a, %gt, %d : tensor<128x64xbf16>, tensor<64x64xbf16> -> tensor<128x64xf32>
    scf.yield %x, %y : tensor<128x64xf32>, tensor<128x64xf32>
  }
  %z = arith.mulf %p, %q : tensor<128x64xf32>
  tile.store %z, %C[%m, %n] : tensor<128x64xf32>, memref<?x?xf32, strided<[?, 1]>>
}
