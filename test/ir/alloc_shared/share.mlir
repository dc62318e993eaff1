// RUN: tesela-opt %s -p alloc-shared --target sm_80 | FileCheck %s

// Four channels of 64 KiB do not fit. Those out of use before another one's first put become one with it: %b with %a, which a loop fills
// before; %c overlaps %b and gets a ring of its own; %d, in the branch after both, has %a's. %e is alone of its kind, and stays.

#l = #layout.shared<[256:128], [128:1]>
#m = #layout.shared<[64:64], [64:1]>

// CHECK-LABEL: tile.kernel @share
// CHECK-SAME: shared = 139264 : i64
// CHECK: %[[A:.*]] = async.channel depth 1 offset 0
// CHECK-NEXT: %[[C:.*]] = async.channel depth 1 offset 65536
// CHECK-NEXT: %[[E:.*]] = async.channel depth 1 offset 131072
// CHECK-NOT: async.channel depth
tile.kernel @share(%x: memref<?x?xbf16, strided<[?, 1]>> [M, K], %p: i1) grid(%g = M) attributes {warps = 4 : i64} {
  %a = async.channel depth 1 : !async.channel<256x128xbf16, #l>
  %b = async.channel depth 1 : !async.channel<256x128xbf16, #l>
  %c = async.channel depth 1 : !async.channel<256x128xbf16, #l>
  %d = async.channel depth 1 : !async.channel<256x128xbf16, #l>
  %e = async.channel depth 1 : !async.channel<64x64xbf16, #m>
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  // CHECK: scf.for
  scf.for %i = %c0 to %g step %c1 {
    // CHECK: async.put %[[A]],
    async.put %a, %x[%g, %i] via "ld" : !async.channel<256x128xbf16, #l>, memref<?x?xbf16, strided<[?, 1]>>
    %0 = async.get %a : !async.channel<256x128xbf16, #l> -> !async.buffer<256x128xbf16, #l>
    async.release %a : !async.channel<256x128xbf16, #l>
  }
  // CHECK: async.put %[[A]],
  async.put %b, %x[%g, %c0] via "ld" : !async.channel<256x128xbf16, #l>, memref<?x?xbf16, strided<[?, 1]>>
  %1 = async.get %b : !async.channel<256x128xbf16, #l> -> !async.buffer<256x128xbf16, #l>
  // CHECK: async.put %[[C]],
  async.put %c, %x[%g, %c1] via "ld" : !async.channel<256x128xbf16, #l>, memref<?x?xbf16, strided<[?, 1]>>
  async.release %b : !async.channel<256x128xbf16, #l>
  %2 = async.get %c : !async.channel<256x128xbf16, #l> -> !async.buffer<256x128xbf16, #l>
  async.release %c : !async.channel<256x128xbf16, #l>
  // CHECK: async.put %[[E]],
  async.put %e, %x[%g, %c0] via "ld" : !async.channel<64x64xbf16, #m>, memref<?x?xbf16, strided<[?, 1]>>
  %3 = async.get %e : !async.channel<64x64xbf16, #m> -> !async.buffer<64x64xbf16, #m>
  async.release %e : !async.channel<64x64xbf16, #m>
  // CHECK: scf.if
  scf.if %p {
    // CHECK: async.put %[[A]],
    async.put %d, %x[%g, %c0] via "ld" : !async.channel<256x128xbf16, #l>, memref<?x?xbf16, strided<[?, 1]>>
    %4 = async.get %d : !async.channel<256x128xbf16, #l> -> !async.buffer<256x128xbf16, #l>
    async.release %d : !async.channel<256x128xbf16, #l>
  }
}
