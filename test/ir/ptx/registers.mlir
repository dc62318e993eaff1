// RUN: tesela-opt %s -p assign-registers,check-registers | FileCheck %s

// An accumulator that goes round a loop and is worked on in place keeps its registers: the loop has no move, and the result stays where it is.

// CHECK-LABEL: ptx.kernel @loop
// CHECK: ptx.for
// CHECK-NOT: mov.b32
// CHECK: ptx.inst "add.rn.f32"
// CHECK-NOT: mov.b32
// CHECK: ptx.yield
// CHECK: st.global.b32
ptx.kernel @loop target sm_80 threads 32 shared 0 {
  %p = ptx.param "p" : !ptx.reg<b64>
  %zero = ptx.constant 0 : !ptx.reg<b32>
  %one = ptx.constant 1 : !ptx.reg<b32>
  %ten = ptx.constant 10 : !ptx.reg<b32>
  %init = ptx.inst "ld.global.b32" %p {offsets = array<i64: 0, 4>} : (!ptx.reg<b64>) -> !ptx.reg<b32 x 2>
  %r = ptx.for %i = %zero to %ten step %one : !ptx.reg<b32> carried(%acc = %init : !ptx.reg<b32 x 2>) {
    %next = ptx.inst "add.rn.f32" %acc, %acc : (!ptx.reg<b32 x 2>, !ptx.reg<b32 x 2>) -> !ptx.reg<b32 x 2>
    ptx.yield %next : !ptx.reg<b32 x 2>
  }
  ptx.inst "st.global.b32" %p, %r {offsets = array<i64: 0, 4>} : (!ptx.reg<b64>, !ptx.reg<b32 x 2>) -> ()
}
