// Where a thread waits for the grids before: in each role by itself, in a loop of loops before the loop that accesses memory, and at the end.
// RUN: tesela-opt %s -p "overlap-launches,verify" | FileCheck %s
// RUN: tesela-opt %s -p "overlap-launches{when=never},verify" | FileCheck %s --check-prefix=NONE
// NONE-NOT: griddepcontrol

// CHECK-LABEL: ptx.kernel @roles
// CHECK: ptx.if %p
// CHECK-NEXT: ptx.for %i
// CHECK-NEXT: mul.lo.s32
// CHECK-NEXT: "griddepcontrol.wait"
// CHECK-NEXT: "griddepcontrol.launch_dependents"
// CHECK-NEXT: ptx.for %k
// CHECK: ld.global
// CHECK: } else {
// CHECK: "griddepcontrol.wait"
// CHECK-NEXT: "griddepcontrol.launch_dependents"
// CHECK-NEXT: ptx.if %q
// CHECK-NEXT: st.global
// CHECK: "griddepcontrol.wait"
// CHECK-NOT: griddepcontrol

// Kernels that access shared memory alone, that say so, or for older targets, stay as they are.
// CHECK-LABEL: ptx.kernel @shared
// CHECK-NOT: griddepcontrol
// CHECK-LABEL: ptx.kernel @unwanted
// CHECK-NOT: pdl
// CHECK-NOT: griddepcontrol
// CHECK-LABEL: ptx.kernel @older
// CHECK-NOT: griddepcontrol
ptx.kernel @roles target sm_90a threads 128 shared 0 {
  %zero = ptx.constant 0 : !ptx.reg<b32>
  %one = ptx.constant 1 : !ptx.reg<b32>
  %n = ptx.constant 8 : !ptx.reg<b32>
  %x = ptx.constant 4096 : !ptx.reg<b64>
  %t = ptx.special "%tid.x" : !ptx.reg<b32>
  %p = ptx.inst "setp.lt.s32" %t, %n : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<pred>
  %q = ptx.inst "setp.eq.s32" %t, %n : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<pred>
  ptx.if %p {
    ptx.for %i = %zero to %n step %one : !ptx.reg<b32> {
      %at = ptx.inst "mul.lo.s32" %i, %n : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32>
      ptx.for %k = %zero to %at step %one : !ptx.reg<b32> {
        ptx.if %q {
          %v = ptx.inst "ld.global.b32" %x : (!ptx.reg<b64>) -> !ptx.reg<b32>
          ptx.yield
        }
        ptx.yield
      }
      ptx.yield
    }
    ptx.for %j = %zero to %n step %one : !ptx.reg<b32> {
      ptx.yield
    }
    ptx.yield
  } else {
    ptx.if %q {
      ptx.inst "st.global.b32" %x, %t : (!ptx.reg<b64>, !ptx.reg<b32>) -> ()
      ptx.yield
    }
    ptx.yield
  }
}

ptx.kernel @shared target sm_90a threads 128 shared 16 {
  %a = ptx.constant 0 : !ptx.reg<b32>
  ptx.inst "st.shared.b32" %a, %a : (!ptx.reg<b32>, !ptx.reg<b32>) -> ()
}

ptx.kernel @unwanted target sm_90a threads 128 shared 0 {
  %x = ptx.constant 4096 : !ptx.reg<b64>
  %v = ptx.inst "ld.global.b32" %x : (!ptx.reg<b64>) -> !ptx.reg<b32>
} {pdl = 0 : i64}

ptx.kernel @older target sm_80 threads 128 shared 0 {
  %x = ptx.constant 4096 : !ptx.reg<b64>
  %v = ptx.inst "ld.global.b32" %x : (!ptx.reg<b64>) -> !ptx.reg<b32>
}
