// How operands that are no plain loads come to a dot.
// RUN: tesela-opt %s -p plan-dataflow --target sm_90a | FileCheck %s
// RUN: tesela-opt %s -p "plan-dataflow{hold=false}" --target sm_90a | FileCheck %s --check-prefix=BUFFER

// Loaded before the loop and used inside: read into registers before the loop, and the buffer is free. Not held: one put, one get, a release after
// the loop. The second dot's left operand stays in registers, the right one is computed and written.

// BUFFER-LABEL: tile.kernel @outside
// BUFFER: async.put %[[CQ:q_channel]], %Q
// BUFFER: %[[Q:.*]] = async.get %[[CQ]]
// BUFFER-NEXT: scf.for
// BUFFER: async.dot %[[Q]],
// BUFFER: scf.yield
// BUFFER: async.release %[[CQ]] : !async
// BUFFER-NEXT: tile.store

// CHECK-LABEL: tile.kernel @outside
// CHECK: async.put %[[CQ:q_channel]], %Q
// CHECK: %[[BQ:.*]] = async.get %[[CQ]]
// CHECK-NEXT: %[[Q:.*]] = async.read %[[BQ]]
// CHECK-NEXT: async.release %[[CQ]] : !async
// CHECK-NEXT: scf.for
// CHECK: async.dot %[[Q]],
// CHECK: %[[P:.*]] = tile.cast
// CHECK: async.write %[[CV:.*]], %[[V:.*]] :
// CHECK-NEXT: %[[BV:.*]] = async.get %[[CV]]
// CHECK-NEXT: async.dot %[[P]], %[[BV]], %o
// CHECK: async.release %[[CV]] after
// CHECK: scf.yield
// CHECK: tile.store
tile.kernel @outside(%Q: memref<?x?xf16, strided<[?, 1]>> [M, D], %K: memref<?x?xf16, strided<[?, 1]>> [N, D],
                     %V: memref<?x?xf32, strided<[?, 1]>> [N, D], %O: memref<?x?xf32, strided<[?, 1]>> [M, D])
    dims(%N = N) grid(%b = M ceildiv 64) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %m = arith.muli %b, %c64 : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> tensor<64x64xf32>
  %q = tile.load %Q[%m, %c0] : memref<?x?xf16, strided<[?, 1]>> -> tensor<64x64xf16>
  %acc = scf.for %n = %c0 to %N step %c64 iter_args(%o = %zero) -> (tensor<64x64xf32>) {
    %k = tile.load %K[%n, %c0] : memref<?x?xf16, strided<[?, 1]>> -> tensor<64x64xf16>
    %t = tile.transpose %k [1, 0] : tensor<64x64xf16> -> tensor<64x64xf16>
    %s = tile.dot %q, %t, %zero : tensor<64x64xf16>, tensor<64x64xf16> -> tensor<64x64xf32>
    %p = tile.cast %s : tensor<64x64xf32> -> tensor<64x64xf16>
    %v = tile.load %V[%n, %c0] : memref<?x?xf32, strided<[?, 1]>> -> tensor<64x64xf32>
    %h = tile.cast %v : tensor<64x64xf32> -> tensor<64x64xf16>
    %d = tile.dot %p, %h, %o : tensor<64x64xf16>, tensor<64x64xf16> -> tensor<64x64xf32>
    scf.yield %d : tensor<64x64xf32>
  }
  tile.store %acc, %O[%m, %c0] : tensor<64x64xf32>, memref<?x?xf32, strided<[?, 1]>>
}

// The get comes before the store, which may write what the put reads. One tile, twice an operand, is one channel. A load that fills with
// ones past the edges, and one that is stored too, pass through registers.

// CHECK-LABEL: tile.kernel @order
// CHECK: async.put %[[C:.*]], %X
// CHECK: %[[B:.*]] = async.get %[[C]]
// CHECK: tile.store
// CHECK: %[[T:.*]] = async.transpose %[[B]] [1, 0]
// CHECK: async.dot %[[B]], %[[T]]
// CHECK: async.release %[[C]]
// CHECK: %[[ONES:.*]] = tile.load {{.*}} else
// CHECK: %[[KEPT:.*]] = tile.load
// CHECK: async.write %{{.*}}, %[[KEPT]]
// CHECK-NEXT: async.get
// CHECK-NEXT: async.dot %[[ONES]],
tile.kernel @order(%X: memref<?x?xf16, strided<[?, 1]>> [N, N], %Y: memref<?x?xf16, strided<[?, 1]>> [N, N],
                   %O: memref<?x?xf32, strided<[?, 1]>> [N, N]) grid(%g = 1) {
  %c0 = arith.constant 0 : index
  %f0 = arith.constant 0.0 : f32
  %h1 = arith.constant 1.0 : f16
  %z = tile.full %h1 : f16 -> tensor<64x64xf16>
  %zero = tile.full %f0 : f32 -> tensor<64x64xf32>
  %x = tile.load %X[%c0, %c0] : memref<?x?xf16, strided<[?, 1]>> -> tensor<64x64xf16>
  tile.store %z, %X[%c0, %c0] : tensor<64x64xf16>, memref<?x?xf16, strided<[?, 1]>>
  %t = tile.transpose %x [1, 0] : tensor<64x64xf16> -> tensor<64x64xf16>
  %d = tile.dot %x, %t, %zero : tensor<64x64xf16>, tensor<64x64xf16> -> tensor<64x64xf32>
  %o = tile.load %X[%c0, %c0] else %h1 : memref<?x?xf16, strided<[?, 1]>> -> tensor<64x64xf16>
  %k = tile.load %Y[%c0, %c0] : memref<?x?xf16, strided<[?, 1]>> -> tensor<64x64xf16>
  %e = tile.dot %o, %k, %d : tensor<64x64xf16>, tensor<64x64xf16> -> tensor<64x64xf32>
  tile.store %k, %X[%c0, %c0] : tensor<64x64xf16>, memref<?x?xf16, strided<[?, 1]>>
  tile.store %e, %O[%c0, %c0] : tensor<64x64xf32>, memref<?x?xf32, strided<[?, 1]>>
}

// A transpose that nobody uses goes with the load that only a dot reads.
// CHECK-LABEL: tile.kernel @dead_transpose
// CHECK-NOT: tile.transpose
// CHECK-NOT: tile.load %b
// CHECK: async.put {{.*}}, %b
tile.kernel @dead_transpose(%b: memref<?x?xf16, strided<[?, 1]>> [K, N], %c: memref<?x?xf32, strided<[?, 1]>> [M, N]) grid(%i = 1) {
  %c0 = arith.constant 0 : index
  %one = arith.constant 1.0 : f16
  %f0 = arith.constant 0.0 : f32
  %a = tile.full %one : f16 -> tensor<64x16xf16>
  %acc = tile.full %f0 : f32 -> tensor<64x16xf32>
  %w = tile.load %b[%c0, %c0] : memref<?x?xf16, strided<[?, 1]>> -> tensor<16x16xf16>
  %t = tile.transpose %w [1, 0] : tensor<16x16xf16> -> tensor<16x16xf16>
  %u = tile.transpose %t [1, 0] : tensor<16x16xf16> -> tensor<16x16xf16>
  %d = tile.dot %a, %t, %acc : tensor<64x16xf16>, tensor<16x16xf16> -> tensor<64x16xf32>
  tile.store %d, %c[%c0, %c0] : tensor<64x16xf32>, memref<?x?xf32, strided<[?, 1]>>
}
