// Rows whose loops are the longer the further down they are: from the heaviest to the lightest, or as they come.
// RUN: tesela-opt %s -p "persist-grid{when=always},verify" --target sm_90a | FileCheck %s --check-prefix=FAIR
// RUN: tesela-opt %s -p "persist-grid{when=always fair=false},verify" --target sm_90a | FileCheck %s --check-prefix=PLAIN

// Dealt out forth and back: the point of a round depends on whether the round is an odd one.
// FAIR: tile.block_index
// FAIR: scf.for
// FAIR: arith.select
// FAIR: scf.for %k

// PLAIN: tile.block_index
// PLAIN-NOT: arith.select
// PLAIN: scf.for %k
tile.kernel @triangle(%x: memref<?x?xi32, strided<[?, 1]>> [X, N], %y: memref<?xi32> [X]) dims(%N = N) grid(%i = X) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0 : i32
  %end = arith.addi %i, %c1 : index
  %sum = scf.for %k = %c0 to %end step %c1 iter_args(%s = %zero) -> (i32) {
    %v = tile.load %x[%i, %k] : memref<?x?xi32, strided<[?, 1]>> -> i32
    %u = arith.addi %s, %v : i32
    scf.yield %u : i32
  }
  tile.store %sum, %y[%i] : i32, memref<?xi32>
}
