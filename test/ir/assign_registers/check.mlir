// The checker finds an assignment that is wrong: %b takes the register of %a, which is read afterwards.
// RUN: not tesela-opt %s -p check-registers 2>&1 | FileCheck %s

// CHECK: check.mlir:11:3: error: 'ptx.inst' reads register 0 of %a in %r0, which holds register 0 of %b
ptx.kernel @clobbered target sm_80 threads 32 shared 0 {
  %out = ptx.param "out" {regs = #ptx.regs<"%rd0">} : !ptx.reg<b64>
  %a = ptx.param "a" {regs = #ptx.regs<"%r0">} : !ptx.reg<b32>
  %one = ptx.constant 1 : !ptx.reg<b32>
  %b = ptx.inst "add.s32" %a, %one {regs = #ptx.regs<"%r0">} : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32>
  ptx.inst "st.global.b32" %out, %b : (!ptx.reg<b64>, !ptx.reg<b32>) -> ()
  ptx.inst "st.global.b32" %out, %a {offsets = array<i64: 4>} : (!ptx.reg<b64>, !ptx.reg<b32>) -> ()
}
