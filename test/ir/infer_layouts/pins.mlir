// RUN: tesela-opt %s -p plan-dataflow,infer-layouts --target sm_80 --split-input-file --verify-diagnostics

// Two pins for values that an addition ties: the error lists both, and nothing that could be left out.

tile.kernel @two(%x: memref<?xf32, strided<[1]>> [N], %y: memref<?xf32, strided<[1]>> [N]) grid(%b = N ceildiv 256) attributes {warps = 4 : i64} {
  // expected-error@+3 {{these 2 requirements on the layouts of %v contradict each other; without any one of them there is an answer}}
  // expected-hint@+2 {{take back one of the pins}}
  // expected-note@+1 {{%v has the layout thread [128:(2)], value [2:(1)]}}
  %v = tile.load %x[%b] {layout = #layout.tv<thread [128:(2)], value [2:(1)]>} : memref<?xf32, strided<[1]>> -> tensor<256xf32>
  %s = arith.addf %v, %v : tensor<256xf32>
  // expected-note@+1 {{%t has the layout thread [128:(1)], value [2:(128)]}}
  %t = arith.mulf %s, %s {layout = #layout.tv<thread [128:(1)], value [2:(128)]>} : tensor<256xf32>
  tile.store %t, %y[%b] : tensor<256xf32>, memref<?xf32, strided<[1]>>
}

// -----

tile.kernel @no_layout(%x: memref<?xf32, strided<[1]>> [N]) grid(%b = N ceildiv 256) attributes {warps = 4 : i64} {
  // expected-error@+1 {{the attribute 'layout' is 3 : i64: it must be a thread-value layout, as #layout.tv<thread […], value […]>}}
  %v = tile.load %x[%b] {layout = 3 : i64} : memref<?xf32, strided<[1]>> -> tensor<256xf32>
  tile.store %v, %x[%b] : tensor<256xf32>, memref<?xf32, strided<[1]>>
}

// -----

tile.kernel @no_such_way(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K], %C: memref<?x?xf32, strided<[?, 1]>> [M, M]) grid(%g = 1) attributes {warps = 4 : i64} {
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> tensor<64x64xf32>
  %a = tile.load %A[%g, %g] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<64x64xbf16>
  // expected-error@+3 {{no way to compute this dot has all of the words of instruction = "wgmma 2x1"}}
  // expected-hint@+2 {{the cheapest of 6 ways: ...}}
  // expected-note@+1 {{wgmma …: sm_80 has no wgmma, which needs sm_90a}}
  %d = tile.dot %a, %a, %zero {instruction = "wgmma 2x1"} : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  tile.store %d, %C[%g, %g] : tensor<64x64xf32>, memref<?x?xf32, strided<[?, 1]>>
}
