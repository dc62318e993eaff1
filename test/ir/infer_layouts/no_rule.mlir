// An operation whose operands and results are tiles, and that no rule knows, is refused: any layouts would be taken for right.
// RUN: tesela-opt %s -p plan-dataflow,infer-layouts --target sm_80 --allow-unregistered-dialect --verify-diagnostics

tile.kernel @k(%x: memref<?xf32> [N]) grid(%g = 1) {
  %a = tile.load %x[%g] : memref<?xf32> -> tensor<32xf32>
  // expected-error@+2 {{infer-layouts has no rule for this operation, which takes tiles and gives tiles}}
  // expected-hint@+1 {{say in passes/layout_rules.py how the layouts of its operands and results go together}}
  %b = "new.op"(%a) : (tensor<32xf32>) -> tensor<32xf32>
  tile.store %b, %x[%g] : tensor<32xf32>, memref<?xf32>
}
