// A dot of an earlier trip stays in flight: its channels have two buffers, and a trip releases what the trip before read.
// RUN: tesela-opt %s -p plan-dataflow,infer-layouts,pipeline-loops --target sm_90a | FileCheck %s

// CHECK: [[A:%.+]] = async.channel depth [[DEPTH:[2-9]]]
// CHECK: [[B:%.+]] = async.channel depth [[DEPTH]]
// CHECK: [[READY:%.+]] = async.ready %zero
// CHECK: [[NONE:%.+]] = async.token none
// CHECK: scf.for {{.*}} iter_args(%c = [[READY]], [[BEFORE:%.+]] = [[NONE]])
// CHECK: [[D:%.+]], [[READ:%.+]] = async.dot {{.*}}, %c
// CHECK-NOT: async.await
// CHECK: async.release [[A]] after [[BEFORE]]
// CHECK: async.release [[B]] after [[BEFORE]]
// CHECK: scf.yield [[D]], [[READ]]
// CHECK: async.await
// CHECK: async.release [[A]] after
// CHECK: async.release [[B]] after
// CHECK: tile.store
tile.kernel @gemm(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K] {align = 16 : i64}, %B: memref<?x?xbf16, strided<[?, 1]>> [N, K] {align = 16 : i64},
                  %C: memref<?x?xf32, strided<[?, 1]>> [M, N])
    dims(%K = K) grid(%m = M, %n = N) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
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
