// Layouts are attributes of tensors and buffers, kept in normal form; layout.convert changes a tensor's layout.
// RUN: tesela-opt %s | FileCheck %s
// RUN: tesela-opt %s | tesela-opt - | FileCheck %s

// The accumulator of wgmma, 64 columns wide, is the A operand of the next product: its text, split by K-steps, is the same layout.
// CHECK-DAG: [[ACC:#[a-z0-9_]+]] = #layout.tv<thread [4:(0,2), 8:(1,0), 4:(16,0)], value [2:(0,1), 2:(8,0), 8:(0,8)]>
// CHECK-DAG: [[ROWS:#[a-z0-9_]+]] = #layout.tv<thread [8:(0,8), 16:(1,0)], value [8:(0,1), 4:(16,0)]>
#operand = #layout.tv<thread [4:(0,2), 8:(1,0), 4:(16,0)], value [2:(0,1), 2:(8,0), 2:(0,8), 4:(0,16)]>
#rows = #layout.tv<thread [8:(0,8), 16:(1,0)], value [8:(0,1), 4:(16,0)]>

// CHECK: func.func @convert(%x: tensor<64x64xf32, [[ACC]]>) -> tensor<64x64xf32, [[ROWS]]>
func.func @convert(%x: tensor<64x64xf32, #operand>) -> tensor<64x64xf32, #rows> {
  // CHECK: %y = layout.convert %x : tensor<64x64xf32, [[ACC]]> -> tensor<64x64xf32, [[ROWS]]>
  %y = layout.convert %x : tensor<64x64xf32, #operand> -> tensor<64x64xf32, #rows>
  func.return %y : tensor<64x64xf32, #rows>
}

// A tile of any extents: the layout covers them rounded up, and what lies beyond is padding.
// CHECK: @padded(%x: tensor<60x50xf32, [[ROWS]]>)
func.func @padded(%x: tensor<60x50xf32, #rows>) {
  // CHECK: layout.convert %x : tensor<60x50xf32, [[ROWS]]> -> tensor<60x50xf32, [[ACC]]>
  %y = layout.convert %x : tensor<60x50xf32, #rows> -> tensor<60x50xf32, #operand>
  func.return
}

// CHECK: @buffer(%b: !async.buffer<128x64xbf16, #layout.shared<[128:64], [64:1], swizzle<3, 3, 3>>>)
func.func @buffer(%b: !async.buffer<128x64xbf16, #layout.shared<[64:64, 2:4096], [64:1], swizzle<3, 3, 3>>>) {
  func.return
}
