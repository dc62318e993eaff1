// Half of a chain of exponentials and its sum are held above a wait, the rest comes after the next branch.
// RUN: tesela-opt %s -p "overlap-waits{percent=50},verify" | FileCheck %s
// RUN: tesela-opt %s -p "overlap-waits{percent=100},verify" | FileCheck %s --check-prefix=ALL
// RUN: tesela-opt %s -p "overlap-waits{percent=0},verify" | FileCheck %s --check-prefix=NONE
// NONE-NOT: st.volatile

// CHECK-LABEL: ptx.kernel @chain
// CHECK: [[BLOCKS:%[0-9]+]] = ptx.special "%nctaid.x"
// CHECK: [[NEVER:%[0-9]+]] = ptx.inst "setp.eq.s32" [[BLOCKS]]
// CHECK: wgmma.commit_group
// CHECK: [[LOW:%[0-9]+]] = ptx.pick %x [0, 1, 2, 3, 4, 5, 6, 7]
// CHECK: [[E0:%[0-9]+]] = ptx.inst "ex2.approx.ftz.f32" [[LOW]] : (!ptx.reg<b32 x 8>) -> !ptx.reg<b32 x 8>
// CHECK: ptx.inst "st.volatile.shared.b32" {{%[0-9]+}}, [[HALF:%[a-z0-9_]+]] if [[NEVER]]
// CHECK-NEXT: wgmma.wait_group
// CHECK: ptx.if %p
// CHECK: ptx.pick %x [8, 9, 10, 11, 12, 13, 14, 15]
// CHECK: ptx.inst "ex2.approx.ftz.f32" {{.*}} -> !ptx.reg<b32 x 8>
// CHECK: ptx.yield

// ALL: ptx.inst "ex2.approx.ftz.f32" {{.*}} -> !ptx.reg<b32 x 16>
// ALL: st.volatile.shared.b32
// ALL: wgmma.wait_group
// ALL-NOT: ex2
ptx.kernel @chain target sm_90a threads 128 shared 1024 {
  %zero = ptx.constant 0 : !ptx.reg<b32>
  %one = ptx.constant 1 : !ptx.reg<b32>
  %n = ptx.constant 8 : !ptx.reg<b32>
  %start = ptx.pick %zero [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] : !ptx.reg<b32>
  %t = ptx.special "%tid.x" : !ptx.reg<b32>
  %p = ptx.inst "setp.lt.s32" %t, %n : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<pred>
  %r, %total = ptx.for %i = %zero to %n step %one : !ptx.reg<b32> carried(%x = %start : !ptx.reg<b32 x 16>, %sum = %zero : !ptx.reg<b32>) {
    ptx.inst "wgmma.commit_group.sync.aligned" : () -> ()
    %e = ptx.inst "ex2.approx.ftz.f32" %x : (!ptx.reg<b32 x 16>) -> !ptx.reg<b32 x 16>
    %e0 = ptx.pick %e [0, 2, 4, 6, 8, 10, 12, 14] : !ptx.reg<b32 x 16>
    %e1 = ptx.pick %e [1, 3, 5, 7, 9, 11, 13, 15] : !ptx.reg<b32 x 16>
    %a = ptx.inst "add.rn.f32" %e0, %e1 : (!ptx.reg<b32 x 8>, !ptx.reg<b32 x 8>) -> !ptx.reg<b32 x 8>
    %a0 = ptx.pick %a [0, 2, 4, 6] : !ptx.reg<b32 x 8>
    %a1 = ptx.pick %a [1, 3, 5, 7] : !ptx.reg<b32 x 8>
    %b = ptx.inst "add.rn.f32" %a0, %a1 : (!ptx.reg<b32 x 4>, !ptx.reg<b32 x 4>) -> !ptx.reg<b32 x 4>
    %b0 = ptx.pick %b [0, 2] : !ptx.reg<b32 x 4>
    %b1 = ptx.pick %b [1, 3] : !ptx.reg<b32 x 4>
    %c = ptx.inst "add.rn.f32" %b0, %b1 : (!ptx.reg<b32 x 2>, !ptx.reg<b32 x 2>) -> !ptx.reg<b32 x 2>
    %c0 = ptx.pick %c [0] : !ptx.reg<b32 x 2>
    %c1 = ptx.pick %c [1] : !ptx.reg<b32 x 2>
    %d = ptx.inst "add.rn.f32" %c0, %c1 : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32>
    ptx.inst "wgmma.wait_group.sync.aligned" {imms = [0 : i64]} : () -> ()
    %y = ptx.if %p -> (!ptx.reg<b32>) {
      ptx.yield %one : !ptx.reg<b32>
    } else {
      ptx.yield %sum : !ptx.reg<b32>
    }
    %s = ptx.inst "add.rn.f32" %y, %d : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32>
    ptx.yield %e, %s : !ptx.reg<b32 x 16>, !ptx.reg<b32>
  }
  ptx.inst "st.shared.b32" %zero, %total : (!ptx.reg<b32>, !ptx.reg<b32>) -> ()
}
