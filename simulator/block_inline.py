"""The meaning of tile.inline_ptx in the block interpreter: the simulator runs the instructions, a thread for each element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from xdsl.dialects.builtin import IntegerType
from xdsl.ir import Operation

from ..dialects import tile
from ..dialects.inline_ptx import InlineError, InlineInstruction
from ..dialects.tile import element_type, shape_of
from ..dialects.tile_inline import register_class
from ..dialects.tile_types import ui8
from .block_ops import Refused
from .tile_arithmetic import Value, dtype_of

if TYPE_CHECKING:
    from .blocks import Effect, Frame, Semantics

THREADS = 128


def inline_ptx(semantics: Semantics, op: Operation) -> Effect:
    assert isinstance(op, tile.InlinePtxOp)
    try:
        text = _program(op, op.instructions())
    except InlineError as error:
        raise Refused(error.message, error.hint) from None
    dtypes, shape = [dtype_of(element_type(value.type)) for value in op.results], shape_of(op.results[0].type)

    def run(frame: Frame, *operands: Any) -> Sequence[Any]:
        return semantics.inline(lambda *values: _run(text, values, dtypes, shape), operands, dtypes)

    return run


def _run(text: str, operands: Sequence[Value], dtypes: Sequence[np.dtype], shape: tuple[int, ...]) -> list[Value]:
    from .launcher import launch
    from .memory import Memory

    memory = Memory()
    shape = np.broadcast_shapes(shape, *(np.shape(operand) for operand in operands))  # a function that combines scalars is given those of many places at once
    count = int(np.prod(shape, dtype=np.int64))
    blocks = -(-count // THREADS)
    padded = [np.zeros(blocks * THREADS, dtype) for dtype in (*dtypes, *(operand.dtype for operand in operands))]
    for array, operand in zip(padded[len(dtypes) :], operands):
        array[:count] = np.broadcast_to(operand, shape).reshape(-1)
    launch(text, "inline", (blocks,), (THREADS,), [memory.map_array(array) for array in padded], memory, races=False)
    return [array[:count].reshape(shape) for array in padded[: len(dtypes)]]


def _program(op: tile.InlinePtxOp, instructions: Sequence[InlineInstruction]) -> str:
    """A kernel that applies the instructions to the elements of arrays, a parameter for each result and operand."""
    kinds = [element_type(value.type) for value in (*op.results, *op.args)]
    classes = {f"${number}": register_class(kind) for number, kind in enumerate(kinds)}
    for instruction in instructions:
        classes |= dict(instruction.results)
    names = {name: f"%v{number}" for number, name in enumerate(classes)}
    params = ", ".join(f".param .u64 p{number}" for number in range(len(kinds)))
    lines = [f"  .reg .{cls} {names[name]};" for name, cls in classes.items()]
    lines.append("  .reg .b64 %i, %n, %at, %size; .reg .b32 %t, %b, %m; .reg .b16 %byte;")
    lines.append(f"  mov.b32 %t, %tid.x; mov.b32 %b, %ctaid.x; mov.b32 %m, {THREADS}; mad.lo.s32 %t, %b, %m, %t; cvt.s64.s32 %i, %t;")
    for number in range(len(op.results), len(kinds)):
        lines += _address(number, kinds[number])
        lines += _load(names[f"${number}"], kinds[number])
    for instruction in instructions:
        words = iter([names[name] for name, _ in instruction.results])
        sources = iter(instruction.sources)
        immediates = iter(instruction.immediates)
        form = next(form for form in instruction.row.forms if len(form) == len(instruction.results) + len(instruction.sources) + len(instruction.immediates))
        operands = []
        for operand in form:
            if operand.role == "d":
                operands.append(next(words))
            elif operand.role == "imm":
                operands.append(str(next(immediates)))
            else:
                source = next(sources)
                operands.append(names[source] if isinstance(source, str) else str(source[0]))
        lines.append(f"  {instruction.row.opcode} {', '.join(operands)};")
    for number in range(len(op.results)):
        lines += _address(number, kinds[number])
        lines += _store(names[f"${number}"], kinds[number])
    return "\n".join([f".version 8.6\n.target sm_90a\n.address_size 64\n.visible .entry inline({params})\n{{", *lines, "  ret;\n}\n"])


def _size(kind: Any) -> int:
    return max(1, getattr(kind, "bitwidth", 64) // 8)


def _address(number: int, kind: Any) -> list[str]:
    return [f"  ld.param.b64 %at, [p{number}]; mov.b64 %size, {_size(kind)}; mul.lo.s64 %n, %i, %size; add.s64 %at, %at, %n;"]


def _load(name: str, kind: Any) -> list[str]:
    bits = getattr(kind, "bitwidth", 64)
    if bits == 1:
        return [f"  ld.global.b8 %byte, [%at]; setp.ne.s16 {name}, %byte, 0;"]
    if bits == 8:
        extend = f"and.b16 {name}, {name}, 255" if kind == ui8 or not isinstance(kind, IntegerType) else f"cvt.s16.s8 {name}, {name}"
        return [f"  ld.global.b8 {name}, [%at]; {extend};"]
    return [f"  ld.global.b{bits} {name}, [%at];"]


def _store(name: str, kind: Any) -> list[str]:
    if getattr(kind, "bitwidth", 64) == 1:
        return [f"  selp.b16 %byte, 1, 0, {name}; st.global.b8 [%at], %byte;"]
    return [f"  st.global.b{getattr(kind, 'bitwidth', 64)} [%at], {name};"]
