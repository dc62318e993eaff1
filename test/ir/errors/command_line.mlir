// Mistakes on the command line: pipelines, options, targets and files.
// RUN: not tesela-opt %s -p cse,canonicalise 2>&1 | FileCheck %s --check-prefix=PASS
// RUN: not tesela-opt %s -p 'cse{fast}' 2>&1 | FileCheck %s --check-prefix=OPTION
// RUN: not tesela-opt %s -p 'cse,' 2>&1 | FileCheck %s --check-prefix=COMMA
// RUN: not tesela-opt %s --target sm_42 2>&1 | FileCheck %s --check-prefix=TARGET
// RUN: not tesela-opt %S/no_such_file.mlir 2>&1 | FileCheck %s --check-prefix=FILE
// RUN: not tesela-opt %S/no_such_program.py 2>&1 | FileCheck %s --check-prefix=PYTHON
// RUN: not tesela-opt %s --no-such-option 2>&1 | FileCheck %s --check-prefix=USAGE
// RUN: not tesela nonsense 2>&1 | FileCheck %s --check-prefix=COMMAND

func.func @f() {
  func.return
}

// PASS: <pipeline>:1:5: error: unknown pass 'canonicalise'
// PASS-NEXT{LITERAL}: cse,canonicalise
// PASS-NEXT:     ^
// PASS-NEXT: hint: did you mean canonicalize?

// OPTION: <pipeline>:1:5: error: pass 'cse' has no option 'fast'
// OPTION: hint: it has no options

// COMMA: <pipeline>:1:5: error: expected the name of a pass, but the pipeline ends

// TARGET: error: unknown target 'sm_42'
// TARGET-NEXT: hint: known targets: sm_80, sm_90, sm_90a

// FILE: error: cannot read '{{.*}}no_such_file.mlir': No such file or directory

// PYTHON: error: '{{.*}}no_such_program.py' is a Python program, not a module's text
// PYTHON-NEXT: hint: `tesela compile {{.*}}no_such_program.py --emit tile` writes the module of its kernel

// USAGE: unrecognized arguments: --no-such-option

// COMMAND: invalid choice: 'nonsense'
