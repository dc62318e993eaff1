// What is added to a product's result is read into registers, by each warpgroup its own 64 rows: it has mbarriers for each, in every slot.
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,specialize-warps,pipeline-loops,split-slots,verify" --target sm_90a | FileCheck %s --check-prefix=SPLIT
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,specialize-warps,pipeline-loops,split-slots{when=never},verify" --target sm_90a | FileCheck %s --check-prefix=WHOLE
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,specialize-warps,pipeline-loops,split-slots,alloc-shared,tile-to-ptx,assign-registers" --target sm_90a | FileCheck %s --check-prefix=PTX
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,specialize-warps,pipeline-loops,split-slots,alloc-shared,tile-to-ptx{walkers=4},assign-registers" --target sm_90a | FileCheck %s --check-prefix=WARPS
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,specialize-warps,pipeline-loops,split-slots,alloc-shared,tile-to-ptx{walkers=1},assign-registers" --target sm_90a | FileCheck %s --check-prefix=ONE

// Which warp of the producer fills a channel is asked for each of three channels, unless one fills all.
// WARPS: setmaxnreg.dec
// WARPS-COUNT-3: setp.eq.s32
// ONE: setmaxnreg.dec
// ONE-NOT: setp.eq.s32

// SPLIT: %a_channel = async.channel depth 1 parts 2 :
// SPLIT-NEXT: %b_channel = async.channel depth 2 :
// SPLIT-NEXT: %x_channel = async.channel depth 2 parts 2 :
// WHOLE: %a_channel = async.channel depth 1 :
// WHOLE-NEXT: %b_channel = async.channel depth 2 :
// WHOLE-NEXT: %x_channel = async.channel depth 2 :

// Two mbarriers for each part of a slot: on the empty one of a part arrive the four warps of one warpgroup, on that of %b a thread of each of two.
// PTX-COUNT-16: mbarrier.init.shared::cta.b64
// PTX-NOT: mbarrier.init
// PTX: setmaxnreg.dec
// The producer has a warp for each channel. That of %a, and that of %x, wait for one part, announce it and copy it, then do so for the other; %b's does so once for all.
// PTX: ptx.wait_parity
// PTX-NEXT: ptx.if
// PTX-NEXT: mbarrier.arrive.expect_tx.shared::cta.b64
// PTX-COUNT-2: cp.async.bulk.tensor.2d
// PTX-NOT: cp.async
// PTX: ptx.wait_parity
// PTX-NEXT: ptx.if
// PTX-NEXT: mbarrier.arrive.expect_tx.shared::cta.b64
// PTX-COUNT-2: cp.async.bulk.tensor.2d
// PTX-NOT: cp.async
// PTX: ptx.wait_parity
// PTX-NEXT: ptx.if
// PTX-NEXT: mbarrier.arrive.expect_tx.shared::cta.b64
// PTX-COUNT-2: cp.async.bulk.tensor.2d
// PTX-NOT: cp.async
// PTX: ptx.wait_parity
// PTX-NEXT: ptx.if
// PTX-NEXT: mbarrier.arrive.expect_tx.shared::cta.b64
// PTX-COUNT-4: cp.async.bulk.tensor.2d
// PTX-NOT: cp.async
// PTX: ptx.wait_parity
// PTX-NEXT: ptx.if
// PTX-NEXT: mbarrier.arrive.expect_tx.shared::cta.b64
// PTX-COUNT-4: cp.async.bulk.tensor.2d
// PTX-NOT: cp.async
tile.kernel @bias(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K] {align = 16}, %B: memref<?x?xbf16, strided<[?, 1]>> [K, N] {align = 16},
                  %X: memref<?x?xf32, strided<[?, 1]>> [M, N] {align = 16}, %S: memref<?xf32> [M] {noalias})
    dims(%N = N) grid(%bm = M ceildiv 128) {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %f0 = arith.constant 0.0 : f32
  %m = arith.muli %bm, %c128 : index
  %zero = tile.full %f0 : f32 -> tensor<128x128xf32>
  %none = tile.full %f0 : f32 -> tensor<128xf32>
  %a = tile.load %A[%m, %c0] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<128x128xbf16>
  %sum = scf.for %n = %c0 to %N step %c128 iter_args(%s = %none) -> (tensor<128xf32>) {
    %b = tile.load %B[%c0, %n] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<128x128xbf16>
    %d = tile.dot %a, %b, %zero : tensor<128x128xbf16>, tensor<128x128xbf16> -> tensor<128x128xf32>
    %x = tile.load %X[%m, %n] : memref<?x?xf32, strided<[?, 1]>> -> tensor<128x128xf32>
    %y = arith.addf %d, %x : tensor<128x128xf32>
    %r = tile.reduce sum %y axis 1 : tensor<128x128xf32> -> tensor<128xf32>
    %t = arith.addf %s, %r : tensor<128xf32>
    scf.yield %t : tensor<128xf32>
  }
  tile.store %sum, %S[%m] : tensor<128xf32>, memref<?xf32>
}
