// What emission rejects, each at its line.
// RUN: tesela-opt %s --emit-ptx --split-input-file --verify-diagnostics

ptx.kernel @unassigned target sm_80 threads 32 shared 0 {
  // expected-error@+1 {{no registers are assigned to %x}}
  %x = ptx.param "x" : !ptx.reg<b32>
}

// -----

ptx.kernel @one target sm_90a threads 32 shared 0 { }
// expected-error@+1 {{kernels for sm_90a and sm_80 in one module}}
ptx.kernel @two target sm_80 threads 32 shared 0 { }

// -----

// expected-error@+1 {{the module has no ptx.kernel}}
builtin.module { }

// -----

ptx.kernel @foreign target sm_80 threads 32 shared 0 {
  // expected-error@+1 {{'arith.constant' cannot be written as PTX}}
  %x = arith.constant 1 : i32
}
