"""How a tile goes from one register layout to another: the cheapest of other names, shuffles, and shared memory.

- *names*: every thread has what it needs; registers are renamed, or parts of them change places.
- *shuffles*: every warp has what it needs (`passes/shuffles.py`).
- *shared*: through a buffer whose layout suits both sides, by the widest accesses that both allow, stmatrix and ldmatrix among them (`passes/exchanges.py`);
  element by element where elements are no bytes.

`infer-layouts` prices conversions by this, the lowering does it, and `tesela explain` shows it with what the others would have cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from xdsl.dialects.builtin import IndexType, TensorType
from xdsl.ir import Attribute

from ..dialects.layout import TVLayout
from ..dialects.layout_attrs import ConvertOp, tv_layout_of
from . import layout_costs
from .dot_rules import block_warps
from .exchanges import EXCHANGED_BITS, Exchange, plan_exchange
from .shuffles import Shuffles, plan_shuffles


@dataclass(frozen=True, slots=True)
class Conversion:
    """The way of a conversion: `by` 'names', 'shuffles' or 'shared', and `costs` of each that is possible, in slots. `exchange` is None where elements go through
    shared memory one by one."""

    by: str
    costs: tuple[tuple[str, int], ...]
    shuffles: Shuffles | None = None
    exchange: Exchange | None = None

    @property
    def cost(self) -> int:
        return dict(self.costs)[self.by]


def shuffles_win(shuffled: int, shared: int, shape: tuple[int, ...], bits: int) -> bool:
    """Whether shuffles are chosen, where shared memory costs `shared` and the room for the tile."""
    return shuffled <= shared + layout_costs.scratch(shape, bits, False)


@lru_cache(maxsize=2048)
def plan_conversion(source: TVLayout, result: TVLayout, shape: tuple[int, ...], bits: int, warps: int, stmatrix: bool) -> Conversion:
    """The cheapest way for a tile of `shape` of elements of `bits` bits (1: predicates), of a block of `warps` warps. `stmatrix`: whether the target has it."""
    renamed = layout_costs.renaming(source, result, bits, warps)
    if renamed is not None:
        return Conversion("names", (("names", renamed),))
    exchange = plan_exchange(source, result, shape, bits // 8, stmatrix) if bits in EXCHANGED_BITS else None
    shared = exchange.cost(warps) if exchange is not None else layout_costs.exchange(source.num_values + result.num_values, warps)
    shuffles = plan_shuffles(source, result, bits)
    costs = (("shared", shared + layout_costs.scratch(shape, bits, False)),)
    if shuffles is None:
        return Conversion("shared", costs, exchange=exchange)
    costs = (("shuffles", shuffled := shuffles.cost(bits, warps)), *costs)
    if shuffles_win(shuffled, shared, shape, bits):
        return Conversion("shuffles", costs, shuffles=shuffles)
    return Conversion("shared", costs, exchange=exchange)


def conversion_of(op: ConvertOp, stmatrix: bool) -> Conversion:
    """How a `layout.convert` is done by the warps that do it. Both layouts must be known."""
    kind = op.source.type
    assert isinstance(kind, TensorType)
    source, result = tv_layout_of(kind), tv_layout_of(op.result.type)
    assert source is not None and result is not None
    return plan_conversion(source, result, tuple(kind.get_shape()), bits_of(kind.element_type), block_warps(op), stmatrix)


def bits_of(element: Attribute) -> int:
    """Bits of an element; an index has 64."""
    return 64 if isinstance(element, IndexType) else element.bitwidth  # type: ignore[attr-defined]
