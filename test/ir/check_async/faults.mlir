// Channels used wrongly, with what check-async says about each; test_check_async.py has more.
// RUN: tesela-opt %s -p check-async --split-input-file --verify-diagnostics

tile.kernel @released_early(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K]) dims(%K = K) grid(%bm = M ceildiv 64) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> tensor<64x64xf32>
  %ch = async.channel depth 1 : !async.channel<64x64xbf16>
  %r = scf.for %k = %c0 to %K step %c64 iter_args(%c = %zero) -> (tensor<64x64xf32>) {
    async.put %ch, %A[%bm, %k] : !async.channel<64x64xbf16>, memref<?x?xbf16, strided<[?, 1]>>
    %a = async.get %ch : !async.channel<64x64xbf16> -> !async.buffer<64x64xbf16>
    %p, %t = async.dot %a, %a, %c : !async.buffer<64x64xbf16>, !async.buffer<64x64xbf16>, tensor<64x64xf32>
    // expected-error@+1 {{the slot of %ch is released while a dot may still read it, and the next put overwrites it (in trip 0 of the loop at line 10)}}
    async.release %ch : !async.channel<64x64xbf16>
    %d = async.await %p : !async.pending<tensor<64x64xf32>>
    scf.yield %d : tensor<64x64xf32>
  }
}

// -----

tile.kernel @crosswise(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K]) grid(%bm = M ceildiv 64) {
  %p = async.channel depth 1 : !async.channel<64x64xbf16>
  %q = async.channel depth 1 : !async.channel<64x64xbf16>
  async.roles consumer(warps = 4) {
    // expected-error@+1 {{role consumer waits for ever: %q is empty; role producer waits at async.put at line 32: of %p's 1 slots 1 are filled and 0 got but not released}}
    %b = async.get %q : !async.channel<64x64xbf16> -> !async.buffer<64x64xbf16>
    async.release %q : !async.channel<64x64xbf16>
  }, producer(warps = 4) {
    async.put %p, %A[%bm, %bm] : !async.channel<64x64xbf16>, memref<?x?xbf16, strided<[?, 1]>>
    async.put %p, %A[%bm, %bm] : !async.channel<64x64xbf16>, memref<?x?xbf16, strided<[?, 1]>>
    async.put %q, %A[%bm, %bm] : !async.channel<64x64xbf16>, memref<?x?xbf16, strided<[?, 1]>>
  }
}
