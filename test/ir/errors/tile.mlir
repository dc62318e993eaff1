// Wrong tile programs: types, shapes, ranks, attributes, contracts. Each message is the whole message.
// RUN: tesela-opt %s --split-input-file --verify-diagnostics

tile.kernel @k(%A: memref<?x?xf32> [M, N], %p: i1, %f: f32, %h: f16, %i: i32) grid(%g = M) {
  %a = tile.full %f : f32 -> tensor<8x16xf32>
  %b = tile.full %f : f32 -> tensor<16x8xf32>
  %c = tile.full %f : f32 -> tensor<8x8xf32>
  %v = tile.full %f : f32 -> tensor<8xf32>
  %n = tile.full %i : i32 -> tensor<8xi32>
  %z = tile.full %h : f16 -> tensor<16x8xf16>
  // expected-error@+1 {{'tile.load': an array of rank 2 takes as many indices, found 1}}
  %0 = tile.load %A[%g] : memref<?x?xf32> -> tensor<8xf32>
  // expected-error@+1 {{'tile.load': the array's elements are f32, the tile's are f16}}
  %1 = tile.load %A[%g, %g] : memref<?x?xf32> -> tensor<8xf16>
  // expected-error@+1 {{'tile.load': a tile of 3 dimensions does not fit an array of 2}}
  %2 = tile.load %A[%g, %g] : memref<?x?xf32> -> tensor<2x2x2xf32>
  // expected-error@+1 {{'tile.load': dims must name 2 different dimensions of the array, one for each of the tile, found [0, 0]}}
  %3 = tile.load %A[%g, %g] dims [0, 0] : memref<?x?xf32> -> tensor<2x2xf32>
  // expected-error@+1 {{'tile.load': dims must name 1 different dimensions of the array, one for each of the tile, found [2]}}
  %4 = tile.load %A[%g, %g] dims [2] : memref<?x?xf32> -> tensor<2xf32>
  // expected-error@+1 {{'tile.load': operand 'array': a memref is required, found tensor<8x16xf32>}}
  %5 = tile.load %a[%g, %g] : tensor<8x16xf32> -> tensor<8x16xf32>
  // expected-error@+2 {{'tile.load': the extents of a tile are known and positive, found tensor<?x16xf32>}}
  // expected-hint@+1 {{dimensions that are known at launch only are those of arrays: load a tile of them}}
  %6 = tile.load %A[%g, %g] : memref<?x?xf32> -> tensor<?x16xf32>
  // expected-error@+1 {{'tile.store': an array of rank 2 takes as many indices, found 1}}
  tile.store %a, %A[%g] : tensor<8x16xf32>, memref<?x?xf32>
  // expected-error@+1 {{'tile.store': the array's elements are f32, the tile's are f16}}
  tile.store %z, %A[%g, %g] : tensor<16x8xf16>, memref<?x?xf32>
  // expected-error@+1 {{'tile.dot': the inner dimensions must be equal, found 16 (columns of the lhs) and 8 (rows of the rhs)}}
  %9 = tile.dot %a, %a, %c : tensor<8x16xf32>, tensor<8x16xf32> -> tensor<8x8xf32>
  // expected-error@+1 {{'tile.dot': the accumulator must be 8x8, found 8x16}}
  %10 = tile.dot %a, %b, %a : tensor<8x16xf32>, tensor<16x8xf32> -> tensor<8x16xf32>
  // expected-error@+1 {{'tile.dot': dot takes tiles of equal rank, two at least, found ranks 2, 1, 2}}
  %11 = tile.dot %a, %v, %c : tensor<8x16xf32>, tensor<8xf32> -> tensor<8x8xf32>
  // expected-error@+1 {{'tile.dot': both operands must have one element type, found f32 and f16}}
  %12 = tile.dot %a, %z, %c : tensor<8x16xf32>, tensor<16x8xf16> -> tensor<8x8xf32>
  // expected-error@+1 {{'tile.reduce': axis 2 is outside the 2 dimensions of the tile}}
  %13 = tile.reduce sum %a axis 2 : tensor<8x16xf32> -> tensor<8xf32>
  // expected-error@+1 {{'tile.reduce': sum over axis 1 of tensor<8x16xf32> gives tensor<8xf32>, found tensor<16xf32>}}
  %14 = tile.reduce sum %a axis 1 : tensor<8x16xf32> -> tensor<16xf32>
  // expected-error@+1 {{'tile.reduce': argmax over axis 1 of tensor<8x16xf32> gives tensor<8xi32>, found tensor<8xf32>}}
  %15 = tile.reduce argmax %a axis 1 : tensor<8x16xf32> -> tensor<8xf32>
  // expected-error@+1 {{'tile.reduce': operand 'source': a tensor is required, found f32}}
  %16 = tile.reduce sum %f axis 0 : f32 -> f32
  // expected-error@+1 {{'tile.transpose': [0, 0] is no permutation of the 2 dimensions}}
  %17 = tile.transpose %a [0, 0] : tensor<8x16xf32> -> tensor<8x8xf32>
  // expected-error@+1 {{'tile.transpose': the result must be tensor<16x8xf32>, found tensor<8x16xf32>}}
  %18 = tile.transpose %a [1, 0] : tensor<8x16xf32> -> tensor<8x16xf32>
  // expected-error@+1 {{'tile.reshape': a tile of 128 elements cannot be reshaped to one of 100}}
  %19 = tile.reshape %a : tensor<8x16xf32> -> tensor<100xf32>
  // expected-error@+1 {{'tile.reshape': a reshape keeps the element type}}
  %20 = tile.reshape %a : tensor<8x16xf32> -> tensor<128xf16>
  // expected-error@+1 {{'tile.expand': axis 2 is outside 0 … 1}}
  %21 = tile.expand %v axis 2 : tensor<8xf32> -> tensor<8x1xf32>
  // expected-error@+1 {{'tile.expand': the result must be tensor<8x1xf32>, found tensor<1x8xf32>}}
  %22 = tile.expand %v axis 1 : tensor<8xf32> -> tensor<1x8xf32>
  // expected-error@+1 {{'tile.broadcast': (8, 8) does not broadcast to (8, 16): each extent must be equal, or 1 in the source}}
  %23 = tile.broadcast %c : tensor<8x8xf32> -> tensor<8x16xf32>
  // expected-error@+1 {{'tile.broadcast': (8,) does not broadcast to (8, 8): each extent must be equal, or 1 in the source}}
  %24 = tile.broadcast %v : tensor<8xf32> -> tensor<8x8xf32>
  // expected-error@+1 {{'tile.full': the value must be f16, found f32}}
  %25 = tile.full %f : f32 -> tensor<8xf16>
  // expected-error@+1 {{'tile.iota': axis 1 is outside the dimensions of tensor<8xi32>}}
  %26 = tile.iota axis 1 : tensor<8xi32>
  // expected-error@+1 {{'tile.iota': iota gives i32 or i64, found f32}}
  %27 = tile.iota axis 0 : tensor<8xf32>
  // expected-error@+1 {{'tile.cast': a cast keeps the shape, found (8,) and (16,)}}
  %28 = tile.cast %v : tensor<8xf32> -> tensor<16xf16>
  // expected-error@+1 {{'tile.cast': a cast takes a tile to a tile or a scalar to a scalar}}
  %29 = tile.cast %v : tensor<8xf32> -> f16
  // expected-error@+1 {{'tile.cast': 'saturate' is for casts to floats; casts to integers say it by their type}}
  %30 = tile.cast saturate %v : tensor<8xf32> -> tensor<8xi32>
  // expected-error@+1 {{'tile.cast': cast: i7 is no element type; known: f16, bf16, f32, f64, f8E4M3FN, f8E5M2, i1, i8, i16, i32, i64, ui8, index}}
  %31 = tile.cast %v : tensor<8xf32> -> tensor<8xi7>
  // expected-error@+1 {{'tile.cmp': eq does not compare f32: oeq, one, olt … une, ult … for floats; eq, ne, slt, sle, sgt, sge for integers}}
  %32 = tile.cmp eq %v, %v : tensor<8xf32> -> tensor<8xi1>
  // expected-error@+1 {{'tile.cmp': olt does not compare i32: oeq, one, olt … une, ult … for floats; eq, ne, slt, sle, sgt, sge for integers}}
  %33 = tile.cmp olt %n, %n : tensor<8xi32> -> tensor<8xi1>
  // expected-error@+1 {{'tile.cmp': the result must be tensor<8xi1>, found i1}}
  %34 = tile.cmp slt %n, %n : tensor<8xi32> -> i1
  // expected-error@+1 {{'tile.select': the condition must be tensor<8xi1>, found i1}}
  %35 = tile.select %p, %v, %v : i1, tensor<8xf32>
  // expected-error@+1 {{'tile.constant': tile.constant is "inf", "-inf" or "nan" (finite ones are arith.constant), found "1.5"}}
  %36 = tile.constant "1.5" : f32
  // expected-error@+1 {{'tile.constant': tile.constant gives a float, found i32}}
  %37 = tile.constant "inf" : i32
}

