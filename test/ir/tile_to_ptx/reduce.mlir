// RUN: tesela-opt %s -p plan-dataflow,infer-layouts,alloc-shared,tile-to-ptx --target sm_80 | FileCheck %s

// 256 elements on 128 threads: two in each thread, five shuffles, four warps through shared memory.

// CHECK-LABEL: ptx.kernel @total target sm_80 threads 128 shared 16
// CHECK: ptx.inst "add.rn.f32"
// CHECK-COUNT-5: ptx.inst "shfl.sync.bfly.b32"
// CHECK: ptx.inst "bar.sync"
// CHECK: ptx.inst "st.shared.b32"
// CHECK: ptx.inst "bar.sync"
// CHECK: ptx.inst "ld.shared.v4.b32"
tile.kernel @total(%x: memref<?xf32, strided<[1]>> [N], %y: memref<?xf32, strided<[1]>> [G]) grid(%b = G) attributes {warps = 4 : i64} {
  %c0 = arith.constant 0 : index
  %v = tile.load %x[%c0] : memref<?xf32, strided<[1]>> -> tensor<256xf32>
  %s = tile.reduce sum %v axis 0 : tensor<256xf32> -> f32
  tile.store %s, %y[%b] : f32, memref<?xf32, strided<[1]>>
}

// 100 elements are padded to 128: the padding holds the identity of the maximum, minus infinity.

// CHECK-LABEL: ptx.kernel @odd
// CHECK: %[[LOW:.*]] = ptx.constant 4286578688
// CHECK: ptx.inst "selp.b32" {{.*}}, %[[LOW]],
// CHECK: ptx.inst "max.NaN.f32"
tile.kernel @odd(%x: memref<?xf32, strided<[1]>> [N], %y: memref<?xf32, strided<[1]>> [G]) grid(%b = G) attributes {warps = 4 : i64} {
  %c0 = arith.constant 0 : index
  %v = tile.load %x[%c0] : memref<?xf32, strided<[1]>> -> tensor<100xf32>
  %s = tile.reduce max %v axis 0 : tensor<100xf32> -> f32
  tile.store %s, %y[%b] : f32, memref<?xf32, strided<[1]>>
}
