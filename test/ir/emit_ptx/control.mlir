// Structured control becomes labels and branches, or guards where branches are short.
// RUN: tesela-opt %s -p assign-registers --emit-ptx | FileCheck %s

// CHECK: .version 7.8
// CHECK-NEXT: .target sm_80
// CHECK-NEXT: .address_size 64
// CHECK: .file 1 "{{.*}}control.mlir"
// CHECK: .visible .entry loops(
// CHECK-NEXT: .param .b32 n,
// CHECK-NEXT: .param .b64 out
// CHECK-NEXT: )
// CHECK-NEXT: .maxntid 64, 1, 1
// CHECK-NEXT: {
// CHECK-NEXT: .reg .pred %p<3>;
// CHECK-NEXT: .reg .b32 %r<4>;
// CHECK-NEXT: .reg .b64 %rd<1>;
ptx.kernel @loops target sm_80 threads 64 shared 0 {
  %zero = ptx.constant 0 : !ptx.reg<b32>
  %one = ptx.constant 1 : !ptx.reg<b32>
  %four = ptx.constant 4 : !ptx.reg<b32>
  // CHECK: ld.param.b32 [[N:%r[0-9]+]], [n];
  %n = ptx.param "n" : !ptx.reg<b32>
  // CHECK: ld.param.b64 [[OUT:%rd[0-9]+]], [out];
  %out = ptx.param "out" : !ptx.reg<b64>
  // A loop of unknown trip count is tested before it and at its end.
  // CHECK: mov.b32 [[I:%r[0-9]+]], 0;
  // CHECK-NEXT: mov.b32 [[S:%r[0-9]+]], 0;
  // CHECK-NEXT: setp.ge.s32 [[P:%p[0-9]+]], [[I]], [[N]];
  // CHECK-NEXT: @[[P]] bra $END0;
  // CHECK-NEXT: $LOOP0:
  // CHECK-NEXT: .pragma "nounroll";
  %r = ptx.for %i = %zero to %n step %one : !ptx.reg<b32> carried(%s = %zero : !ptx.reg<b32>) {
    // One of known trip count only at its end.
    // CHECK: mov.b32 [[J:%r[0-9]+]], 0;
    // CHECK-NEXT: $LOOP1:
    // CHECK-NEXT: .pragma "nounroll";
    %t = ptx.for %j = %zero to %four step %one : !ptx.reg<b32> carried(%u = %s : !ptx.reg<b32>) {
      // CHECK-NEXT: .loc 1 {{[0-9]+}} 7
      %v = ptx.inst "add.s32" %u, %j : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32>
      // CHECK-NEXT: add.s32 [[S]], [[S]], [[J]];
      ptx.yield %v : !ptx.reg<b32>
    }
    // CHECK: add.s32 [[J]], [[J]], 1;
    // CHECK-NEXT: setp.lt.s32 [[Q:%p[0-9]+]], [[J]], 4;
    // CHECK-NEXT: @[[Q]] bra $LOOP1;
    ptx.yield %t : !ptx.reg<b32>
  }
  // CHECK: add.s32 [[I]], [[I]], 1;
  // CHECK-NEXT: setp.lt.s32 [[P]], [[I]], [[N]];
  // CHECK-NEXT: @[[P]] bra $LOOP0;
  // CHECK-NEXT: $END0:
  // CHECK: st.global.b32 [{{%rd.*}}], [[S]];
  ptx.inst "st.global.b32" %out, %r : (!ptx.reg<b64>, !ptx.reg<b32>) -> ()
  // A while loop; its first region runs once more than its second.
  // CHECK: $LOOP2:
  // CHECK-NEXT: .pragma "nounroll";
  // CHECK: setp.lt.s32 [[W:%p[0-9]+]], [[S]], 4;
  // CHECK: @![[W]] bra $END2;
  // CHECK: add.s32 [[S]], [[S]], 1;
  // CHECK: bra $LOOP2;
  // CHECK-NEXT: $END2:
  %w = ptx.while carried(%a = %r : !ptx.reg<b32>) {
    %c = ptx.inst "setp.lt.s32" %a, %four : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<pred>
    ptx.condition %c (%a) : !ptx.reg<b32>
  } do (%b: !ptx.reg<b32>) {
    %d = ptx.inst "add.s32" %b, %one : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32>
    ptx.yield %d : !ptx.reg<b32>
  }
  ptx.inst "st.global.b32" %out, %w {offsets = array<i64: 4>} : (!ptx.reg<b64>, !ptx.reg<b32>) -> ()
  // CHECK: ret;
  // CHECK-NEXT: }
}

// CHECK: .visible .entry branches(
ptx.kernel @branches target sm_80 threads 32 shared 0 {
  %five = ptx.constant 5 : !ptx.reg<b32>
  %x = ptx.param "x" : !ptx.reg<b32>
  %y = ptx.param "y" : !ptx.reg<b32>
  %out = ptx.param "out" : !ptx.reg<b64>
  // CHECK: setp.lt.s32 [[P:%p[0-9]+]], [[X:%r[0-9]+]], [[Y:%r[0-9]+]];
  %p = ptx.inst "setp.lt.s32" %x, %y : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<pred>
  // Two instructions in each branch: guards.
  // CHECK: @[[P]] add.s32 [[T:%r[0-9]+]], [[X]], 5;
  // CHECK: @[[P]] mul.lo.s32 [[R:%r[0-9]+]], [[T]], [[Y]];
  // CHECK: @![[P]] sub.s32 [[R]], [[X]], [[Y]];
  %r = ptx.if %p -> (!ptx.reg<b32>) {
    %a = ptx.inst "add.s32" %x, %five : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32>
    %b = ptx.inst "mul.lo.s32" %a, %y : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32>
    ptx.yield %b : !ptx.reg<b32>
  } else {
    %c = ptx.inst "sub.s32" %x, %y : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32>
    ptx.yield %c : !ptx.reg<b32>
  }
  // Three in one of them: branches.
  // CHECK: @![[P]] bra $ELSE0;
  // CHECK: add.s32
  // CHECK: add.s32
  // CHECK: add.s32 [[S:%r[0-9]+]], {{.*}}, 5;
  // CHECK: bra $ENDIF0;
  // CHECK-NEXT: $ELSE0:
  // CHECK: sub.s32 [[S]],
  // CHECK: $ENDIF0:
  %s = ptx.if %p -> (!ptx.reg<b32>) {
    %a = ptx.inst "add.s32" %x, %five : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32>
    %b = ptx.inst "add.s32" %a, %y : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32>
    %c = ptx.inst "add.s32" %b, %five : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32>
    ptx.yield %c : !ptx.reg<b32>
  } else {
    %d = ptx.inst "sub.s32" %x, %y : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32>
    ptx.yield %d : !ptx.reg<b32>
  }
  // A branch that all lanes must take together is never guarded, nor one that writes the condition.
  // CHECK: @![[P]] bra $ENDIF1;
  // CHECK: bar.sync 0;
  // CHECK-NEXT: $ENDIF1:
  ptx.if %p {
    %zero = ptx.constant 0 : !ptx.reg<b32>
    ptx.inst "bar.sync" %zero : (!ptx.reg<b32>) -> ()
    ptx.yield
  }
  %v = ptx.concat %r, %s : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32 x 2>
  // CHECK: st.global.v2.b32 [{{%rd.*}}+8], {[[R]], [[S]]};
  ptx.inst "st.global.v2.b32" %out, %v {offsets = array<i64: 8>} : (!ptx.reg<b64>, !ptx.reg<b32 x 2>) -> ()
}