// -----

tile.kernel @k(%A: memref<?x?xf32> [M, N], %p: i1, %f: f32, %h: f16, %i: i32) grid(%g = M) {
  // expected-error@+1 {{operand is used with type f32, but has been previously used or defined with type f16}}
  %0 = tile.load %A[%g, %g] else %h : memref<?x?xf32> -> tensor<8x16xf32>
}

// -----

tile.kernel @k(%A: memref<?x?xf32> [M, N], %p: i1, %f: f32, %h: f16, %i: i32) grid(%g = M) {
  // expected-error@+1 {{operand is used with type index, but has been previously used or defined with type i32}}
  %0 = tile.load %A[%i, %g] : memref<?x?xf32> -> tensor<8x16xf32>
}

// -----

tile.kernel @k(%A: memref<?x?xf32> [M, N], %p: i1, %f: f32, %h: f16, %i: i32) grid(%g = M) {
  %a = tile.full %f : f32 -> tensor<8x16xf32>
  %b = tile.full %f : f32 -> tensor<16x8xf32>
  // expected-error@+1 {{tile.dot takes three operands (lhs, rhs, accumulator), found 2}}
  %0 = tile.dot %a, %b : tensor<8x16xf32>, tensor<16x8xf32> -> tensor<8x8xf32>
}

