// One op stands for n instructions; constants print as immediates; addresses, tensor maps, guards and barriers.
// RUN: tesela-opt %s -p assign-registers --emit-ptx | FileCheck %s

// The version is what the instructions need, not only the target's: a shared::cta destination of a tensor copy came with PTX 8.6.
// CHECK: .version 8.6
// CHECK-NEXT: .target sm_90a
// CHECK: .extern .shared .align 1024 .b8 smem[];
// CHECK: .visible .entry pieces(
// CHECK-NEXT: .param .align 64 .b8 map[128],
// CHECK-NEXT: .param .b64 out,
// CHECK-NEXT: .param .b32 x
// CHECK-NEXT: )
// CHECK-NEXT: .maxntid 256, 1, 1
// CHECK-NEXT: .minnctapersm 1
ptx.kernel @pieces target sm_90a threads 256 shared 4096 {
  // CHECK: mov.b64 [[MAP:%rd[0-9]+]], map;
  // CHECK-NEXT: cvta.param.u64 [[MAP]], [[MAP]];
  %map = ptx.param_address "map" : !ptx.reg<b64>
  %out = ptx.param "out" : !ptx.reg<b64>
  // CHECK: ld.param.b32 [[X:%r[0-9]+]], [x];
  %x = ptx.param "x" : !ptx.reg<b32>
  // CHECK: mov.b32 [[TID:%r[0-9]+]], %tid.x;
  %tid = ptx.special "%tid.x" : !ptx.reg<b32>
  // CHECK: mov.b64 {{%rd.*}}, %clock64;
  %clock = ptx.special "%clock64" : !ptx.reg<b64>
  // CHECK: mov.b32 [[S:%r[0-9]+]], smem+64;
  %s = ptx.shared_address 64 : !ptx.reg<b32>
  %one = ptx.constant 1065353216 : !ptx.reg<b32>
  %two = ptx.constant 2 : !ptx.reg<b32>
  %all = ptx.constant -1 : !ptx.reg<b32>
  %zero = ptx.constant 0 : !ptx.reg<b32>
  // CHECK: setmaxnreg.inc.sync.aligned.u32 232;
  ptx.inst "setmaxnreg.inc.sync.aligned.u32" {imms = [232]} : () -> ()
  // CHECK: elect.sync _|[[E:%p[0-9]+]], -1;
  %e = ptx.inst "elect.sync" %all : (!ptx.reg<b32>) -> !ptx.reg<pred>
  // A float instruction takes a float immediate, an integer one an integer.
  // CHECK: add.rn.f32 [[F0:%r[0-9]+]], [[X]], 0f3F800000;
  %f = ptx.inst "add.rn.f32" %x, %one : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32>
  // CHECK: xor.b32 [[G:%r[0-9]+]], [[F0]], 1065353216;
  %g = ptx.inst "xor.b32" %f, %one : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32>
  // One register for all, one for each.
  %v = ptx.concat %f, %g, %x, %tid : (!ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32 x 4>
  // CHECK: mul.rn.f32 [[M0:%r[0-9]+]], [[F0]], [[TID]];
  // CHECK-NEXT: mul.rn.f32 [[M1:%r[0-9]+]], [[G]], [[TID]];
  // CHECK-NEXT: mul.rn.f32 [[M2:%r[0-9]+]], [[X]], [[TID]];
  // CHECK-NEXT: mul.rn.f32 [[M3:%r[0-9]+]], [[TID]], [[TID]];
  %m = ptx.inst "mul.rn.f32" %v, %tid : (!ptx.reg<b32 x 4>, !ptx.reg<b32>) -> !ptx.reg<b32 x 4>
  // Two vector stores at two offsets, each with its own guard.
  %p0 = ptx.inst "setp.eq.s32" %tid, %zero : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<pred>
  %p = ptx.concat %p0, %e : (!ptx.reg<pred>, !ptx.reg<pred>) -> !ptx.reg<pred x 2>
  // CHECK: @![[P0:%p[0-9]+]] st.global.v2.b32 [[[OUT:%rd[0-9]+]]], {[[M0]], [[M1]]};
  // CHECK-NEXT: @![[E]] st.global.v2.b32 [[[OUT]]+8], {[[M2]], [[M3]]};
  ptx.inst "st.global.v2.b32" %out, %m if not %p {offsets = array<i64: 0, 8>} : (!ptx.reg<b64>, !ptx.reg<b32 x 4>, !ptx.reg<pred x 2>) -> ()
  // A tensor copy: destination, map and coordinates, mbarrier; a constant coordinate needs a register.
  // CHECK: mbarrier.arrive.expect_tx.shared::cta.b64 _, [[[S]]+8], 2;
  ptx.inst "mbarrier.arrive.expect_tx.shared::cta.b64" %s, %two {offsets = array<i64: 8>} : (!ptx.reg<b32>, !ptx.reg<b32>) -> ()
  %xy = ptx.concat %x, %tid : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32 x 2>
  // CHECK: @[[E]] cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [[[S]]], [[[MAP]], {[[X]], [[TID]]}], [[[S]]];
  ptx.inst "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes" %s, %map, %xy, %s if %e : (!ptx.reg<b32>, !ptx.reg<b64>, !ptx.reg<b32 x 2>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
  // A wait is a loop of two instructions.
  // CHECK: $WAIT0:
  // CHECK: mbarrier.try_wait.parity.shared::cta.b64 [[Q:%p[0-9]+]], [[[S]]+8], 0;
  // CHECK: @![[Q]] bra $WAIT0;
  ptx.wait_parity %s, %zero offset 8 : !ptx.reg<b32>, !ptx.reg<b32>
  // A guarded load that leaves its destination alone where the guard is false.
  // CHECK: mov.b32 [[L:%r[0-9]+]], 0;
  // CHECK: @[[E]] ld.shared.b32 [[L]], [[[S]]+16];
  %l = ptx.inst "ld.shared.b32" %s if %e else %zero {offsets = array<i64: 16>} : (!ptx.reg<b32>, !ptx.reg<pred>, !ptx.reg<b32>) -> !ptx.reg<b32>
  // CHECK: ldmatrix.sync.aligned.m8n8.x2.shared.b16 {{{%r.*}}, {{%r.*}}}, [[[S]]];
  %ab = ptx.inst "ldmatrix.sync.aligned.m8n8.x2.shared.b16" %s : (!ptx.reg<b32>) -> !ptx.reg<b32 x 2>
  // CHECK: mov.b32 {[[LO:%h[0-9]+]], [[HI:%h[0-9]+]]}, [[L]];
  %halves = ptx.inst "mov.b32" %l : (!ptx.reg<b32>) -> !ptx.reg<b16 x 2>
  // CHECK: cvt.f32.bf16 {{%r.*}}, [[LO]];
  // CHECK-NEXT: cvt.f32.bf16 {{%r.*}}, [[HI]];
  %wide = ptx.inst "cvt.f32.bf16" %halves : (!ptx.reg<b16 x 2>) -> !ptx.reg<b32 x 2>
  ptx.inst "st.global.v2.b32" %out, %wide : (!ptx.reg<b64>, !ptx.reg<b32 x 2>) -> ()
  ptx.inst "st.global.v2.b32" %out, %ab : (!ptx.reg<b64>, !ptx.reg<b32 x 2>) -> ()
  ptx.inst "st.global.b64" %out, %clock : (!ptx.reg<b64>, !ptx.reg<b64>) -> ()
}
