// What loops need of the thread and of parameters is computed at the top; what only code behind a loop needs is computed behind it.
// RUN: tesela-opt %s -p infer-layouts,alloc-shared,tile-to-ptx --target sm_80 | FileCheck %s

// CHECK-LABEL: ptx.kernel @sums
// CHECK: ptx.param "s_A_0"
// CHECK-NOT: ptx.param "{{[ps]}}_C
// CHECK: ptx.for
// CHECK: ld.global
// CHECK: ptx.yield
// CHECK: ptx.param "s_C_0"
// CHECK: ptx.param "p_C"
// CHECK: st.global
tile.kernel @sums(%A: memref<?x?xf32, strided<[?, 1]>> [M, N], %C: memref<?x?xf32, strided<[?, 1]>> [M, N]) dims(%N = N) grid(%g = M) attributes {warps = 4 : i64} {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> tensor<8x64xf32>
  %sum = scf.for %j = %c0 to %N step %c64 iter_args(%s = %zero) -> (tensor<8x64xf32>) {
    %a = tile.load %A[%g, %j] : memref<?x?xf32, strided<[?, 1]>> -> tensor<8x64xf32>
    %t = arith.addf %s, %a : tensor<8x64xf32>
    scf.yield %t : tensor<8x64xf32>
  }
  tile.store %sum, %C[%g, %c0] : tensor<8x64xf32>, memref<?x?xf32, strided<[?, 1]>>
}
