"""Every level is text: it reads back as the same module, the rest of the compiler goes on from it, and the PTX at the end reads back and runs."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tesela.dialects import ptx
from tesela.dialects.parsing import parse_module, print_module
from tesela.dialects.ptx_text import print_program, read_program
from tesela.dialects.verify import verify_module
from tesela.lowering.emit_ptx import emit
from tesela.lowering.pipeline import STAGES, compile_kernel, lower_to
from tesela.passes import get_pass
from tesela.passes.base import PassContext
from tesela.runtime.compile import compile as compile_tile
from tesela.runtime.specialize import specialize, usual_facts
from tesela.simulator import Memory, launch

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.mlir"))
TARGETS = ("sm_90a", "sm_80")


def specialised(path: Path):
    """The example as the runtime compiles it for dense, aligned arrays."""
    kernel = compile_tile(path)
    return specialize(kernel.module, kernel.name, usual_facts(kernel.contract))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_level_reads_back(path: Path, stage: str, target: str) -> None:
    module = specialised(path)
    lower_to(module, stage, target)
    verify_module(module)
    text = print_module(module)
    again = parse_module(text, "again.mlir")
    verify_module(again)
    assert print_module(again) == text


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_compiling_from_the_text_of_any_level_gives_the_same_ptx(path: Path, target: str) -> None:
    module = specialised(path)
    wanted = _without_locations(compile_kernel(module, None, target).ptx)
    from tesela.dialects.target import get_target

    names = [name for passes in STAGES.values() for name in passes]
    for done in range(len(names) + 1):
        step = module.clone()
        context = PassContext(get_target(target))
        for name in names[:done]:
            get_pass(name)().run(step, context)
        step = parse_module(print_module(step), "step.mlir")
        for name in names[done:]:
            get_pass(name)().run(step, context)
        assert _without_locations(print_program(emit(step))) == wanted, f"after {names[done - 1] if done else 'nothing'}"


def _without_locations(text: str) -> list[str]:
    return [line for line in text.split("\n") if not line.lstrip().startswith((".loc", ".file"))]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_ptx_text_reads_back_and_runs_the_same(path: Path, target: str) -> None:
    compiled = compile_kernel(specialised(path), None, target)
    again = read_program(compiled.ptx)
    assert print_program(again) == compiled.ptx
    results = []
    for program in (compiled.program, again):
        memory = Memory()
        results.append(_run(path.stem, program, compiled.plan, memory))
    assert (results[0].view(np.uint8) == results[1].view(np.uint8)).all()


def _run(name: str, program, plan, memory: Memory) -> np.ndarray:
    rng = np.random.default_rng(3)
    shapes = {"add": [(4000,)] * 3, "softmax": [(3, 1600)] * 2, "gemm": [(160, 96), (176, 96), (160, 176)]}[name]
    kinds = {"gemm": [ml_dtypes.bfloat16, ml_dtypes.bfloat16, np.float32]}.get(name, [np.float32] * 3)
    arrays = [rng.standard_normal(shape).astype(kind) for shape, kind in zip(shapes, kinds)]
    arrays[-1][...] = 7
    from tesela.dialects.dim_expr import DimExpr
    from tesela.dialects.launch_plan import TensorMap

    by_name = {arg.name: array for arg, array in zip(plan.args, arrays)}
    address = {arg: memory.map_array(array) for arg, array in by_name.items()}
    dims = {symbol: extent for arg in plan.args for symbol, extent in zip(arg.shape, by_name[arg.name].shape)}
    params: list = []
    for param in plan.params:
        array = by_name.get(param.arg)
        match param.kind:
            case "pointer":
                params.append(address[param.arg])
            case "dim":
                params.append(dims[param.arg])
            case "stride":
                params.append(array.strides[param.index] // array.itemsize)
            case _:
                spec = param.tensormap
                params.append(
                    TensorMap(
                        str(array.dtype).replace("bfloat16", "bf16").replace("float32", "f32"),
                        address[param.arg],
                        tuple(array.shape[d] for d in spec.dims),
                        tuple(array.strides[d] for d in spec.dims[1:]),
                        spec.box,
                        (1,) * len(spec.box),
                        spec.swizzle,
                        spec.fill,
                    )
                )
    grid = tuple(DimExpr.parse(extent).evaluate(dims) for extent in plan.grid)
    launch(program, grid=grid, block=(plan.threads,), params=params, memory=memory, shared_bytes=plan.shared_bytes)
    return arrays[-1]


def test_stages_lead_to_the_ptx_dialect() -> None:
    module = specialised(EXAMPLES[0])
    lower_to(module, "ptx-ir", "sm_80")
    assert [type(op) for op in module.body.block.ops] == [ptx.KernelOp]
