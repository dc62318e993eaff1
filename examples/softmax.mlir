// y = softmax(x) along each row; a block takes one row, in pieces of 1024 columns (two passes: maximum and sum, then the result). A row of
// nothing but -inf gives zeros: the maximum is kept finite, so that exp(-inf - maximum) is 0, and the sum positive.
tile.kernel @softmax(%x: memref<?x?xf32, strided<[?, 1]>> [M, N], %y: memref<?x?xf32, strided<[?, 1]>> [M, N])
    dims(%N = N) grid(%row = M) {
  %c0 = arith.constant 0 : index
  %c1024 = arith.constant 1024 : index
  %f0 = arith.constant 0.0 : f32
  %minus_inf = tile.constant "-inf" : f32
  %lowest = arith.constant -1.0e38 : f32
  %tiny = arith.constant 1.0e-30 : f32
  // The running maximum and the running sum of exp(x - maximum): rescaled whenever the maximum grows.
  %max, %sum = scf.for %j = %c0 to %N step %c1024 iter_args(%m = %lowest, %s = %f0) -> (f32, f32) {
    %v = tile.load %x[%row, %j] else %minus_inf : memref<?x?xf32, strided<[?, 1]>> -> tensor<1024xf32>
    %piece_max = tile.reduce max %v axis 0 : tensor<1024xf32> -> f32
    %new_max = arith.maximumf %m, %piece_max : f32
    %t = tile.full %new_max : f32 -> tensor<1024xf32>
    %d = arith.subf %v, %t : tensor<1024xf32>
    %e = math.exp %d : tensor<1024xf32>
    %piece_sum = tile.reduce sum %e axis 0 : tensor<1024xf32> -> f32
    %change = arith.subf %m, %new_max : f32
    %scale = math.exp %change : f32
    %scaled = arith.mulf %s, %scale : f32
    %new_sum = arith.addf %scaled, %piece_sum : f32
    scf.yield %new_max, %new_sum : f32, f32
  }
  %divisor = arith.maximumf %sum, %tiny : f32
  scf.for %j = %c0 to %N step %c1024 {
    %v = tile.load %x[%row, %j] : memref<?x?xf32, strided<[?, 1]>> -> tensor<1024xf32>
    %t = tile.full %max : f32 -> tensor<1024xf32>
    %d = arith.subf %v, %t : tensor<1024xf32>
    %e = math.exp %d : tensor<1024xf32>
    %total = tile.full %divisor : f32 -> tensor<1024xf32>
    %r = arith.divf %e, %total : tensor<1024xf32>
    tile.store %r, %y[%row, %j] : tensor<1024xf32>, memref<?x?xf32, strided<[?, 1]>>
  }
}
