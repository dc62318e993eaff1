// Kernels that stay as they are, though their attribute asks for roles, and why.
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,specialize-warps" --target sm_90a --split-input-file --verify-diagnostics

// A tile whose place depends on another tile's elements.
// expected-note@+1 {{the kernel's warps are not specialised: where a tile starts depends on the elements of one}}
tile.kernel @place(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K] {align = 16}, %P: memref<?xi32> [K], %C: memref<?x?xf32, strided<[?, 1]>> [M, M] {noalias})
    dims(%K = K) grid(%bm = M) attributes {warp_specialize = true} {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> tensor<64x64xf32>
  %acc = scf.for %k = %c0 to %K step %c64 iter_args(%c = %zero) -> (tensor<64x64xf32>) {
    %p = tile.load %P[%k] : memref<?xi32> -> tensor<64xi32>
    %most = tile.reduce max %p axis 0 : tensor<64xi32> -> i32
    %row = arith.index_cast %most : i32 to index
    %a = tile.load %A[%row, %k] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<64x64xbf16>
    %d = tile.dot %a, %a, %c : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
    scf.yield %d : tensor<64x64xf32>
  }
  tile.store %acc, %C[%c0, %c0] : tensor<64x64xf32>, memref<?x?xf32, strided<[?, 1]>>
}

// -----

// expected-note@+1 {{the kernel's warps are not specialised: a tile is loaded by cp.async, not by TMA}}
tile.kernel @copy(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K] {align = 8}, %C: memref<?x?xf32, strided<[?, 1]>> [M, M] {noalias})
    dims(%K = K) grid(%bm = M) attributes {warp_specialize = true} {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> tensor<64x64xf32>
  %acc = scf.for %k = %c0 to %K step %c64 iter_args(%c = %zero) -> (tensor<64x64xf32>) {
    %a = tile.load %A[%c0, %k] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<64x64xbf16>
    %d = tile.dot %a, %a, %c : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
    scf.yield %d : tensor<64x64xf32>
  }
  tile.store %acc, %C[%c0, %c0] : tensor<64x64xf32>, memref<?x?xf32, strided<[?, 1]>>
}

// -----

// expected-error@+1 {{warp_specialize must be true or false, found 1 : i64}}
tile.kernel @kind(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K]) grid(%bm = M) attributes {warp_specialize = 1 : i64, warps = 4 : i64} {
}
