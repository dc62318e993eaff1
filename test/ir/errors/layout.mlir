// Wrong layouts, aliases and conversions.
// RUN: tesela-opt %s --split-input-file --verify-diagnostics --allow-unregistered-dialect

#t = #layout.tv<thread [128:(1,0)], value [16:(0,1)]>
tile.kernel @k(%f: f32, %A: memref<?xf32> [M]) grid(%g = M) {
  %x = tile.full %f : f32 -> tensor<128x16xf32, #t>
  // expected-error@+1 {{'layout.convert': changes the layout only, but the tile changes too: tensor<128x16xf32> became tensor<16x128xf32>}}
  %0 = layout.convert %x : tensor<128x16xf32, #t> -> tensor<16x128xf32, #layout.tv<thread [128:(0,1)], value [16:(1,0)]>>
  // expected-error@+1 {{'layout.convert': the result needs a thread-value layout, as in tensor<16x8xf32, #layout.tv<thread [...], value [...]>>}}
  %1 = layout.convert %x : tensor<128x16xf32, #t> -> tensor<128x16xf32>
  // expected-error@+1 {{'layout.convert': the result's layout leaves elements of tensor<128x16xf32> without a holder: it reaches 64x16 (thread [64:(1,0)], value [16:(0,1)])}}
  %2 = layout.convert %x : tensor<128x16xf32, #t> -> tensor<128x16xf32, #layout.tv<thread [64:(1,0)], value [16:(0,1)]>>
  // expected-error@+1 {{'layout.convert': operand 'source': a tensor is required, found f32}}
  %3 = layout.convert %f : f32 -> f32
}

// -----

#t = #layout.tv<thread [128:(1,0)], value [16:(0,1)]>
tile.kernel @k(%f: f32, %A: memref<?xf32> [M]) grid(%g = M) {
  %x = tile.full %f : f32 -> tensor<128x16xf32, #t>
  // expected-error@+1 {{operand is used with type tensor<128x16xf32>, but has been previously used or defined with type tensor<128x16xf32, #layout.tv<thread [128:(1,0)], value [16:(0,1)]>>}}
  %0 = arith.addf %x, %x : tensor<128x16xf32>
}

// -----

// expected-error@+1 {{layout thread [128:(1,0)], value [16:(1)]: every stride must have one entry per dimension, but their lengths differ}}
"test.op"() {a = #layout.tv<thread [128:(1,0)], value [16:(1)]>} : () -> ()

// -----

// expected-error@+1 {{mode 0:(1,0): the extent must be at least 1 and no stride may be negative}}
"test.op"() {a = #layout.tv<thread [0:(1,0)], value []>} : () -> ()

// -----

// expected-error@+1 {{expected ','}}
"test.op"() {a = #layout.tv<thread [4:(1,0)]>} : () -> ()

// -----

// expected-error@+1 {{swizzle<3, 3, 0>: bits and base must not be negative, and |shift| must be at least bits}}
"test.op"() {a = #layout.shared<[128:64], [64:1], swizzle<3, 3, 0>>} : () -> ()

// -----

// expected-error@+1 {{undefined symbol alias '#mine'}}
"test.op"() {a = #mine} : () -> ()

// -----

#mine = #layout.tv<thread [4:(1)], value []>
// expected-error@+1 {{re-declaration of alias '#mine'}}
#mine = #layout.tv<thread [4:(1)], value []>

// -----

tile.kernel @k(%f: f32, %A: memref<?xf32> [M]) grid(%g = M) {
  %x = tile.full %f : f32 -> tensor<8xf32, #layout.tv<thread [8:(1), 4:(0)], value []>>
  // expected-error@+1 {{'layout.convert': both layouts must be for the same threads, but the operand's is for 32 and the result's for 64}}
  %0 = layout.convert %x : tensor<8xf32, #layout.tv<thread [8:(1), 4:(0)], value []>> -> tensor<8xf32, #layout.tv<thread [8:(1), 8:(0)], value []>>
  %y = tile.full %f : f32 -> tensor<8xf32>
  // expected-error@+1 {{'layout.convert': the operand needs a thread-value layout, as in tensor<16x8xf32, #layout.tv<thread [...], value [...]>>}}
  %1 = layout.convert %y : tensor<8xf32> -> tensor<8xf32, #layout.tv<thread [8:(1), 4:(0)], value []>>
}

// -----

// expected-error@+1 {{the layout is larger than any tile can be: its elements are 18446744073709551616, at most 16777216 are allowed}}
"test.op"() {a = #layout.tv<thread [18446744073709551616:(1)], value []>} : () -> ()

// -----

// expected-error@+1 {{the layout is larger than any tile can be: its threads are 33554432, at most 16777216 are allowed}}
"test.op"() {a = #layout.tv<thread [33554432:(0)], value []>} : () -> ()

// -----

// expected-error@+1 {{the layout is larger than any tile can be: the values of a thread are 33554432, at most 16777216 are allowed}}
"test.op"() {a = #layout.tv<thread [4:(1)], value [33554432:(0)]>} : () -> ()

// -----

// expected-error@+1 {{the layout is larger than any tile can be: the places of its buffer are 1000000001, at most 16777216 are allowed}}
"test.op"() {a = #layout.shared<[2:1000000000]>} : () -> ()
