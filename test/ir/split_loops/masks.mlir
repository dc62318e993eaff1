// Loops are split where a comparison of places becomes true, or ceases to be, and the trips in which it is true do without.
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,split-loops,verify" --target sm_80 | FileCheck %s
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,split-loops{values=0},verify" --target sm_80 | FileCheck %s --check-prefix=WHOLE
// RUN: tesela-opt %s -p "plan-dataflow,infer-layouts,split-loops{values=1000},verify" --target sm_80 | FileCheck %s --check-prefix=WHOLE

// WHOLE-LABEL: tile.kernel @end
// WHOLE: scf.for
// WHOLE: tile.select
// WHOLE-NOT: scf.for
// WHOLE-LABEL: tile.kernel @both

// Columns past the end: true for j < N - 1023, as long as N - j fits 32 bits.
// CHECK-LABEL: tile.kernel @end
// CHECK: [[LIMIT:%[0-9]+]] = arith.addi {{%[0-9]+}}, %N : index
// CHECK: arith.cmpi sle
// CHECK: [[TRIPS:%[0-9]+]] = arith.select {{%[0-9]+}}, {{%[0-9]+}}, {{%[0-9]+}} : index
// CHECK: [[AT:%[0-9]+]] = arith.muli [[TRIPS]], %c1024
// CHECK: [[SPLIT:%[0-9]+]] = arith.addi %c0, [[AT]]
// CHECK: [[FIRST:%[a-z0-9_]+]] = scf.for %j = %c0 to [[SPLIT]] step %c1024
// CHECK-NOT: tile.select
// CHECK: scf.yield
// CHECK: scf.for {{%[a-z0-9_]+}} = [[SPLIT]] to %N step %c1024 iter_args({{%[a-z0-9_]+}} = [[FIRST]])
// CHECK: tile.cmp slt
// CHECK: tile.select
// CHECK: tile.store
tile.kernel @end(%x: memref<?xf32> [N], %y: memref<?xf32> [R]) dims(%N = N) grid(%r = R) {
  %c0 = arith.constant 0 : index
  %c1024 = arith.constant 1024 : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> tensor<1024xf32>
  %total = scf.for %j = %c0 to %N step %c1024 iter_args(%t = %zero) -> (tensor<1024xf32>) {
    %v = tile.load %x[%j] : memref<?xf32> -> tensor<1024xf32>
    %place = tile.iota axis 0 : tensor<1024xi32>
    %left = arith.subi %N, %j : index
    %narrow = tile.cast %left : index -> i32
    %bound = tile.full %narrow : i32 -> tensor<1024xi32>
    %in = tile.cmp slt %place, %bound : tensor<1024xi32> -> tensor<1024xi1>
    %fill = tile.full %f0 : f32 -> tensor<1024xf32>
    %s = tile.select %in, %v, %fill : tensor<1024xi1>, tensor<1024xf32>
    %u = arith.addf %t, %s : tensor<1024xf32>
    scf.yield %u : tensor<1024xf32>
  }
  %sum = tile.reduce sum %total axis 0 : tensor<1024xf32> -> f32
  tile.store %sum, %y[%r] : f32, memref<?xf32>
}

// A window: true from some trip on for one comparison, and up to some trip for the other. Three loops; places of 64 bits fit.
// CHECK-LABEL: tile.kernel @both
// CHECK-NOT: arith.cmpi
// CHECK: scf.for
// CHECK: tile.select
// CHECK: scf.for
// CHECK-NOT: tile.select
// CHECK: scf.yield
// CHECK: scf.for
// CHECK: tile.select
// CHECK: tile.store
tile.kernel @both(%x: memref<?xf32> [N], %y: memref<?xf32> [R]) dims(%N = N) grid(%r = R) {
  %c0 = arith.constant 0 : index
  %c1024 = arith.constant 1024 : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> tensor<1024xf32>
  %total = scf.for %j = %c0 to %N step %c1024 iter_args(%t = %zero) -> (tensor<1024xf32>) {
    %v = tile.load %x[%j] : memref<?xf32> -> tensor<1024xf32>
    %place = tile.iota axis 0 : tensor<1024xi64>
    %wide = tile.cast %j : index -> i64
    %start = tile.full %wide : i64 -> tensor<1024xi64>
    %at = arith.addi %place, %start : tensor<1024xi64>
    %first = tile.cast %r : index -> i64
    %low = tile.full %first : i64 -> tensor<1024xi64>
    %above = tile.cmp sge %at, %low : tensor<1024xi64> -> tensor<1024xi1>
    %all = tile.cast %N : index -> i64
    %high = tile.full %all : i64 -> tensor<1024xi64>
    %below = tile.cmp slt %at, %high : tensor<1024xi64> -> tensor<1024xi1>
    %in = arith.andi %above, %below : tensor<1024xi1>
    %fill = tile.full %f0 : f32 -> tensor<1024xf32>
    %s = tile.select %in, %v, %fill : tensor<1024xi1>, tensor<1024xf32>
    %u = arith.addf %t, %s : tensor<1024xf32>
    scf.yield %u : tensor<1024xf32>
  }
  %sum = tile.reduce sum %total axis 0 : tensor<1024xf32> -> f32
  tile.store %sum, %y[%r] : f32, memref<?xf32>
}

// The bound changes from trip to trip in a way that is not known; a stored condition is needed as it is.
// CHECK-LABEL: tile.kernel @neither
// CHECK: scf.for
// CHECK: tile.select
// CHECK-NOT: scf.for
tile.kernel @neither(%x: memref<?xf32> [N], %bounds: memref<?xi32> [N], %y: memref<?xf32> [N], %z: memref<?xi1> [N]) dims(%N = N) grid(%r = N) {
  %c0 = arith.constant 0 : index
  %c1024 = arith.constant 1024 : index
  %f0 = arith.constant 0.0 : f32
  scf.for %j = %c0 to %N step %c1024 {
    %v = tile.load %x[%j] : memref<?xf32> -> tensor<1024xf32>
    %b = tile.load %bounds[%j] : memref<?xi32> -> i32
    %place = tile.iota axis 0 : tensor<1024xi32>
    %bound = tile.full %b : i32 -> tensor<1024xi32>
    %in = tile.cmp slt %place, %bound : tensor<1024xi32> -> tensor<1024xi1>
    %fill = tile.full %f0 : f32 -> tensor<1024xf32>
    %s = tile.select %in, %v, %fill : tensor<1024xi1>, tensor<1024xf32>
    tile.store %s, %y[%j] : tensor<1024xf32>, memref<?xf32>
    %left = arith.subi %N, %j : index
    %wide = tile.cast %left : index -> i64
    %places = tile.iota axis 0 : tensor<1024xi64>
    %ends = tile.full %wide : i64 -> tensor<1024xi64>
    %kept = tile.cmp slt %places, %ends : tensor<1024xi64> -> tensor<1024xi1>
    tile.store %kept, %z[%j] : tensor<1024xi1>, memref<?xi1>
  }
}
