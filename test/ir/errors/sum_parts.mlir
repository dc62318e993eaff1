// What tile.sum_parts does not take.
// RUN: tesela-opt %s --split-input-file --verify-diagnostics


tile.kernel @one(%n_array: memref<?xi32> [N]) grid(%i = N) {
  %n = tile.load %n_array[%i] : memref<?xi32> -> tensor<8xi32>
  // expected-error@+1 {{'tile.sum_parts': there must be 2 to 16 parts, found 1}}
  %all, %last = tile.sum_parts %n at %i part %i of 1 : tensor<8xi32>
}

// -----

tile.kernel @narrow(%n_array: memref<?xbf16> [N]) grid(%i = N) {
  %n = tile.load %n_array[%i] : memref<?xbf16> -> tensor<8xbf16>
  // expected-error@+1 {{'tile.sum_parts': what is added up has elements of 32 bits, found bf16}}
  %all, %last = tile.sum_parts %n at %i part %i of 2 : tensor<8xbf16>
}
