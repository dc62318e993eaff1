// Wrong uses of channels, buffers and pending tiles.
// RUN: tesela-opt %s --split-input-file --verify-diagnostics

tile.kernel @k(%A: memref<?x?xbf16> [M, K], %f: f32, %h: bf16) grid(%m = M) {
  %x = tile.full %f : f32 -> tensor<128x64xf32>
  %y = tile.full %h : bf16 -> tensor<128x64xbf16>
  %c = async.channel depth 1 : !async.channel<128x64xbf16>
  %b = async.get %c : !async.channel<128x64xbf16> -> !async.buffer<128x64xbf16>
  // expected-error@+1 {{'async.channel': a channel has at least one buffer, found depth 0}}
  %v0 = async.channel depth 0 : !async.channel<128x64xbf16>
  // expected-error@+1 {{'async.channel': the buffers' extents must be known and positive}}
  %v1 = async.channel depth 1 : !async.channel<?x64xbf16>
  // expected-error@+1 {{'async.channel': result 'res': async.channel is required, found !async.buffer<128x64xbf16>}}
  %v2 = async.channel depth 1 : !async.buffer<128x64xbf16>
  // expected-error@+1 {{'async.put': an array of rank 2 takes as many indices, found 1}}
  async.put %c, %A[%m] : !async.channel<128x64xbf16>, memref<?x?xbf16>
  // expected-error@+1 {{'async.put': dims must name 2 different dimensions of the array, one for each of the tile, found [0]}}
  async.put %c, %A[%m, %m] dims [0] : !async.channel<128x64xbf16>, memref<?x?xbf16>
  // expected-error@+1 {{'async.put': via must be "tma", "cp.async" or "ld", found "mail"}}
  async.put %c, %A[%m, %m] via "mail" : !async.channel<128x64xbf16>, memref<?x?xbf16>
  // expected-error@+1 {{'async.put': only a put via "tma" is multicast, to two blocks or more}}
  async.put %c, %A[%m, %m] via "ld" multicast 2 : !async.channel<128x64xbf16>, memref<?x?xbf16>
  // expected-error@+1 {{'async.put': only a put via "tma" is multicast, to two blocks or more}}
  async.put %c, %A[%m, %m] via "tma" multicast 1 : !async.channel<128x64xbf16>, memref<?x?xbf16>
  // expected-error@+1 {{'async.write': the tile must have the extents and the element type that the channel carries}}
  async.write %c, %x : !async.channel<128x64xbf16>, tensor<128x64xf32>
  // expected-error@+1 {{'async.get': the buffer has the extents, element type and layout that the channel carries}}
  %v7 = async.get %c : !async.channel<128x64xbf16> -> !async.buffer<64x128xbf16>
  // expected-error@+1 {{'async.transpose': [0, 2] is no permutation of the 2 dimensions}}
  %v8 = async.transpose %b [0, 2] : !async.buffer<128x64xbf16> -> !async.buffer<64x128xbf16>
  // expected-error@+1 {{'async.transpose': the result has the source's element type and its extents permuted}}
  %v9 = async.transpose %b [1, 0] : !async.buffer<128x64xbf16> -> !async.buffer<128x64xbf16>
  // expected-error@+1 {{'async.read': the tile has the buffer's extents and element type}}
  %v10 = async.read %b : !async.buffer<128x64xbf16> -> tensor<128x64xf32>
  // expected-error@+1 {{'async.dot': dot wants MxK, KxN and MxN, found (128, 64), (128, 64) and (128, 64)}}
  %v11, %w11 = async.dot %b, %b, %x : !async.buffer<128x64xbf16>, !async.buffer<128x64xbf16>, tensor<128x64xf32>
  // expected-error@+1 {{'async.dot': the lhs is a buffer or a tile, found f32}}
  %v12, %w12 = async.dot %f, %b, %x : f32, !async.buffer<128x64xbf16>, tensor<128x64xf32>
}

// -----

tile.kernel @k(%A: memref<?x?xbf16> [M, K], %f: f32, %h: bf16) grid(%m = M) {
  // expected-error@+1 {{expected 'depth'}}
  %0 = async.channel : !async.channel<128x64xbf16>
}

// -----

tile.kernel @k(%A: memref<?x?xbf16> [M, K], %f: f32, %h: bf16) grid(%m = M) {
  %c = async.channel depth 1 : !async.channel<128x64xbf16>
  // expected-error@+1 {{operand is used with type !async.channel<128x64xf32>, but has been previously used or defined with type !async.channel<128x64xbf16>}}
  async.put %c, %A[%m, %m] : !async.channel<128x64xf32>, memref<?x?xbf16>
}

// -----

tile.kernel @k(%A: memref<?x?xbf16> [M, K], %f: f32, %h: bf16) grid(%m = M) {
  %x = tile.full %f : f32 -> tensor<128x64xf32>
  %c = async.channel depth 1 : !async.channel<128x64xbf16>
  // expected-error@+1 {{operand is used with type !async.token, but has been previously used or defined with type tensor<128x64xf32>}}
  async.release %c after %x : !async.channel<128x64xbf16>
}

// -----

tile.kernel @k(%A: memref<?x?xbf16> [M, K], %f: f32, %h: bf16) grid(%m = M) {
  %c = async.channel depth 1 : !async.channel<128x64xbf16>
  %b = async.get %c : !async.channel<128x64xbf16> -> !async.buffer<128x64xbf16>
  // expected-error@+1 {{async.dot takes a lhs, a rhs buffer and an accumulator tile}}
  %0, %1 = async.dot %b, %b : !async.buffer<128x64xbf16>, !async.buffer<128x64xbf16>
}

