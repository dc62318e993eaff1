// Loops that are left whole, and why.
// RUN: tesela-opt %s -p "split-reduction{parts=3}" --split-input-file --verify-diagnostics

// expected-note@+1 {{the kernel is not split: it has no loop that carries tiles}}
tile.kernel @nothing(%x: memref<?xf32> [N]) grid(%i = N) {
}

// -----

// expected-note@+1 {{the kernel is not split: what its loop carries is no sum alone}}
tile.kernel @maximum(%x: memref<?x8xf32> [N, 8], %y: memref<?x8xf32> [N, 8]) dims(%N = N) grid(%i = N) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> tensor<8xf32>
  %top = scf.for %k = %c0 to %N step %c1 iter_args(%s = %zero) -> (tensor<8xf32>) {
    %v = tile.load %x[%k, %c0] : memref<?x8xf32> -> tensor<8xf32>
    %t = arith.maximumf %v, %s : tensor<8xf32>
    scf.yield %t : tensor<8xf32>
  }
  tile.store %top, %y[%i, %c0] : tensor<8xf32>, memref<?x8xf32>
}

// -----

// A sum that is read on the way: what is added depends on it.
// expected-note@+1 {{the kernel is not split: what its loop carries is no sum alone}}
tile.kernel @doubled(%x: memref<?x8xf32> [N, 8], %y: memref<?x8xf32> [N, 8]) dims(%N = N) grid(%i = N) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> tensor<8xf32>
  %sum = scf.for %k = %c0 to %N step %c1 iter_args(%s = %zero) -> (tensor<8xf32>) {
    %t = arith.addf %s, %s : tensor<8xf32>
    scf.yield %t : tensor<8xf32>
  }
  tile.store %sum, %y[%i, %c0] : tensor<8xf32>, memref<?x8xf32>
}

// -----

// expected-note@+1 {{the kernel is not split: its loop carries tensor<8xbf16>, which is no tile of numbers to add up}}
tile.kernel @narrow(%x: memref<?x8xbf16> [N, 8], %y: memref<?x8xbf16> [N, 8]) dims(%N = N) grid(%i = N) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %f0 = arith.constant 0.0 : bf16
  %zero = tile.full %f0 : bf16 -> tensor<8xbf16>
  %sum = scf.for %k = %c0 to %N step %c1 iter_args(%s = %zero) -> (tensor<8xbf16>) {
    %v = tile.load %x[%k, %c0] : memref<?x8xbf16> -> tensor<8xbf16>
    %t = arith.addf %s, %v : tensor<8xbf16>
    scf.yield %t : tensor<8xbf16>
  }
  tile.store %sum, %y[%i, %c0] : tensor<8xbf16>, memref<?x8xbf16>
}

// -----

// expected-note@+1 {{the kernel is not split: before such a loop it stores, or plans its own copies}}
tile.kernel @stores(%x: memref<?x8xf32> [N, 8], %y: memref<?x8xf32> [N, 8]) dims(%N = N) grid(%i = N) {
  %c0 = arith.constant 0 : index
  %v = tile.load %x[%i, %c0] : memref<?x8xf32> -> tensor<8xf32>
  tile.store %v, %y[%i, %c0] : tensor<8xf32>, memref<?x8xf32>
}

// -----

// expected-error@+1 {{split must be a number from 1 to 16, found 17 : i64}}
tile.kernel @many(%x: memref<?xf32> [N]) grid(%i = N) attributes {split = 17 : i64} {
}
