// Register assignment is checked apart from the pass that does it: a value read from registers that another value has
// overwritten is an error.
// RUN: tesela-opt %s -p check-registers --split-input-file --verify-diagnostics

ptx.kernel @right target sm_80 threads 32 shared 0 {
  %n = ptx.param "n" {regs = #ptx.regs<"%r0">} : !ptx.reg<b32>
  %a = ptx.inst "add.s32" %n, %n {regs = #ptx.regs<"%r1">} : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32>
  %b = ptx.inst "add.s32" %a, %n {regs = #ptx.regs<"%r1">} : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32>
  %s = ptx.shared_address 0 {regs = #ptx.regs<"%r2">} : !ptx.reg<b32>
  ptx.inst "st.shared.b32" %s, %b : (!ptx.reg<b32>, !ptx.reg<b32>) -> ()
}

// -----

ptx.kernel @overwritten target sm_80 threads 32 shared 0 {
  %n = ptx.param "n" {regs = #ptx.regs<"%r0">} : !ptx.reg<b32>
  %a = ptx.inst "add.s32" %n, %n {regs = #ptx.regs<"%r0">} : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32>
  // expected-error@+1 {{'ptx.inst' reads register 0 of %n in %r0, which holds register 0 of %a}}
  %b = ptx.inst "add.s32" %a, %n {regs = #ptx.regs<"%r1">} : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32>
  %s = ptx.shared_address 0 {regs = #ptx.regs<"%r2">} : !ptx.reg<b32>
  ptx.inst "st.shared.b32" %s, %b : (!ptx.reg<b32>, !ptx.reg<b32>) -> ()
}
