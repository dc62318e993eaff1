// RUN: tesela-opt %s -p plan-dataflow,infer-layouts,alloc-shared,tile-to-ptx --target sm_80 | FileCheck %s

// Bounds: one comparison for each distinct position, with the tile's start clamped once; the copy of a comparison that the load made serves the store.
// The arrays may overlap, so a barrier separates the load from the store.

// CHECK-LABEL: ptx.kernel @copy target sm_80 threads 128 shared 0
// CHECK: %[[ROOM:.*]] = ptx.inst "sub.s64"
// CHECK: ptx.inst "min.s64" %[[ROOM]]
// CHECK-COUNT-2: ptx.inst "setp.gt.s32"
// CHECK-NOT: setp
// CHECK: ptx.inst "ld.global.b32" {{.*}} {offsets = array<i64: 0, 512>}
// CHECK: ptx.inst "bar.sync"
// CHECK: ptx.inst "st.global.b32" {{.*}} if {{.*}} {offsets = array<i64: 0, 512>}
tile.kernel @copy(%x: memref<?xf32, strided<[1]>> [N], %y: memref<?xf32, strided<[1]>> [N]) grid(%b = N ceildiv 256) {
  %c256 = arith.constant 256 : index
  %i = arith.muli %b, %c256 : index
  %v = tile.load %x[%i] : memref<?xf32, strided<[1]>> -> tensor<256xf32>
  tile.store %v, %y[%i] : tensor<256xf32>, memref<?xf32, strided<[1]>>
}

// Aligned bf16 in 16-byte accesses, packed two to a register; without aliasing no barrier.

// CHECK-LABEL: ptx.kernel @wide
// CHECK: ptx.inst "ld.global.v4.b32" {{.*}} -> !ptx.reg<b32 x 4>
// CHECK-NOT: bar.sync
// CHECK: ptx.inst "st.global.v4.b32"
tile.kernel @wide(%x: memref<?xbf16, strided<[1]>> [N] {align = 16}, %y: memref<?xbf16, strided<[1]>> [N] {align = 16, noalias})
    where(N divisible 8) grid(%b = N ceildiv 1024) {
  %c1024 = arith.constant 1024 : index
  %i = arith.muli %b, %c1024 : index
  %v = tile.load %x[%i] : memref<?xbf16, strided<[1]>> -> tensor<1024xbf16>
  tile.store %v, %y[%i] : tensor<1024xbf16>, memref<?xbf16, strided<[1]>>
}

// A start that may be negative needs the lower bound too, and is no multiple of anything: single elements.

// CHECK-LABEL: ptx.kernel @shifted
// CHECK: ptx.inst "setp.le.s32"
// CHECK: ptx.inst "ld.global.b32"
tile.kernel @shifted(%x: memref<?xf32, strided<[1]>> [N] {align = 16}, %y: memref<?xf32, strided<[1]>> [N] {noalias}) grid(%b = N ceildiv 128) {
  %c1 = arith.constant 1 : index
  %c128 = arith.constant 128 : index
  %i = arith.muli %b, %c128 : index
  %before = arith.subi %i, %c1 : index
  %v = tile.load %x[%before] : memref<?xf32, strided<[1]>> -> tensor<128xf32>
  tile.store %v, %y[%i] : tensor<128xf32>, memref<?xf32, strided<[1]>>
}
