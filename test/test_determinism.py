"""The same program gives the same text: in every process, whatever Python's hashes are and whatever was compiled before.

The disk cache, the machine code's cache and N5 of docs/numbers.md rest on it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

PROGRAM = """
import hashlib, json, sys
from tesela import bf16
from tesela.dialects.parsing import print_module
from tesela.dialects.target import get_target
from tesela.kernels import attention, matrices, rows
from tesela.lowering.pipeline import compile_kernel
from tesela.runtime.specialize import contract_of, kernels_of, specialize, usual_facts

KERNELS = [attention.attention, matrices.linear, rows.softmax, rows.cumsum]
found = {}
for function in KERNELS if sys.argv[1] == "forward" else reversed(KERNELS):
    module = function.trace(**{name: bf16 for name in function.type_variables})
    facts = usual_facts(contract_of(kernels_of(module)[function.name]))
    for target in ("sm_90a", "sm_80"):
        made = compile_kernel(specialize(module, function.name, facts), function.name, target)
        parts = (print_module(module), made.ptx, json.dumps(made.plan.to_json()), repr(made.diagnostics))
        found[f"{function.name} {target}"] = [hashlib.sha256(part.encode()).hexdigest() for part in parts]
        kernel = function.compile(target, **{name: bf16 for name in function.type_variables})
        shapes = [tuple(96 for _ in arg.shape) for arg in kernel.contract.args if hasattr(arg, "shape")]
        found[f"{function.name} {target}"].append(kernel.choices(*shapes) if function.is_open else "")
print(json.dumps(found, sort_keys=True))
"""


def test_processes_with_other_hashes_and_another_order_agree():
    running = []
    for seed, order in (("1", "forward"), ("2", "backward")):
        settings = os.environ | {"PYTHONHASHSEED": seed, "TESELA_CACHE": "0"}
        command = [sys.executable, "-c", PROGRAM, order]
        running.append(subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    said = []
    for process in running:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        said.append(json.loads(out))
    assert len(said[0]) == 8 and said[0] == said[1]
