// What register assignment and its checker reject, each at its line.
// RUN: tesela-opt %s -p assign-registers,check-registers --split-input-file --verify-diagnostics

ptx.kernel @in_place target sm_90a threads 128 shared 0 {
  %true = ptx.constant 1 : !ptx.reg<pred>
  %x = ptx.param "x" : !ptx.reg<b32>
  %d = ptx.param "d" : !ptx.reg<b64>
  %p = ptx.inst "setp.lt.s32" %x, %x : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<pred>
  %a = ptx.inst "mov.b32" %x : (!ptx.reg<b32>) -> !ptx.reg<b32 x 4>
  %b = ptx.inst "mov.b32" %x : (!ptx.reg<b32>) -> !ptx.reg<b32 x 4>
  // expected-error@+1 {{the guarded wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 works in place, but its 'else' is another value than its operand 1}}
  %c = ptx.inst "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16" %a, %d, %d, %true if %p else %b {imms = [1, 1, 0, 0]} : (!ptx.reg<b32 x 4>, !ptx.reg<b64>, !ptx.reg<b64>, !ptx.reg<pred>, !ptx.reg<pred>, !ptx.reg<b32 x 4>) -> !ptx.reg<b32 x 4>
}

// -----

ptx.kernel @foreign target sm_80 threads 32 shared 0 {
  // expected-error@+1 {{i32 is no register: 'arith.constant' is not of the ptx level}}
  %0 = arith.constant 0 : i32
}
