// RUN: tesela-opt %s -p plan-dataflow,infer-layouts --target sm_90a | FileCheck %s
// RUN: tesela-opt %s -p plan-dataflow,infer-layouts --target sm_80 | FileCheck %s --check-prefix=MMA
// RUN: tesela-opt %s -p 'plan-dataflow,infer-layouts,pipeline-loops,alloc-shared,tile-to-ptx' --target sm_90a | FileCheck %s --check-prefix=PTX

// Eight rows of a result of 128 columns are the instruction's columns, and its rows are columns of the result: the transposed dot multiplies no padding, and
// its accumulators are m64n8's with rows and columns exchanged.

// CHECK-DAG: #[[ACC:[a-z0-9_]+]] = #layout.tv<thread [4:(2,0), 8:(0,1), 4:(0,16)], value [2:(1,0), 2:(0,8), 2:(0,64)]>
// CHECK: %[[A:.*]] = async.get {{.*}} !async.buffer<8x64xbf16,
// CHECK: %[[B:.*]] = async.get {{.*}} !async.buffer<128x64xbf16,
// CHECK: %[[BT:.*]] = async.transpose %[[B]] [1, 0]
// CHECK: async.dot %[[A]], %[[BT]], {{.*}} {instruction = "wgmma m64n8k16 1x1 shared transposed"} : {{.*}}, tensor<8x128xf32, #[[ACC]]>
// CHECK-NOT: layout.convert

// With mma.sync each warp has 32 of the columns, by two tiles of 16.
// MMA-DAG: #[[ACC:[a-z0-9_]+]] = #layout.tv<thread [4:(2,0), 8:(0,1), 4:(0,32)], value [2:(1,0), 4:(0,8)]>
// MMA: tile.dot {{.*}} {instruction = "mma m16n8k16 4x1 registers transposed"} : {{.*}} -> tensor<8x128xf32, #[[ACC]]>

// Two slabs of 64 columns, each with the four steps of K; both operands have K contiguous.
// PTX-COUNT-8: wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16
tile.kernel @few_rows(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K] {align = 16}, %B: memref<?x?xbf16, strided<[?, 1]>> [N, K] {align = 16},
                      %C: memref<?x?xf32, strided<[?, 1]>> [M, N] {noalias})
    dims(%K = K divisible 8) where(N divisible 8) grid(%bm = M ceildiv 8, %bn = N ceildiv 128) {
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %m = arith.muli %bm, %c8 : index
  %n = arith.muli %bn, %c128 : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> tensor<8x128xf32>
  %acc = scf.for %k = %c0 to %K step %c64 iter_args(%c = %zero) -> (tensor<8x128xf32>) {
    %a = tile.load %A[%m, %k] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<8x64xbf16>
    %b = tile.load %B[%n, %k] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<128x64xbf16>
    %t = tile.transpose %b [1, 0] : tensor<128x64xbf16> -> tensor<64x128xbf16>
    %d = tile.dot %a, %t, %c : tensor<8x64xbf16>, tensor<64x128xbf16> -> tensor<8x128xf32>
    scf.yield %d : tensor<8x128xf32>
  }
  tile.store %acc, %C[%m, %n] : tensor<8x128xf32>, memref<?x?xf32, strided<[?, 1]>>
}
