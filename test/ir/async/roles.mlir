// Roles print as they are written, with and without registers, and read back.
// RUN: tesela-opt %s | FileCheck %s
// RUN: tesela-opt %s | tesela-opt - | FileCheck %s

// CHECK-LABEL: tile.kernel @registers
// CHECK: async.roles consumer(warps = 8, registers = 240) {
// CHECK-NEXT: async.get
// CHECK-NEXT: async.release
// CHECK-NEXT: }, producer(warps = 4, registers = 24) {
// CHECK-NEXT: async.put
// CHECK-NEXT: } attributes {note = 1 : i64}
// CHECK-NEXT: tile.return
tile.kernel @registers(%x: memref<?xi32> [N]) grid(%i = 1) {
  %i0 = arith.constant 0 : index
  %ch = async.channel depth 2 : !async.channel<4xi32>
  async.roles consumer(warps = 8, registers = 240) {
    %a = async.get %ch : !async.channel<4xi32> -> !async.buffer<4xi32>
    async.release %ch : !async.channel<4xi32>
  }, producer(warps = 4, registers = 24) {
    async.put %ch, %x[%i0] : !async.channel<4xi32>, memref<?xi32>
  } attributes {note = 1 : i64}
}

// CHECK-LABEL: tile.kernel @three
// CHECK: async.roles first(warps = 1) {
// CHECK-NEXT: }, second(warps = 2) {
// CHECK-NEXT: }, third(warps = 5) {
// CHECK-NEXT: }
// CHECK-NEXT: tile.return
tile.kernel @three(%x: memref<?xi32> [N]) grid(%i = 1) {
  async.roles first(warps = 1) {}, second(warps = 2) {}, third(warps = 5) {}
}
