// The puts go to a role of their own, with the loops and the scalars that they need; all else stays together, then is scheduled.
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,specialize-warps,verify" --target sm_90a | FileCheck %s --check-prefix=SPLIT
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,specialize-warps,pipeline-loops{stages=3},alloc-shared,verify" --target sm_90a | FileCheck %s --check-prefix=SCHEDULED
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,specialize-warps{when=never},verify" --target sm_90a | FileCheck %s --check-prefix=WHOLE
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,specialize-warps{when=always},verify" --target sm_80 | FileCheck %s --check-prefix=WHOLE
// WHOLE-NOT: async.roles

// SPLIT: %a_channel = async.channel depth 1
// SPLIT: %b_channel = async.channel depth 1
// SPLIT-NEXT: async.roles consumer(warps = 8, registers = 240) {
// SPLIT-NOT: async.put
// SPLIT: scf.for %k = %c0 to %K step %c64 iter_args(%c = %zero) -> (tensor<128x128xf32, #tv>)
// SPLIT-NEXT: async.get %a_channel
// SPLIT-NEXT: async.get %b_channel
// SPLIT: async.dot
// SPLIT-NEXT: async.await
// SPLIT-NEXT: async.release %a_channel after
// SPLIT-NEXT: async.release %b_channel after
// SPLIT: tile.store
// SPLIT-NEXT: }, producer(warps = 4, registers = 24) {
// SPLIT-NOT: tile.full
// SPLIT: [[M:%[0-9a-z_]+]] = arith.muli %bm
// SPLIT: [[N:%[0-9a-z_]+]] = arith.muli %bn
// SPLIT: scf.for [[K:%[0-9a-z_]+]] = {{%[0-9a-z_]+}} to %K step {{%[0-9a-z_]+}} {
// SPLIT-NEXT: async.put %a_channel, %A{{\[}}[[M]], [[K]]] via "tma"
// SPLIT-NEXT: async.put %b_channel, %B{{\[}}[[N]], [[K]]] via "tma"
// SPLIT-NEXT: }
// SPLIT-NEXT: }
// SPLIT-NEXT: tile.return

// Three slots, each with an mbarrier for either direction; the put stays where it is, and the release comes a trip later.
// SCHEDULED: %a_channel = async.channel depth 3 offset 0 barrier 98304
// SCHEDULED: %b_channel = async.channel depth 3 offset 49152 barrier 98352
// SCHEDULED: scf.for {{.*}} -> (!async.pending<tensor<128x128xf32, #tv>>, !async.token)
// SCHEDULED: async.dot
// SCHEDULED-NEXT: async.release %a_channel after
// SCHEDULED-NEXT: async.release %b_channel after
// SCHEDULED-NEXT: scf.yield
// SCHEDULED: producer
// SCHEDULED-NOT: scf.if
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
