// RUN: tesela-opt %s -p assign-registers | FileCheck %s
// RUN: tesela-opt %s -p assign-registers,check-registers

// A carried accumulator that is consumed in place keeps its registers round the loop: no mov inside it. Two values that
// live at once have different registers, and so has the counter.
// CHECK: ptx.for %i = [[I:%.+]] to %n step %one : !ptx.reg<b32> carried(%a = {{%.+}} : !ptx.reg<b32 x 4>) {
// CHECK-NEXT: ptx.inst "add.s32" %a, %i {regs = #ptx.regs<"[[ACC:.+]]">}
// CHECK-NEXT: ptx.yield
// CHECK-NEXT: } {temps = {{.+}}, arg_regs = #ptx.regs<"[[COUNTER:%r[0-9]+]]", "[[ACC]]">, regs = #ptx.regs<"[[ACC]]">}
// CHECK: ptx.pick %sum [0]
// CHECK-NEXT: ptx.inst "st.shared.b32"
ptx.kernel @carried target sm_80 threads 32 shared 0 {
  %n = ptx.param "n" : !ptx.reg<b32>
  %zero = ptx.constant 0 : !ptx.reg<b32>
  %one = ptx.constant 1 : !ptx.reg<b32>
  %v = ptx.concat %n, %n, %n, %n : (!ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32 x 4>
  %sum = ptx.for %i = %zero to %n step %one : !ptx.reg<b32> carried(%a = %v : !ptx.reg<b32 x 4>) {
    %b = ptx.inst "add.s32" %a, %i : (!ptx.reg<b32 x 4>, !ptx.reg<b32>) -> !ptx.reg<b32 x 4>
    ptx.yield %b : !ptx.reg<b32 x 4>
  }
  %s = ptx.shared_address 0 : !ptx.reg<b32>
  %p = ptx.pick %sum [0] : !ptx.reg<b32 x 4>
  ptx.inst "st.shared.b32" %s, %p : (!ptx.reg<b32>, !ptx.reg<b32>) -> ()
}