// -----

tile.kernel @k(%A: memref<?x?xf32> [M, N], %p: i1, %f: f32, %h: f16, %i: i32) grid(%g = M) {
  %a = tile.full %f : f32 -> tensor<8x16xf32>
  // expected-error@+1 {{expected `sum`, `prod`, `max`, `min`, `argmax`, or `argmin`}}
  %0 = tile.reduce mean %a axis 1 : tensor<8x16xf32> -> tensor<8xf32>
}

// -----

tile.kernel @k(%A: memref<?x?xf32> [M, N], %p: i1, %f: f32, %h: f16, %i: i32) grid(%g = M) {
  %n = tile.full %i : i32 -> tensor<8xi32>
  // expected-error@+1 {{expected `oeq`, `one`, `olt`, `ole`, `ogt`, `oge`, `ueq`, `une`, `ult`, `ule`, `ugt`, `uge`, `eq`, `ne`, `slt`, `sle`, `sgt`, or `sge`}}
  %0 = tile.cmp lt %n, %n : tensor<8xi32> -> tensor<8xi1>
}

// -----

tile.kernel @k(%A: memref<?x?xf32> [M, N], %p: i1, %f: f32, %h: f16, %i: i32) grid(%g = M) {
  %v = tile.full %f : f32 -> tensor<8xf32>
  // expected-error@+1 {{tile.select takes three operands, found 2}}
  %0 = tile.select %p, %v : i1, tensor<8xf32>
}

// -----

tile.kernel @k(%A: memref<?x?xf32> [M, N], %p: i1, %f: f32, %h: f16, %i: i32) grid(%g = M) {
  %c = tile.full %f : f32 -> tensor<8x8xf32>
  %v = tile.full %f : f32 -> tensor<8xf32>
  // expected-error@+1 {{operand is used with type tensor<8xf32>, but has been previously used or defined with type tensor<8x8xf32>}}
  %0 = arith.addf %v, %c : tensor<8xf32>
}

// -----

tile.kernel @k(%A: memref<?x?xf32> [M, N], %p: i1, %f: f32, %h: f16, %i: i32) grid(%g = M) {
  %v = tile.full %f : f32 -> tensor<8xf32>
  // expected-error@+1 {{'arith.addi' does not take f32 here}}
  %0 = arith.addi %v, %v : tensor<8xf32>
}

// -----

tile.kernel @k(%A: memref<?x?xf32> [M, N], %p: i1, %f: f32, %h: f16, %i: i32) grid(%g = M) {
  %n = tile.full %i : i32 -> tensor<8xi32>
  // expected-error@+2 {{'arith.sitofp': an integer type is required, found tensor<8xi32>}}
  // expected-hint@+1 {{tiles are cast with tile.cast}}
  %0 = arith.sitofp %n : tensor<8xi32> to tensor<8xf32>
}

// -----

tile.kernel @k(%A: memref<?x?xf32> [M, N], %p: i1, %f: f32, %h: f16, %i: i32) grid(%g = M) {
  %n = tile.full %i : i32 -> tensor<8xi32>
  // expected-error@+1 {{'math.exp' does not take i32 here}}
  %0 = math.exp %n : tensor<8xi32>
}

// -----

// expected-error@+1 {{'tile.kernel': argument %A has 2 dimensions, its stated shape has 1: state one dimension for each, as in [M, N]}}
tile.kernel @k(%A: memref<?x?xf32> [M]) grid(%g = M) {
}

// -----

// expected-error@+1 {{'tile.kernel': argument %A has 1 dimensions, its type states 2 strides: state one for each dimension, as in strided<[?, 1]>}}
tile.kernel @k(%A: memref<?xf32, strided<[?, 1]>> [M]) grid(%g = M) {
}

// -----

