// RUN: tesela-opt %s -p plan-dataflow,infer-layouts,alloc-shared,tile-to-ptx --target sm_90a | FileCheck %s
// RUN: tesela-opt %s -p plan-dataflow,infer-layouts,alloc-shared,tile-to-ptx --target sm_80 | FileCheck %s --check-prefix=MMA

// One elected thread announces the bytes of both boxes and issues them; all wait for the phase, which the loop carries; one fence before and one
// commit after four steps of K; nothing reads the accumulators between the commit and the wait; one barrier gives both slots back.

// CHECK-LABEL: ptx.kernel @gemm target sm_90a threads 256 shared 32784
// CHECK: ptx.inst "mbarrier.init.shared::cta.b64"
// CHECK: ptx.inst "mbarrier.init.shared::cta.b64"
// CHECK: ptx.inst "fence.mbarrier_init.release.cluster"
// CHECK-NEXT: ptx.inst "bar.sync"
// CHECK: ptx.for {{.*}} carried(%{{.*}} : !ptx.reg<b32 x 64>, %[[PHASE:[a-z0-9_]+]] = %{{.*}} : !ptx.reg<b32>
// CHECK: ptx.if
// CHECK: ptx.inst "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes"
// CHECK-NEXT: ptx.yield
// CHECK: ptx.if
// CHECK: ptx.inst "mbarrier.arrive.expect_tx.shared::cta.b64"
// CHECK: ptx.inst "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes"
// CHECK: ptx.wait_parity %{{.*}}, %[[PHASE]]
// CHECK: ptx.wait_parity
// CHECK-NOT: bar.sync
// CHECK: ptx.inst "wgmma.fence.sync.aligned"
// CHECK-NEXT: ptx.inst "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16"
// CHECK-SAME: {imms = [1 : i64, 1 : i64, 0 : i64, 0 : i64]}
// CHECK-NEXT: ptx.inst "wgmma.mma_async
// CHECK-NEXT: ptx.inst "wgmma.mma_async
// CHECK-NEXT: ptx.inst "wgmma.mma_async
// CHECK-NEXT: ptx.inst "wgmma.commit_group.sync.aligned"
// CHECK-NEXT: ptx.inst "wgmma.wait_group.sync.aligned" {imms = [0 : i64]}
// CHECK-NEXT: ptx.inst "bar.sync"
// CHECK-NEXT: ptx.yield
// CHECK-NOT: bar.sync

// Each thread copies 16 bytes at a time; groups are waited for in the order of the gets, then one barrier; operands are read step by step of K.

// MMA-LABEL: ptx.kernel @gemm target sm_80 threads 256 shared 32768
// MMA: ptx.for
// MMA: ptx.inst "cp.async.cg.shared.global"
// MMA: ptx.inst "cp.async.commit_group"
// MMA: ptx.inst "cp.async.cg.shared.global"
// MMA: ptx.inst "cp.async.commit_group"
// MMA: ptx.inst "cp.async.wait_group" {imms = [1 : i64]}
// MMA-NEXT: ptx.inst "cp.async.wait_group" {imms = [0 : i64]}
// MMA-NEXT: ptx.inst "bar.sync"
// MMA: ptx.inst "ldmatrix.sync.aligned.m8n8.x4.shared.b16"
// MMA: ptx.inst "ldmatrix.sync.aligned.m8n8.x4.shared.b16"
// MMA: ptx.inst "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
// MMA: ptx.inst "ldmatrix.sync.aligned.m8n8.x4.shared.b16"
// MMA-COUNT-3: ptx.inst "mma.sync
// MMA-NEXT: ptx.inst "bar.sync"
// MMA-NEXT: ptx.yield
tile.kernel @gemm(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K] {align = 16 : i64}, %B: memref<?x?xbf16, strided<[?, 1]>> [N, K] {align = 16 : i64},
                  %C: memref<?x?xf32, strided<[?, 1]>> [M, N] {noalias})
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

// A left operand stored by columns, a right one by rows: both transposed for wgmma, both .trans for ldmatrix.

// CHECK-LABEL: ptx.kernel @turned
// CHECK: ptx.inst "wgmma.mma_async
// CHECK-SAME: {imms = [1 : i64, 1 : i64, 1 : i64, 1 : i64]}
// MMA-LABEL: ptx.kernel @turned
// MMA: ptx.inst "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"
// MMA: ptx.inst "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"
tile.kernel @turned(%A: memref<?x?xf16, strided<[?, 1]>> [K, M], %B: memref<?x?xf16, strided<[?, 1]>> [K, N],
                    %C: memref<?x?xf32, strided<[?, 1]>> [M, N]) grid(%g = 1) {
  %c0 = arith.constant 0 : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> tensor<64x64xf32>
  %a = tile.load %A[%c0, %c0] : memref<?x?xf16, strided<[?, 1]>> -> tensor<32x64xf16>
  %t = tile.transpose %a [1, 0] : tensor<32x64xf16> -> tensor<64x32xf16>
  %b = tile.load %B[%c0, %c0] : memref<?x?xf16, strided<[?, 1]>> -> tensor<32x64xf16>
  %d = tile.dot %t, %b, %zero : tensor<64x32xf16>, tensor<32x64xf16> -> tensor<64x64xf32>
  tile.store %d, %C[%c0, %c0] : tensor<64x64xf32>, memref<?x?xf32, strided<[?, 1]>>
}
