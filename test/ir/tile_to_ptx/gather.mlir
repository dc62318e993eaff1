// RUN: tesela-opt %s -p infer-layouts,alloc-shared,tile-to-ptx --target sm_80 | FileCheck %s

// The rows of a tile lie within warps: each element is asked for at the lane that has it. No shared memory, no barrier.

// CHECK-LABEL: ptx.kernel @lanes target sm_80 threads 32 shared 0
// CHECK-NOT: bar.sync
// CHECK: ptx.inst "setp.lt.u32"
// CHECK: ptx.inst "shfl.sync.idx.b32"
// CHECK: ptx.inst "selp.b32"
// CHECK-NOT: ptx.inst "st.shared
// CHECK: ptx.inst "st.global.b32"
tile.kernel @lanes(%x: memref<?x?xf32, strided<[?, 1]>> [M, N], %p: memref<?x?xi32, strided<[?, 1]>> [M, N], %y: memref<?x?xf32, strided<[?, 1]>> [M, N]) grid(%i = M) attributes {warps = 1 : i64} {
  %c0 = arith.constant 0 : index
  %v = tile.load %x[%i, %c0] : memref<?x?xf32, strided<[?, 1]>> -> tensor<1x32xf32, #layout.tv<thread [32:(0,1)], value []>>
  %w = tile.load %p[%i, %c0] : memref<?x?xi32, strided<[?, 1]>> -> tensor<1x32xi32, #layout.tv<thread [32:(0,1)], value []>>
  %z = tile.gather %v[%w] axis 1 : tensor<1x32xf32, #layout.tv<thread [32:(0,1)], value []>>[tensor<1x32xi32, #layout.tv<thread [32:(0,1)], value []>>] -> tensor<1x32xf32, #layout.tv<thread [32:(0,1)], value []>>
  tile.store %z, %y[%i, %c0] : tensor<1x32xf32, #layout.tv<thread [32:(0,1)], value []>>, memref<?x?xf32, strided<[?, 1]>>
}

// A thread has whole rows of four: three selections for each element, by two bits of its index, and one by whether it is inside.

// CHECK-LABEL: ptx.kernel @names target sm_80 threads 32 shared 0
// CHECK-NOT: shfl
// CHECK-NOT: bar.sync
// CHECK-COUNT-4: ptx.inst "selp.b32" {{.*}}!ptx.reg<pred x 4>
tile.kernel @names(%x: memref<?x?xf32, strided<[?, 1]>> [M, N], %p: memref<?x?xi32, strided<[?, 1]>> [M, N], %y: memref<?x?xf32, strided<[?, 1]>> [M, N]) grid(%i = M) attributes {warps = 1 : i64} {
  %c0 = arith.constant 0 : index
  %v = tile.load %x[%i, %c0] : memref<?x?xf32, strided<[?, 1]>> -> tensor<32x4xf32, #layout.tv<thread [32:(1,0)], value [4:(0,1)]>>
  %w = tile.load %p[%i, %c0] : memref<?x?xi32, strided<[?, 1]>> -> tensor<32x4xi32, #layout.tv<thread [32:(1,0)], value [4:(0,1)]>>
  %z = tile.gather %v[%w] axis 1 : tensor<32x4xf32, #layout.tv<thread [32:(1,0)], value [4:(0,1)]>>[tensor<32x4xi32, #layout.tv<thread [32:(1,0)], value [4:(0,1)]>>] -> tensor<32x4xf32, #layout.tv<thread [32:(1,0)], value [4:(0,1)]>>
  tile.store %z, %y[%i, %c0] : tensor<32x4xf32, #layout.tv<thread [32:(1,0)], value [4:(0,1)]>>, memref<?x?xf32, strided<[?, 1]>>
}

// The columns cross warps: through shared memory, and every thread reads at its own indices.

// CHECK-LABEL: ptx.kernel @memory target sm_80 threads 64
// CHECK: ptx.inst "bar.sync"
// CHECK: ptx.inst "st.shared.b16"
// CHECK: ptx.inst "bar.sync"
// CHECK: ptx.inst "ld.shared.b16"
// CHECK-NOT: bar.sync
tile.kernel @memory(%x: memref<?x?xf16, strided<[?, 1]>> [M, N], %p: memref<?x?xi64, strided<[?, 1]>> [M, N], %y: memref<?x?xf16, strided<[?, 1]>> [M, N]) grid(%i = M) attributes {warps = 2 : i64} {
  %c0 = arith.constant 0 : index
  %v = tile.load %x[%i, %c0] : memref<?x?xf16, strided<[?, 1]>> -> tensor<2x32xf16, #layout.tv<thread [32:(0,1), 2:(1,0)], value []>>
  %w = tile.load %p[%i, %c0] : memref<?x?xi64, strided<[?, 1]>> -> tensor<2x32xi64, #layout.tv<thread [32:(0,1), 2:(1,0)], value []>>
  %z = tile.gather %v[%w] axis 0 : tensor<2x32xf16, #layout.tv<thread [32:(0,1), 2:(1,0)], value []>>[tensor<2x32xi64, #layout.tv<thread [32:(0,1), 2:(1,0)], value []>>] -> tensor<2x32xf16, #layout.tv<thread [32:(0,1), 2:(1,0)], value []>>
  tile.store %z, %y[%i, %c0] : tensor<2x32xf16, #layout.tv<thread [32:(0,1), 2:(1,0)], value []>>, memref<?x?xf16, strided<[?, 1]>>
}