// expected-error@+1 {{an element type is required, such as f32 or bf16}}
tile.kernel @k(%A: memref<?xf33> [M]) grid(%g = M) {
}

// -----

// A sigil without a name.
// expected-error@+1 {{a name is required after '%', '@', '#', '!' or '^'}}
tile.kernel @k(% : f32) grid(%g = 1) {
}

// -----

// expected-error@+1 {{'tile.kernel': argument %A has 2 dimensions, its stated shape has 0: state one dimension for each, as in [M, N]}}
tile.kernel @k(%A: memref<?x?xf32>) grid(%g = 1) {
}

// -----

// expected-error@+1 {{'tile.kernel': argument %f of type f32 is no array and has no shape}}
tile.kernel @k(%f: f32 [M]) grid(%g = 1) {
}

// -----

// expected-error@+1 {{'tile.kernel': dimension K is the extent of no argument: its value cannot be known at launch}}
tile.kernel @k(%A: memref<?xf32> [M]) dims(%k = K) grid(%g = M) {
}

// -----

// expected-error@+1 {{'tile.kernel': grid: dimension K is the extent of no argument}}
tile.kernel @k(%A: memref<?xf32> [M]) grid(%g = K) {
}

// -----

// expected-error@+1 {{'tile.kernel': a grid has one to three coordinates, found 0}}
tile.kernel @k(%A: memref<?xf32> [M]) grid() {
}

// -----

// expected-error@+1 {{'tile.kernel': a grid has one to three coordinates, found 4}}
tile.kernel @k(%A: memref<?xf32> [M]) grid(%g = M, %h = M, %i = M, %j = M) {
}

// -----

// expected-error@+1 {{expected 'grid'}}
tile.kernel @k(%A: memref<?xf32> [M]) {
}

// -----

// expected-error@+1 {{'tile.kernel': argument %A: align must be a power of two from 1 to 256}}
tile.kernel @k(%A: memref<?xf32> [M] {align = 3 : i64}) grid(%g = M) {
}

// -----

// expected-error@+1 {{'tile.kernel': argument %A: unknown attribute 'aligned', an argument may have: align, noalias}}
tile.kernel @k(%A: memref<?xf32> [M] {aligned}) grid(%g = M) {
}

// -----

// expected-error@+1 {{'tile.kernel': dimension M: a divisor must be positive}}
tile.kernel @k(%A: memref<?xf32> [M]) dims(%m = M divisible 0) grid(%g = M) {
}

// -----

// expected-error@+1 {{'tile.kernel': argument %A: i7 is no element type; known: f16, bf16, f32, f64, f8E4M3FN, f8E5M2, i1, i8, i16, i32, i64, ui8, index}}
tile.kernel @k(%A: memref<?xi7> [M]) grid(%g = M) {
}

// -----

// expected-error@+1 {{'tile.kernel': argument %A: extent 4 of the type, but M is stated}}
tile.kernel @k(%A: memref<4xf32> [M]) grid(%g = 1) {
}

// -----

// expected-error@+1 {{dimension expression 'M ceildiv' ends too early}}
tile.kernel @k(%A: memref<?xf32> [M]) grid(%g = M ceildiv) {
}

// -----

// expected-error@+1 {{'tile.kernel': M ceildiv 0: the divisor must be positive}}
tile.kernel @k(%A: memref<?xf32> [M]) grid(%g = M ceildiv 0) {
}

// -----

// expected-error@+1 {{'tile.kernel': argument %A: the memref's layout must be strided<[…]>}}
tile.kernel @k(%A: memref<?x?xf32, affine_map<(d0, d1) -> (d1, d0)>> [M, N]) grid(%g = M) {
}

// -----

// expected-error@+1 {{'tile.kernel': argument %A: tensor<8xf32> is no element type; known: f16, bf16, f32, f64, f8E4M3FN, f8E5M2, i1, i8, i16, i32, i64, ui8, index}}
tile.kernel @k(%A: tensor<8xf32>) grid(%g = 1) {
}

// -----

tile.kernel @k(%x: memref<?xf32> [N]) grid(%g = N) {
  %0 = tile.load %x[%g] : memref<?xf32> -> tensor<1048576xf32>
  // expected-error@+2 {{'tile.load': a tile has at most 1048576 elements, found 1048577}}
  // expected-hint@+1 {{a block holds its tiles in registers, 256 KiB in all: take a smaller tile, in a loop}}
  %1 = tile.load %x[%g] : memref<?xf32> -> tensor<1048577xf32>
}

// -----

tile.kernel @outer(%x: memref<?xf32> [N]) grid(%g = N) {
  // expected-error@+1 {{'tile.kernel': a kernel stands in a module, found one inside of @outer}}
  tile.kernel @inner(%y: memref<?xf32> [N]) grid(%h = N) {
  }
}
