// A tile that an author has read from a slot is multiplied where it lies, as long as the slot has not been given back; transposed, too.
// RUN: tesela-opt %s -p plan-dataflow --target sm_90a | FileCheck %s
// RUN: tesela-opt %s -p plan-dataflow --target sm_80 | FileCheck %s --check-prefix=MMA

// CHECK-LABEL: tile.kernel @held
// CHECK: [[B:%.*]] = async.get
// CHECK-NOT: async.read
// CHECK: [[T:%.*]] = async.transpose [[B]] [1, 0]
// CHECK: async.dot [[B]], [[T]]
// CHECK-NOT: async.write
// MMA-LABEL: tile.kernel @held
// MMA: [[L:%.*]] = async.read
// MMA: [[T:%.*]] = async.transpose
// MMA: [[R:%.*]] = async.read [[T]]
// MMA: tile.dot [[L]], [[R]]
tile.kernel @held(%x: memref<?x?xf16, strided<[?, 1]>> [M, N], %y: memref<?x?xf32, strided<[?, 1]>> [M, N]) grid(%i = M) {
  %c0 = arith.constant 0 : index
  %f = arith.constant 0.0 : f32
  %acc = tile.full %f : f32 -> tensor<64x64xf32>
  %ch = async.channel depth 2 {stated} : !async.channel<64x64xf16>
  async.put %ch, %x[%c0, %c0] : !async.channel<64x64xf16>, memref<?x?xf16, strided<[?, 1]>>
  %slot = async.get %ch : !async.channel<64x64xf16> -> !async.buffer<64x64xf16>
  %a = async.read %slot : !async.buffer<64x64xf16> -> tensor<64x64xf16>
  %t = tile.transpose %a [1, 0] : tensor<64x64xf16> -> tensor<64x64xf16>
  %d = tile.dot %a, %t, %acc : tensor<64x64xf16>, tensor<64x64xf16> -> tensor<64x64xf32>
  async.release %ch : !async.channel<64x64xf16>
  tile.store %d, %y[%c0, %c0] : tensor<64x64xf32>, memref<?x?xf32, strided<[?, 1]>>
}

// Given back before the dot: the tile has come into registers, and what wgmma takes from shared memory only goes there again.
// CHECK-LABEL: tile.kernel @given_back
// CHECK: async.read
// CHECK: async.release
// CHECK: async.write
// CHECK: async.dot
tile.kernel @given_back(%x: memref<?x?xf16, strided<[?, 1]>> [M, N], %y: memref<?x?xf32, strided<[?, 1]>> [M, N]) grid(%i = M) {
  %c0 = arith.constant 0 : index
  %f = arith.constant 0.0 : f32
  %acc = tile.full %f : f32 -> tensor<64x64xf32>
  %ch = async.channel depth 2 {stated} : !async.channel<64x64xf16>
  async.put %ch, %x[%c0, %c0] : !async.channel<64x64xf16>, memref<?x?xf16, strided<[?, 1]>>
  %slot = async.get %ch : !async.channel<64x64xf16> -> !async.buffer<64x64xf16>
  %a = async.read %slot : !async.buffer<64x64xf16> -> tensor<64x64xf16>
  async.release %ch : !async.channel<64x64xf16>
  %d = tile.dot %a, %a, %acc : tensor<64x64xf16>, tensor<64x64xf16> -> tensor<64x64xf32>
  tile.store %d, %y[%c0, %c0] : tensor<64x64xf32>, memref<?x?xf32, strided<[?, 1]>>
}
