// Both operands of a dot travel through channels, each put before it is got, and released once when it was read.
// RUN: tesela-opt %s -p plan-dataflow --target sm_80 | FileCheck %s --check-prefix=SM80
// RUN: tesela-opt %s -p plan-dataflow --target sm_90a | FileCheck %s --check-prefix=SM90
// RUN: not tesela-opt %s -p plan-dataflow 2>&1 | FileCheck %s --check-prefix=NONE
// NONE: error: pass 'plan-dataflow' needs a target
// NONE-NEXT: hint: name one, as in --target sm_90a

// SM80: async.put [[A:%.+]], %A[%m, %k]
// SM80: async.put [[B:%.+]], %B[%n, %k]
// SM80: [[SA:%.+]] = async.get [[A]]
// SM80: [[SB:%.+]] = async.get [[B]]
// SM80-DAG: [[RA:%.+]] = async.read [[SA]]
// SM80-DAG: [[ST:%.+]] = async.transpose [[SB]] [1, 0]
// SM80: [[RB:%.+]] = async.read [[ST]]
// SM80: tile.dot [[RA]], [[RB]], %c
// SM80-DAG: async.release [[A]] :
// SM80-DAG: async.release [[B]] :
// SM80: scf.yield
// SM90: async.put [[A:%.+]], %A[%m, %k]
// SM90: async.put [[B:%.+]], %B[%n, %k]
// SM90: [[SA:%.+]] = async.get [[A]]
// SM90: [[SB:%.+]] = async.get [[B]]
// SM90: [[ST:%.+]] = async.transpose [[SB]] [1, 0]
// SM90: [[P:%.+]], [[READ:%.+]] = async.dot [[SA]], [[ST]], %c
// SM90: async.await [[P]]
// SM90-DAG: async.release [[A]] after [[READ]]
// SM90-DAG: async.release [[B]] after [[READ]]
// SM90: scf.yield
tile.kernel @gemm(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K], %B: memref<?x?xbf16, strided<[?, 1]>> [N, K],
                  %C: memref<?x?xf32, strided<[?, 1]>> [M, N])
    dims(%K = K) grid(%m = M, %n = N) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> tensor<128x128xf32>
  %acc = scf.for %k = %c0 to %K step %c64 iter_args(%c = %zero) -> (tensor<128x128xf32>) {
    %a = tile.load %A[%m, %k] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<128x64xbf16>
    %b = tile.load %B[%n, %k] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<128x64xbf16>
    %t = tile.transpose %b [1, 0] : tensor<128x64xbf16> -> tensor<64x128xbf16>
    %d = tile.dot %a, %t, %c : tensor<128x64xbf16>, tensor<64x128xbf16> -> tensor<128x128xf32>
    scf.yield %d : tensor<128x128xf32>
  }
  tile.store %acc, %C[%m, %n] : tensor<128x128xf32>, memref<?x?xf32, strided<[?, 1]>>
}
