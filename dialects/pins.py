"""Pins: attributes by which an author takes a choice away from the compiler. `infer-layouts` obeys them, or says what they contradict.

    %a = tile.load %A[%m, %k] {shared = #layout.shared<[128:64], [64:1], swizzle<3, 3, 3>>, copy = "tma"} : …
    %x = arith.addf %y, %z {layout = #layout.tv<thread [128:(1)], value [2:(128)]>} : tensor<256xf32>
    %d = tile.dot %a, %b, %c {instruction = "m64n128k16 2x1"} : …

`layout` may stand at any op with one result, a tile; in a type, `tensor<256xf32, #layout.tv<…>>`, it says the same. `shared` and `copy` stand where a tile is
loaded or computed that becomes the operand of a dot: of its way through shared memory (of a computed one `shared` only). Python's word is
`tesela.pin`.
"""

from __future__ import annotations

from xdsl.dialects.builtin import StringAttr, TensorType
from xdsl.ir import Operation

from .diagnostics import TeselaError
from .layout import SharedLayout, TVLayout
from .layout_attrs import SharedLayoutAttr, TVLayoutAttr, shared_layout_fault

LAYOUT = "layout"
"""Which thread holds which element of the result, and of all that is tied to it."""
SHARED = "shared"
"""How the result lies in the buffers of its channel."""
COPY = "copy"
"""How a loaded tile comes into its buffer: as `via` of `async.put`."""
DEPTH = "stated"
"""Of a channel: its depth is the author's, and no pass changes it."""
INSTRUCTION = "instruction"
"""Words that the way of a dot must have; after infer-layouts the whole way."""


def layout_of(op: Operation) -> TVLayout | None:
    """The op's `layout`. Raises TeselaError for something else there."""
    stated = op.attributes.get(LAYOUT)
    if stated is not None and not isinstance(stated, TVLayoutAttr):
        raise _wrong(op, LAYOUT, stated, "a thread-value layout, as #layout.tv<thread […], value […]>")
    return stated.data if stated is not None else None


def shared_of(op: Operation) -> SharedLayout | None:
    """The op's `shared`. Raises TeselaError for something else there, and where two elements would share a place or one has none."""
    stated = op.attributes.get(SHARED)
    if stated is not None and not isinstance(stated, SharedLayoutAttr):
        raise _wrong(op, SHARED, stated, "the layout of a buffer, as #layout.shared<[…], […]>")
    if stated is None:
        return None
    kind = op.results[0].type if op.results else None
    if isinstance(kind, TensorType) and (fault := shared_layout_fault(stated.data, kind.get_shape())) is not None:
        raise TeselaError.at(op, f"'shared' is pinned to {stated.data}: {fault}")
    return stated.data


def words_of(op: Operation, name: str) -> str | None:
    """The op's `copy` or `instruction`. Raises TeselaError for something else there."""
    stated = op.attributes.get(name)
    if stated is not None and not isinstance(stated, StringAttr):
        raise _wrong(op, name, stated, 'a text, as "…"')
    return stated.data if stated is not None else None


def _wrong(op: Operation, name: str, found: object, wanted: str) -> TeselaError:
    return TeselaError.at(op, f"the attribute '{name}' is {found}: it must be {wanted}")
