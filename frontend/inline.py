"""The word inline_ptx: instructions that the author names, for each element of tiles and scalars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..dialects import tile
from ..dialects.inline_ptx import InlineError
from .operations import builds
from .types import DType, index
from .values import Value, describe, type_attribute

if TYPE_CHECKING:
    from .trace import Tracer


@builds("inline_ptx")
def inline_ptx(t: Tracer, text: Any, *operands_and_result: Any) -> Any:
    *operands, result = operands_and_result
    if not isinstance(text, str):
        raise t.error(f"the instructions must be a text, found {describe(text)}", at=t.at("text"))
    kinds = result if isinstance(result, tuple) else (result,)
    for kind in kinds:
        if not isinstance(kind, DType):
            raise t.error(f"result must be an element type, or a tuple of some, found {describe(kind)}", "write result=tesela.f32", t.at("result"))
    values = [t.b.value(operand) for operand in operands]
    shape = t.b.common_shape(values, "tesela.inline_ptx") if values else ()
    if shape and index in kinds:
        raise t.error("a tile of index is not in the language", "use i64", t.at("result"))
    op = tile.InlinePtxOp.make(text, [t.b.broadcast(value, shape).ssa for value in values], [type_attribute(kind, shape) for kind in kinds])
    try:
        op.instructions()
    except InlineError as error:
        raise t.error(error.message, error.hint, t.at("text")) from None
    t.b.add(op)
    made = tuple(Value(found, kind, shape) for found, kind in zip(op.results, kinds))
    return made if isinstance(result, tuple) else made[0]
