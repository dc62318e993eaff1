// Loop-carried values, `if` results and in-place operands share registers where lifetimes allow; moves are explicit where not.
// RUN: tesela-opt %s -p assign-registers,check-registers | FileCheck %s
// RUN: tesela-opt %s -p assign-registers | tesela-opt - -p check-registers | FileCheck %s

// CHECK-LABEL: ptx.kernel @accumulate
ptx.kernel @accumulate target sm_90a threads 128 shared 0 {
  %zero = ptx.constant 0 : !ptx.reg<b32>
  %one = ptx.constant 1 : !ptx.reg<b32>
  %true = ptx.constant 1 : !ptx.reg<pred>
  %n = ptx.param "n" : !ptx.reg<b32>
  %desc = ptx.param "desc" : !ptx.reg<b64>
  // CHECK: %z = ptx.inst "mov.b32" %zero {regs = #ptx.regs<"[[ACC:%r[0-9]+\.\.%r[0-9]+]]">}
  %z = ptx.inst "mov.b32" %zero : (!ptx.reg<b32>) -> !ptx.reg<b32 x 4>
  // CHECK-NEXT: %[[LOWER:.*]] = ptx.inst "mov.b32" %zero {regs = #ptx.regs<"[[I:%r[0-9]+]]">}
  // CHECK-NEXT: ptx.for %i = %[[LOWER]] to %n
  %r = ptx.for %i = %zero to %n step %one : !ptx.reg<b32> carried(%a = %z : !ptx.reg<b32 x 4>) {
    // CHECK-NEXT: ptx.inst "wgmma.mma_async{{.*}} %a, %desc, %desc, %true {{.*}} regs = #ptx.regs<"[[ACC]]">
    %b = ptx.inst "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16" %a, %desc, %desc, %true {imms = [1, 1, 0, 0]} : (!ptx.reg<b32 x 4>, !ptx.reg<b64>, !ptx.reg<b64>, !ptx.reg<pred>) -> !ptx.reg<b32 x 4>
    // CHECK-NEXT: ptx.yield %b
    ptx.yield %b : !ptx.reg<b32 x 4>
  // CHECK-NEXT: arg_regs = #ptx.regs<"[[I]]", "[[ACC]]">, regs = #ptx.regs<"[[ACC]]">
  }
  ptx.inst "st.global.b32" %desc, %r : (!ptx.reg<b64>, !ptx.reg<b32 x 4>) -> ()
}

// CHECK-LABEL: ptx.kernel @swap
ptx.kernel @swap target sm_80 threads 32 shared 0 {
  %zero = ptx.constant 0 : !ptx.reg<b32>
  %one = ptx.constant 1 : !ptx.reg<b32>
  // CHECK: "a" {regs = #ptx.regs<"[[A:%r[0-9]+]]">}
  %x = ptx.param "a" : !ptx.reg<b32>
  // CHECK: "b" {regs = #ptx.regs<"[[B:%r[0-9]+]]">}
  %y = ptx.param "b" : !ptx.reg<b32>
  %n = ptx.param "n" : !ptx.reg<b32>
  %out = ptx.param "out" : !ptx.reg<b64>
  // CHECK: ptx.for
  %r, %s = ptx.for %i = %zero to %n step %one : !ptx.reg<b32> carried(%a = %x : !ptx.reg<b32>, %b = %y : !ptx.reg<b32>) {
    // CHECK-NEXT: %[[T:.*]] = ptx.inst "mov.b32" %a {regs = #ptx.regs<"[[TEMP:%r[0-9]+]]">}
    // CHECK-NEXT: %[[BOTH:.*]] = ptx.concat %b, %[[T]] {regs = #ptx.regs<"[[B]] [[TEMP]]">}
    // CHECK-NEXT: %[[NEW:.*]] = ptx.inst "mov.b32" %[[BOTH]] {regs = #ptx.regs<"[[A]]..[[B]]">}
    // CHECK: ptx.yield
    ptx.yield %b, %a : !ptx.reg<b32>, !ptx.reg<b32>
  }
  %v = ptx.concat %r, %s : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32 x 2>
  ptx.inst "st.global.v2.b32" %out, %v : (!ptx.reg<b64>, !ptx.reg<b32 x 2>) -> ()
}

// An initial value that is still needed is copied; a constant is loaded; the branches of an if meet in one register.
// CHECK-LABEL: ptx.kernel @branches
ptx.kernel @branches target sm_80 threads 32 shared 0 {
  %five = ptx.constant 5 : !ptx.reg<b32>
  // CHECK: "a" {regs = #ptx.regs<"[[A:%r[0-9]+]]">}
  %x = ptx.param "a" : !ptx.reg<b32>
  %y = ptx.param "b" : !ptx.reg<b32>
  %out = ptx.param "out" : !ptx.reg<b64>
  %p = ptx.inst "setp.lt.s32" %x, %y : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<pred>
  // CHECK: ptx.if %p
  %r = ptx.if %p -> (!ptx.reg<b32>) {
    // CHECK-NEXT: %[[COPY:.*]] = ptx.inst "mov.b32" %x {regs = #ptx.regs<"[[R:%r[0-9]+]]">}
    // CHECK-NEXT: ptx.yield %[[COPY]]
    ptx.yield %x : !ptx.reg<b32>
  } else {
    // CHECK: %[[FIVE:.*]] = ptx.inst "mov.b32" %five {regs = #ptx.regs<"[[R]]">}
    // CHECK-NEXT: ptx.yield %[[FIVE]]
    ptx.yield %five : !ptx.reg<b32>
  }
  // A guarded instruction writes over what `else` names, which is a copy where that is needed later.
  // CHECK: %[[KEPT:.*]] = ptx.inst "mov.b32" %r {regs = #ptx.regs<"[[K:%r[0-9]+]]">}
  // CHECK-NEXT: %k = ptx.inst "add.s32" %x, %y if not %p else %[[KEPT]] {regs = #ptx.regs<"[[K]]">}
  %k = ptx.inst "add.s32" %x, %y if not %p else %r : (!ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>, !ptx.reg<b32>) -> !ptx.reg<b32>
  %v = ptx.concat %x, %r, %k : (!ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32 x 3>
  ptx.inst "st.global.b32" %out, %v {offsets = array<i64: 0, 4, 8>} : (!ptx.reg<b64>, !ptx.reg<b32 x 3>) -> ()
}
