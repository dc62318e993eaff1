// Wrong modules of the ptx level: registers, instructions, guards, control, kernels.
// RUN: tesela-opt %s --split-input-file --verify-diagnostics

ptx.kernel @k target sm_90a threads 128 shared 1024 {
  %r = ptx.special "%tid.x" : !ptx.reg<b32>
  %r4 = ptx.concat %r, %r, %r, %r : (!ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32 x 4>
  %w = ptx.constant 0 : !ptx.reg<b64>
  %p = ptx.inst "setp.lt.s32" %r, %r : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<pred>
  // expected-error@+1 {{'ptx.constant': 4294967296 does not fit in 32 bits}}
  %v0 = ptx.constant 4294967296 : !ptx.reg<b32>
  // expected-error@+1 {{'ptx.constant': a constant is one register}}
  %v1 = ptx.constant 1 : !ptx.reg<b32 x 2>
  // expected-error@+1 {{'ptx.pick': index 4 is outside the 4 registers of the source}}
  %v2 = ptx.pick %r4 [0, 4] : !ptx.reg<b32 x 4>
  // expected-error@+1 {{'ptx.concat': the result has all registers of the operands, of one class}}
  %v3 = ptx.concat %r, %w : (!ptx.reg<b32>, !ptx.reg<b64>) -> !ptx.reg<b32 x 2>
  // expected-error@+1 {{'ptx.inst': unknown PTX instruction 'add.s33': the table has no such form of 'add'; nearest: add.s32, add.u32, add.s64}}
  %v4 = ptx.inst "add.s33" %r, %r : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32>
  // expected-error@+1 {{'ptx.inst': add.s32 does not take !ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<b64> and 0 immediates; its forms: add.s32 d:b32, s:b32, s:b32}}
  %v5 = ptx.inst "add.s32" %r, %w : (!ptx.reg<b32>, !ptx.reg<b64>) -> !ptx.reg<b32>
  // expected-error@+1 {{'ptx.inst': add.s32 does not take !ptx.reg<b32>, !ptx.reg<b32> and 0 immediates; its forms: add.s32 d:b32, s:b32, s:b32}}
  %v6 = ptx.inst "add.s32" %r : (!ptx.reg<b32>) -> !ptx.reg<b32>
  // expected-error@+1 {{'ptx.inst': the guard must be one predicate or 1 of them}}
  %v7 = ptx.inst "add.s32" %r, %r if %r : (!ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32>
  // expected-error@+1 {{'ptx.inst': a guarded instruction with results needs 'else': what they hold where the guard is false}}
  %v8 = ptx.inst "add.s32" %r, %r if %p : (!ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> !ptx.reg<b32>
  // expected-error@+1 {{'ptx.inst': 'else' gives one value of the same type for each result}}
  %v9 = ptx.inst "add.s32" %r, %r if %p else %w : (!ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>, !ptx.reg<b64>) -> !ptx.reg<b32>
  // expected-error@+1 {{'ptx.wait_parity': the barrier's address and the phase are one b32 register each}}
  ptx.wait_parity %w, %r : !ptx.reg<b64>, !ptx.reg<b32>
  // expected-error@+1 {{'ptx.if': ptx.if with results needs an else region}}
  %v11 = ptx.if %p -> (!ptx.reg<b32>) {
    ptx.yield %r : !ptx.reg<b32>
  }
  // expected-error@+1 {{'ptx.for': ptx.yield of ptx.for must hand on 1 values of the types of the results}}
  %v12 = ptx.for %i = %r to %r step %r : !ptx.reg<b32> carried(%a = %r : !ptx.reg<b32>) {
    ptx.yield
  }
  // expected-error@+1 {{'ptx.for': bounds and step are one register each, all b32 or all b64}}
  %v13 = ptx.for %i = %r4 to %r4 step %r4 : !ptx.reg<b32 x 4> carried(%a = %r : !ptx.reg<b32>) {
    ptx.yield %a : !ptx.reg<b32>
  }
}

// -----

ptx.kernel @k target sm_90a threads 128 shared 1024 {
  // expected-error@+1 {{unknown register class 'b24', expected one of pred, b16, b32, b64}}
  %0 = ptx.constant 1 : !ptx.reg<b24>
}

// -----

ptx.kernel @k target sm_90a threads 128 shared 1024 {
  // expected-error@+1 {{a register vector has at least one register}}
  %0 = ptx.constant 1 : !ptx.reg<b32 x 0>
}

// -----

ptx.kernel @k target sm_90a threads 128 shared 1024 {
  %r = ptx.special "%tid.x" : !ptx.reg<b32>
  %r4 = ptx.concat %r, %r, %r, %r : (!ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32 x 4>
  // expected-error@+1 {{ptx.pick takes registers and at least one index}}
  %0 = ptx.pick %r4 [] : !ptx.reg<b32 x 4>
}

// -----

ptx.kernel @k target sm_90a threads 128 shared 1024 {
  %r = ptx.special "%tid.x" : !ptx.reg<b32>
  // expected-error@+1 {{expected 1 operand types but had 2}}
  %0 = ptx.inst "add.s32" %r, %r : (!ptx.reg<b32>) -> !ptx.reg<b32>
}

// -----

// expected-error@+2 {{unknown target 'sm_75'}}
// expected-hint@+1 {{known targets: sm_80, sm_90, sm_90a}}
ptx.kernel @k target sm_75 threads 128 shared 0 {
}

// -----

// expected-error@+1 {{'ptx.kernel': threads must be a positive multiple of 32 up to 1024, found 100}}
ptx.kernel @k target sm_90a threads 100 shared 0 {
}

// -----

// expected-error@+1 {{'ptx.kernel': 200000 bytes of shared memory, sm_80 has 166912 a block}}
ptx.kernel @k target sm_80 threads 128 shared 200000 {
}

// -----

// expected-error@+1 {{not a launch plan: 'args'}}
ptx.kernel @k target sm_80 threads 128 shared 0 plan #ptx.plan<"{}"> {
}

// -----

// expected-error@+2 {{'ptx.inst': cp.async.bulk.commit_group does not take !ptx.reg<b32> and 0 immediates; its forms: cp.async.bulk.commit_group}}
ptx.kernel @k target sm_90 threads 128 shared 0 {
  %0 = ptx.inst "cp.async.bulk.commit_group" : () -> !ptx.reg<b32>
}

// -----

ptx.kernel @k target sm_80 threads 128 shared 0 {
  // expected-error@+1 {{'ptx.special': there is no special register '%tid.w'}}
  %0 = ptx.special "%tid.w" : !ptx.reg<b32>
  // expected-error@+1 {{'ptx.special': '%clock64' is !ptx.reg<b64>, found !ptx.reg<b32>}}
  %1 = ptx.special "%clock64" : !ptx.reg<b32>
  // expected-error@+1 {{'ptx.inst': cp.async.bulk.commit_group needs sm_90, the kernel's target is sm_80}}
  ptx.inst "cp.async.bulk.commit_group" : () -> ()
}

// -----

ptx.kernel @outer target sm_80 threads 32 shared 0 {
  // expected-error@+1 {{'ptx.kernel': a kernel stands in a module, found one inside of @outer}}
  ptx.kernel @inner target sm_80 threads 32 shared 0 {
  }
}
