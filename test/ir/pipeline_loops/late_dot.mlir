// The second dot takes what the first one's result became: it comes a trip late, beside the next trip's first dot, and each hides behind the other's work.
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,pipeline-loops{stages=2},verify" --target sm_90a | FileCheck %s
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,pipeline-loops{stages=2},alloc-shared,tile-to-ptx" --target sm_90a | FileCheck %s --check-prefix=PTX

// Before the loop: the first trip, if there is one, without the late dot. Its slot of V stays got for nobody yet.
// CHECK-LABEL: tile.kernel @chained
// CHECK: [[O:%[0-9a-z_]+]] = scf.if {{%.+}} -> (tensor<64x64xf32, #tv>) {
// CHECK: async.get %k_channel
// CHECK: [[S0:%[0-9a-z_]+]], [[R0:%[0-9a-z_]+]] = async.dot %q
// CHECK-NEXT: async.await [[S0]]
// CHECK-NEXT: async.release %k_channel after [[R0]]
// CHECK: [[P0:%[0-9a-z_]+]] = tile.cast
// CHECK: [[ACC0:%[0-9a-z_]+]] = arith.mulf %zero,
// CHECK-NOT: async.get %v_channel
// CHECK: async.put %v_channel

// The loop: both dots are issued, then the first is waited for; the second until everything else is done. Only then is its slot free, its accumulator
// scaled, and its left operand written again.
// CHECK: [[START:%[0-9a-z_]+]] = arith.addi %c0, %c64 : index
// CHECK: [[R:%[0-9a-z_]+]], [[PLAST:%[0-9a-z_]+]] = scf.for %n = [[START]] to %N step %c64 iter_args([[ACC:%[0-9a-z_]+]] = [[ACC0]], [[P:%[0-9a-z_]+]] = [[P0]])
// CHECK: async.put %k_channel
// CHECK: async.get %k_channel
// CHECK: [[S:%[0-9a-z_]+]], [[SREAD:%[0-9a-z_]+]] = async.dot %q
// CHECK-NEXT: [[V:%[0-9a-z_]+]] = async.get %v_channel
// CHECK-NEXT: [[W:%[0-9a-z_]+]], [[WREAD:%[0-9a-z_]+]] = async.dot [[P]], [[V]], [[ACC]] {{.*}}:
// CHECK-NEXT: async.await [[S]]
// CHECK-NEXT: async.release %k_channel after [[SREAD]]
// CHECK: math.exp
// CHECK: [[DONE:%[0-9a-z_]+]] = async.await [[W]]
// CHECK-NEXT: async.release %v_channel after [[WREAD]]
// CHECK: async.put %v_channel
// CHECK: [[NEXT:%[0-9a-z_]+]] = arith.mulf [[DONE]],
// CHECK-NEXT: [[PNEXT:%[0-9a-z_]+]] = tile.cast
// CHECK-NEXT: scf.yield [[NEXT]], [[PNEXT]]
// CHECK-NEXT: }

// After it: the last late dot. With no trips, what the loop began with.
// CHECK-NEXT: [[VLAST:%[0-9a-z_]+]] = async.get %v_channel
// CHECK-NEXT: [[X:%[0-9a-z_]+]], [[XREAD:%[0-9a-z_]+]] = async.dot [[PLAST]], [[VLAST]], [[R]] {{.*}}:
// CHECK-NEXT: [[Y:%[0-9a-z_]+]] = async.await [[X]]
// CHECK-NEXT: async.release %v_channel after [[XREAD]]
// CHECK-NEXT: scf.yield [[Y]]
// CHECK-NEXT: } else {
// CHECK-NEXT: scf.yield %zero

// PTX-LABEL: ptx.kernel @chained
// PTX: wgmma.wait_group.sync.aligned" {imms = [0 : i64]}
// PTX: ptx.for
// PTX: wgmma.wait_group.sync.aligned" {imms = [1 : i64]}
// PTX: ex2.approx
// PTX: wgmma.wait_group.sync.aligned" {imms = [0 : i64]}
// PTX: ptx.yield
// PTX: wgmma.wait_group.sync.aligned" {imms = [0 : i64]}
tile.kernel @chained(%Q: memref<?x?xbf16, strided<[?, 1]>> [M, D] {align = 16}, %K: memref<?x?xbf16, strided<[?, 1]>> [N, D] {align = 16},
                     %V: memref<?x?xbf16, strided<[?, 1]>> [N, D] {align = 16}, %O: memref<?x?xf32, strided<[?, 1]>> [M, D])
    dims(%N = N) grid(%g = 1) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %f0 = arith.constant 0.0 : f32
  %half = arith.constant 0.5 : f32
  %h = tile.full %half : f32 -> tensor<64x64xf32>
  %q = tile.load %Q[%c0, %c0] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<64x64xbf16>
  %zero = tile.full %f0 : f32 -> tensor<64x64xf32>
  %none = tile.full %f0 : f32 -> tensor<64x64xf32>
  %acc = scf.for %n = %c0 to %N step %c64 iter_args(%o = %zero) -> (tensor<64x64xf32>) {
    %k = tile.load %K[%n, %c0] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<64x64xbf16>
    %v = tile.load %V[%n, %c0] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<64x64xbf16>
    %kt = tile.transpose %k [1, 0] : tensor<64x64xbf16> -> tensor<64x64xbf16>
    %s = tile.dot %q, %kt, %none : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
    %e = math.exp %s : tensor<64x64xf32>
    %p = tile.cast %e : tensor<64x64xf32> -> tensor<64x64xbf16>
    %scaled = arith.mulf %o, %h : tensor<64x64xf32>
    %w = tile.dot %p, %v, %scaled : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
    scf.yield %w : tensor<64x64xf32>
  }
  tile.store %acc, %O[%c0, %c0] : tensor<64x64xf32>, memref<?x?xf32, strided<[?, 1]>>
}
