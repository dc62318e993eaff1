// C = A·Bᵀ: bf16 operands, f32 sums, one block for each 128×256 tile of C.
tile.kernel @gemm(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K], %B: memref<?x?xbf16, strided<[?, 1]>> [N, K],
                  %C: memref<?x?xf32, strided<[?, 1]>> [M, N])
    dims(%K = K) grid(%bm = M ceildiv 128, %bn = N ceildiv 256) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %c256 = arith.constant 256 : index
  %m = arith.muli %bm, %c128 : index
  %n = arith.muli %bn, %c256 : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> tensor<128x256xf32>
  %acc = scf.for %k = %c0 to %K step %c64 iter_args(%c = %zero) -> (tensor<128x256xf32>) {
    %a = tile.load %A[%m, %k] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<128x64xbf16>
    %b = tile.load %B[%n, %k] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<256x64xbf16>
    %t = tile.transpose %b [1, 0] : tensor<256x64xbf16> -> tensor<64x256xbf16>
    %d = tile.dot %a, %t, %c : tensor<128x64xbf16>, tensor<64x256xbf16> -> tensor<128x256xf32>
    scf.yield %d : tensor<128x256xf32>
  }
  tile.store %acc, %C[%m, %n] : tensor<128x256xf32>, memref<?x?xf32, strided<[?, 1]>>
}
