// z = x + y, elementwise, 1024 elements a block.
tile.kernel @add(%x: memref<?xf32, strided<[1]>> [N], %y: memref<?xf32, strided<[1]>> [N], %z: memref<?xf32, strided<[1]>> [N])
    grid(%block = N ceildiv 1024) {
  %c1024 = arith.constant 1024 : index
  %i = arith.muli %block, %c1024 : index
  %a = tile.load %x[%i] : memref<?xf32, strided<[1]>> -> tensor<1024xf32>
  %b = tile.load %y[%i] : memref<?xf32, strided<[1]>> -> tensor<1024xf32>
  %c = arith.addf %a, %b : tensor<1024xf32>
  tile.store %c, %z[%i] : tensor<1024xf32>, memref<?xf32, strided<[1]>>
}