// -----

tile.kernel @k(%A: memref<?x?xbf16> [M, K], %f: f32, %h: bf16) grid(%m = M) {
  %x = tile.full %f : f32 -> tensor<128x64xf32>
  // expected-error@+1 {{async.await takes a pending tile, found tensor<128x64xf32>}}
  %0 = async.await %x : tensor<128x64xf32>
}

// -----

tile.kernel @k(%A: memref<?x?xbf16> [M, K], %f: f32, %h: bf16) grid(%m = M) {
  %c = async.channel depth 1 : !async.channel<128x64xbf16>
  %b = async.get %c : !async.channel<128x64xbf16> -> !async.buffer<128x64xbf16>
  // expected-error@+1 {{'arith.addf' does not take !async.buffer<128x64xbf16> here}}
  %0 = arith.addf %b, %b : !async.buffer<128x64xbf16>
}

// -----

tile.kernel @k(%A: memref<?x?xbf16> [M, K]) grid(%m = M) {
  // expected-error@+1 {{'async.roles': the roles' names must differ, found a, a}}
  async.roles a(warps = 4) {}, a(warps = 4) {}
}

// -----

tile.kernel @k(%A: memref<?x?xbf16> [M, K]) grid(%m = M) {
  // expected-error@+1 {{'async.roles': a role has at least one warp, found 4, 0}}
  async.roles a(warps = 4) {}, b(warps = 0) {}
}

// -----

tile.kernel @k(%A: memref<?x?xbf16> [M, K]) grid(%m = M) {
  // expected-error@+1 {{'async.roles': a block has at most 1024 threads, the roles have 1056}}
  async.roles a(warps = 32) {}, b(warps = 1) {}
}

// -----

tile.kernel @k(%A: memref<?x?xbf16> [M, K]) grid(%m = M) {
  // expected-error@+1 {{'async.roles': either all roles state their registers or none does}}
  async.roles a(warps = 8, registers = 240) {}, b(warps = 4) {}
}

// -----

tile.kernel @k(%A: memref<?x?xbf16> [M, K]) grid(%m = M) {
  // expected-error@+1 {{'async.roles': role b changes its registers, so it must have whole warpgroups of 4 warps, found 1}}
  async.roles a(warps = 8, registers = 200) {}, b(warps = 1, registers = 24) {}
}

// -----

tile.kernel @k(%A: memref<?x?xbf16> [M, K]) grid(%m = M) {
  // expected-error@+1 {{'async.roles': role a: registers must be a multiple of 8 from 24 to 256, found 236}}
  async.roles a(warps = 8, registers = 236) {}, b(warps = 4, registers = 24) {}
}

// -----

tile.kernel @k(%A: memref<?x?xbf16> [M, K]) grid(%m = M) {
  // expected-error@+1 {{'async.roles': the roles' registers sum to 66560, but the block starts with 64512 (384 threads of 168): the role that asks last would wait for ever; give some of them fewer}}
  async.roles a(warps = 8, registers = 240) {}, b(warps = 4, registers = 40) {}
}

// -----

tile.kernel @k(%A: memref<?x?xbf16> [M, K]) grid(%m = M) {
  %yes = arith.constant true
  scf.if %yes {
    // expected-error@+1 {{'async.roles': roles stand in the kernel's own block: they are whole warps for all of its time}}
    async.roles a(warps = 8) {}, b(warps = 4) {}
  }
}

// -----

tile.kernel @k(%A: memref<?x?xbf16> [M, K]) grid(%m = M) {
  // expected-error@+1 {{'async.roles': roles end the kernel: what comes after them belongs into one of them}}
  async.roles a(warps = 8) {}, b(warps = 4) {}
  %c0 = arith.constant 0 : index
}

// -----

tile.kernel @k(%A: memref<?x?xbf16> [M, K]) grid(%m = M) {
  // expected-error@+1 {{'async.channel': the channel is filled by several roles, a and b: their order is not determined}}
  %c = async.channel depth 1 : !async.channel<128x64xbf16>
  async.roles a(warps = 4) {
    async.put %c, %A[%m, %m] : !async.channel<128x64xbf16>, memref<?x?xbf16>
  }, b(warps = 4) {
    async.put %c, %A[%m, %m] : !async.channel<128x64xbf16>, memref<?x?xbf16>
  }
}

// -----

tile.kernel @k(%f: f32) grid(%m = 1) {
  // expected-error@+1 {{'async.token': the event must be none or here, found there}}
  %t = async.token there : !async.token
}

// -----

tile.kernel @k(%f: f32) grid(%m = 1) {
  // expected-error@+1 {{async.ready takes a tile, found f32}}
  %t = async.ready %f : f32
}

// -----

tile.kernel @k(%f: f32, %h: bf16) grid(%m = 1) {
  %c = async.channel depth 1 : !async.channel<64x64xbf16>
  %b = async.get %c later 1 : !async.channel<64x64xbf16> -> !async.buffer<64x64xbf16>
  // expected-error@+1 {{async.dot takes a lhs, a rhs buffer and an accumulator tile}}
  %p, %t = async.dot %b, %b, %f : !async.buffer<64x64xbf16>, !async.buffer<64x64xbf16>, f32
}
