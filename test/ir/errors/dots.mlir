// Dots that have no instruction, or no room.
// RUN: tesela-opt %s --split-input-file --verify-diagnostics -p plan-dataflow,infer-layouts,alloc-shared --target sm_90a

tile.kernel @types(%A: memref<?x?xi16, strided<[?, 1]>> [M, K]) grid(%g = M) {
  %c0 = arith.constant 0 : index
  %f0 = arith.constant 0 : i16
  %zero = tile.full %f0 : i16 -> tensor<64x64xi16>
  %a = tile.load %A[%c0, %c0] : memref<?x?xi16, strided<[?, 1]>> -> tensor<64x64xi16>
  // expected-error@+2 {{dot takes no operands of i16; it takes f16, bf16, f8E4M3FN, f8E5M2, i8, ui8, f32, f64}}
  // expected-hint@+1 {{convert the operands (tile.cast; x.to(f16) in Python)}}
  %d = tile.dot %a, %a, %zero : tensor<64x64xi16>, tensor<64x64xi16> -> tensor<64x64xi16>
}

// -----

tile.kernel @accumulator(%A: memref<?x?xf16, strided<[?, 1]>> [M, K]) grid(%g = M) {
  %c0 = arith.constant 0 : index
  %f0 = arith.constant 0.0 : f64
  %zero = tile.full %f0 : f64 -> tensor<64x64xf64>
  %a = tile.load %A[%c0, %c0] : memref<?x?xf16, strided<[?, 1]>> -> tensor<64x64xf16>
  // expected-error@+2 {{a dot of f16 sums in f32 or f16, but the accumulator is f64}}
  // expected-hint@+1 {{accumulate in f32 and cast the result with tile.cast}}
  %d = tile.dot %a, %a, %zero : tensor<64x64xf16>, tensor<64x64xf16> -> tensor<64x64xf64>
}

// -----

tile.kernel @registers(%A: memref<?x?xf16, strided<[?, 1]>> [M, K]) grid(%g = M) attributes {warps = 4 : i64} {
  %c0 = arith.constant 0 : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> tensor<256x256xf32>
  %a = tile.load %A[%c0, %c0] : memref<?x?xf16, strided<[?, 1]>> -> tensor<256x16xf16>
  %t = tile.transpose %a [1, 0] : tensor<256x16xf16> -> tensor<16x256xf16>
  // expected-error@+2 {{the accumulator tensor<256x256xf32> takes 512 registers of each of 128 threads, 215 are free for it}}
  // expected-hint@+1 {{make the tile smaller, or give the kernel more warps (attributes {warps = …})}}
  %d = tile.dot %a, %t, %zero : tensor<256x16xf16>, tensor<16x256xf16> -> tensor<256x256xf32>
}

// -----

// expected-error@+2 {{warps must be 1, 2, 4, 8, 12, 16 or 32, found 3 : i64}}
// expected-hint@+1 {{state one of these, as in warps = 4 : i64, in Python pins={'warps': 4}, or leave it out}}
tile.kernel @warps(%A: memref<?xf32, strided<[1]>> [M]) grid(%g = M) attributes {warps = 3 : i64} {
  %c0 = arith.constant 0 : index
}

// -----

// expected-note@+3 {{mbarriers: 80 bytes}}
// expected-error@+2 {{the buffers take 327760 bytes of shared memory, a block of sm_90a can have 232448}}
// expected-hint@+1 {{at most 3 stages fit}}
tile.kernel @stages(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K] {align = 16 : i64}, %B: memref<?x?xbf16, strided<[?, 1]>> [N, K] {align = 16 : i64})
    grid(%g = M) attributes {warps = 8 : i64} {
  // expected-note@+1 {{%ca: 128x128xbf16, 32768 bytes × 4 stages = 131072 bytes}}
  %ca = async.channel depth 4 : !async.channel<128x128xbf16>
  // expected-note@+1 {{%cb: 128x128xbf16, 32768 bytes × 6 stages = 196608 bytes}}
  %cb = async.channel depth 6 : !async.channel<128x128xbf16>
  %c0 = arith.constant 0 : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> tensor<128x128xf32>
  async.put %ca, %A[%c0, %c0] : !async.channel<128x128xbf16>, memref<?x?xbf16, strided<[?, 1]>>
  async.put %cb, %B[%c0, %c0] : !async.channel<128x128xbf16>, memref<?x?xbf16, strided<[?, 1]>>
  %a = async.get %ca : !async.channel<128x128xbf16> -> !async.buffer<128x128xbf16>
  %b = async.get %cb : !async.channel<128x128xbf16> -> !async.buffer<128x128xbf16>
  %p, %read = async.dot %a, %b, %zero : !async.buffer<128x128xbf16>, !async.buffer<128x128xbf16>, tensor<128x128xf32>
  %d = async.await %p : !async.pending<tensor<128x128xf32>>
  async.release %ca after %read : !async.channel<128x128xbf16>
  async.release %cb after %read : !async.channel<128x128xbf16>
}

// -----

// expected-error@+2 {{the buffers take 262144 bytes of shared memory, a block of sm_90a can have 232448}}
// expected-hint@+1 {{not even one stage fits: make the tiles smaller}}
tile.kernel @tiles(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K], %C: memref<?x?xf32, strided<[?, 1]>> [M, M]) grid(%g = M) {
  %c0 = arith.constant 0 : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> tensor<128x128xf32>
  // expected-note@+1 {{%a_channel: 128x1024xbf16, 262144 bytes × 1 stages = 262144 bytes}}
  %a = tile.load %A[%c0, %c0] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<128x1024xbf16>
  %t = tile.transpose %a [1, 0] : tensor<128x1024xbf16> -> tensor<1024x128xbf16>
  %d = tile.dot %a, %t, %zero : tensor<128x1024xbf16>, tensor<1024x128xbf16> -> tensor<128x128xf32>
  tile.store %d, %C[%c0, %c0] : tensor<128x128xf32>, memref<?x?xf32, strided<[?, 1]>>
}

// -----

// expected-error@+2 {{the buffers take 16384000000000000 bytes of shared memory, a block of sm_90a can have 232448}}
// expected-hint@+1 {{at most 14 stages fit}}
tile.kernel @deep(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K]) grid(%g = M) {
  // expected-note@+1 {{%c: 128x64xbf16, 16384 bytes × 1000000000000 stages = 16384000000000000 bytes}}
  %c = async.channel depth 1000000000000 : !async.channel<128x64xbf16, #layout.shared<[128:64], [64:1], swizzle<3, 3, 3>>>
}
