// Three stages: two trips are loaded before the loop, each if it exists, and each trip loads the one after next.
// RUN: tesela-opt %s -p plan-dataflow,infer-layouts --target sm_90a | FileCheck %s --check-prefix=BEFORE
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,pipeline-loops{stages=3 dots=in-flight},verify" --target sm_90a | FileCheck %s --check-prefix=WGMMA
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,pipeline-loops{stages=3 dots=in-flight},verify" --target sm_80 | FileCheck %s --check-prefix=MMA
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,pipeline-loops{stages=1},verify" --target sm_90a | FileCheck %s --check-prefix=BEFORE
// RUN: not tesela-opt %s -p "plan-dataflow,pipeline-loops" --target sm_90a 2>&1 | FileCheck %s --check-prefix=EARLY
// RUN: not tesela-opt %s -p "plan-dataflow,infer-layouts,pipeline-loops{stages=0}" --target sm_90a 2>&1 | FileCheck %s --check-prefix=ZERO-STAGES
// EARLY: error: how the put copies is not chosen
// EARLY: hint: run infer-layouts before pipeline-loops
// ZERO-STAGES: error: stages must be at least 1, found 0

// BEFORE-DAG: %a_channel = async.channel depth 1 : !async.channel<128x64xbf16
// BEFORE-DAG: %b_channel = async.channel depth 1 : !async.channel<128x64xbf16
// BEFORE-NOT: async.put
// BEFORE: scf.for %k = %c0 to %K step %c64 iter_args(%c = %zero) -> (tensor<128x128xf32, #tv>)
// BEFORE-NEXT: async.put %a_channel, %A[%m, %k] via "tma"
// BEFORE-NEXT: async.put %b_channel, %B[%n, %k] via "tma"
// BEFORE: async.dot
// BEFORE-NEXT: async.await
// BEFORE-NEXT: async.release %a_channel after
// BEFORE-NEXT: async.release %b_channel after
// BEFORE-NEXT: scf.yield
// BEFORE-NEXT: }
// BEFORE-NEXT: tile.store

// The dot of the trip before goes on while this one's is issued; then the slots that it has read are released, and filled again.
// WGMMA: %a_channel = async.channel depth 3
// WGMMA: %b_channel = async.channel depth 3
// WGMMA: [[ONE:%[0-9a-z_]+]] = arith.cmpi slt, %c0, %K : index
// WGMMA-NEXT: scf.if [[ONE]] {
// WGMMA-NEXT:   async.put %a_channel, %A[%m, %c0] via "tma"
// WGMMA-NEXT:   async.put %b_channel, %B[%n, %c0] via "tma"
// WGMMA-NEXT: }
// WGMMA-NEXT: [[K1:%[0-9a-z_]+]] = arith.constant 64 : index
// WGMMA-NEXT: [[TWO:%[0-9a-z_]+]] = arith.cmpi slt, [[K1]], %K : index
// WGMMA-NEXT: scf.if [[TWO]] {
// WGMMA-NEXT:   async.put %a_channel, %A[%m, [[K1]]] via "tma"
// WGMMA-NEXT:   async.put %b_channel, %B[%n, [[K1]]] via "tma"
// WGMMA-NEXT: }
// WGMMA-NEXT: [[AHEAD:%[0-9a-z_]+]] = arith.constant 128 : index
// WGMMA-NEXT: [[ZERO:%[0-9a-z_]+]] = async.ready %zero : tensor<128x128xf32, #tv>
// WGMMA-NEXT: [[NOTOKEN:%[0-9a-z_]+]] = async.token none : !async.token
// WGMMA-NEXT: %acc, [[LAST:%[0-9a-z_]+]] = scf.for %k = %c0 to %K step %c64 iter_args(%c = [[ZERO]], [[PREV:%[0-9a-z_]+]] = [[NOTOKEN]]) -> (!async.pending<tensor<128x128xf32, #tv>>, !async.token)
// WGMMA-NEXT:   %a = async.get %a_channel :
// WGMMA-NEXT:   %b = async.get %b_channel :
// WGMMA-NEXT:   %t = async.transpose %b [1, 0]
// WGMMA-NEXT:   %d, [[READ:%[0-9a-z_]+]] = async.dot %a, %t, %c {{.*}}:
// WGMMA-NEXT:   async.release %a_channel after [[PREV]]
// WGMMA-NEXT:   async.release %b_channel after [[PREV]]
// WGMMA-NEXT:   [[LATER:%[0-9a-z_]+]] = arith.addi %k, [[AHEAD]] : index
// WGMMA-NEXT:   [[MORE:%[0-9a-z_]+]] = arith.cmpi slt, [[LATER]], %K : index
// WGMMA-NEXT:   scf.if [[MORE]] {
// WGMMA-NEXT:     async.put %a_channel, %A[%m, [[LATER]]] via "tma"
// WGMMA-NEXT:     async.put %b_channel, %B[%n, [[LATER]]] via "tma"
// WGMMA-NEXT:   }
// WGMMA-NEXT:   scf.yield %d, [[READ]] :
// WGMMA-NEXT: }
// WGMMA-NEXT: [[SUM:%[0-9a-z_]+]] = async.await %acc :
// WGMMA-NEXT: async.release %a_channel after [[LAST]]
// WGMMA-NEXT: async.release %b_channel after [[LAST]]
// WGMMA-NEXT: tile.store [[SUM]], %C[%m, %n]

// Without asynchronous dots: released with the next trip's gets, whose barrier serves both. Of the groups of copies, two a trip, those of one
// trip and b's own may be under way while a is waited for.
// MMA: %a_channel = async.channel depth 3
// MMA: %b_channel = async.channel depth 3
// MMA: scf.for %k = %c0 to %K step %c64 iter_args(%c = %zero, [[PREV:%[0-9a-z_]+]] = {{%.+}}) -> (tensor<128x128xf32, #tv>, !async.token)
// MMA-NEXT:   %a = async.get %a_channel later 3 :
// MMA-NEXT:   %b = async.get %b_channel later 2 :
// MMA-NEXT:   async.release %a_channel after [[PREV]]
// MMA-NEXT:   async.release %b_channel after [[PREV]]
// MMA:        scf.if
// MMA-NEXT:     async.put %a_channel, %A[%m, {{%.+}}] via "cp.async"
// MMA-NEXT:     async.put %b_channel, %B[%n, {{%.+}}] via "cp.async"
// MMA-NEXT:   }
// MMA-DAG:    async.read
// MMA:        tile.dot
// MMA-NEXT:   [[HERE:%[0-9a-z_]+]] = async.token here : !async.token
// MMA-NEXT:   scf.yield %d, [[HERE]] :
tile.kernel @gemm(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K] {align = 16}, %B: memref<?x?xbf16, strided<[?, 1]>> [N, K] {align = 16},
                  %C: memref<?x?xf32, strided<[?, 1]>> [M, N])
    dims(%K = K) grid(%bm = M ceildiv 128, %bn = N ceildiv 128) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %m = arith.muli %bm, %c128 : index
  %n = arith.muli %bn, %c128 : index
  %f0 = arith.constant 0.0 : f32
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
