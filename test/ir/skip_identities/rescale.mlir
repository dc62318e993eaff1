// Products with what is usually one are marked, and each warp asks before it multiplies.
// RUN: tesela-opt %s -p "infer-layouts,skip-identities,verify" --target sm_80 | FileCheck %s
// RUN: tesela-opt %s -p "infer-layouts,skip-identities{ratio=0},verify" --target sm_80 | FileCheck %s --check-prefix=NONE
// RUN: tesela-opt %s -p "infer-layouts,skip-identities,tile-to-ptx,verify" --target sm_80 | FileCheck %s --check-prefix=PTX
// NONE-NOT: unless_one

// CHECK-LABEL: tile.kernel @rescale
// The factor has as many registers as what it is multiplied by: no gain.
// CHECK: arith.mulf %before, %f :
// CHECK: arith.mulf %x, {{%[a-z0-9_]+}} {unless_one = 1 : i64}
// The difference of two unrelated rows.
// CHECK: arith.mulf {{%[a-z0-9_]+}}, {{%[a-z0-9_]+}} :
// PTX-LABEL: ptx.kernel @rescale
// PTX: [[ODD:%[0-9]+]] = ptx.inst "setp.neu.f32"
// PTX: [[ANY:%[a-z0-9_]+]] = ptx.inst "vote.sync.any.pred"
// PTX: ptx.if [[ANY]]
// PTX-NEXT: ptx.inst "mul.rn.f32" {{.*}} -> !ptx.reg<b32 x 64>
// PTX: } else {
// PTX-NEXT: ptx.yield
tile.kernel @rescale(%X: memref<?x?xf32, strided<[?, 1]>> [M, N], %A: memref<?xf32> [M], %B: memref<?xf32> [M], %Y: memref<?x?xf32, strided<[?, 1]>> [M, N],
                     %Z: memref<?xf32> [M]) grid(%g = 1) attributes {warps = 4 : i64} {
  %c0 = arith.constant 0 : index
  %x = tile.load %X[%c0, %c0] : memref<?x?xf32, strided<[?, 1]>> -> tensor<4x2048xf32>
  %before = tile.load %A[%c0] : memref<?xf32> -> tensor<4xf32>
  %new = tile.load %B[%c0] : memref<?xf32> -> tensor<4xf32>
  %now = arith.maximumf %before, %new : tensor<4xf32>
  %d = arith.subf %before, %now : tensor<4xf32>
  %f = math.exp2 %d : tensor<4xf32>
  %z = arith.mulf %before, %f : tensor<4xf32>
  tile.store %z, %Z[%c0] : tensor<4xf32>, memref<?xf32>
  %fe = tile.expand %f axis 1 : tensor<4xf32> -> tensor<4x1xf32>
  %fb = tile.broadcast %fe : tensor<4x1xf32> -> tensor<4x2048xf32>
  %p = arith.mulf %x, %fb : tensor<4x2048xf32>
  %e = arith.subf %before, %new : tensor<4xf32>
  %h = math.exp2 %e : tensor<4xf32>
  %he = tile.expand %h axis 1 : tensor<4xf32> -> tensor<4x1xf32>
  %hb = tile.broadcast %he : tensor<4x1xf32> -> tensor<4x2048xf32>
  %q = arith.mulf %p, %hb : tensor<4x2048xf32>
  tile.store %q, %Y[%c0, %c0] : tensor<4x2048xf32>, memref<?x?xf32, strided<[?, 1]>>
}
