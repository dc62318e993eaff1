"""The element types of dots, and what each target multiplies them with.

A dot's *kind* is its operand types, the type it sums in, and whether f32 operands may be taken as tf32. What computes it:

| operands              | sums in  | sm_90a: wgmma | mma.sync                         | otherwise |
|-----------------------|----------|---------------|----------------------------------|-----------|
| f16, bf16             | f32      | k16           | k16                              |           |
| f16                   | f16      | k16           | k16                              |           |
| f32, precision tf32   | f32      | tf32 k8       | tf32 k8, operands rounded by cvt.rna |       |
| f8E4M3FN, f8E5M2      | f32, f16 | k32           | f16 k16: both types are contained in f16, so products stay exact | |
| i8, ui8               | i32      | k32           | k32                              |           |
| f32                   | f32      |               |                                  | fma.rn    |
| f64                   | f64      |               |                                  | fma.rn    |

`wgmma` takes 32 bytes of K a step, and so does mma.sync; an instruction's register holds 4 bytes of K of one row (PTX ISA 9.0 §9.7.15.5
and §9.7.16.5), so that fragments of all types are one pattern with `lanes` = 4 / bytes elements a register. Operands with K contiguous are
read from shared memory as they lie. With M or N contiguous, wgmma reads 16-bit types only, and a register of several 8-bit elements
of one row cannot be loaded at once: those are transposed on their way into shared memory (`k_contiguous`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute

from ..dialects import async_copy, tile
from ..dialects.diagnostics import TeselaError
from ..dialects.ptx_isa import UNITS
from ..dialects.tile import element_type
from ..dialects.tile_types import memory_bytes
from .machine_costs import DOT_MACS_PER_CLOCK, FMA_LANES

EMULATED = "mma.sync does not multiply 8-bit floats: they are converted to f16, which holds them exactly, and multiplied as such"
"""What is said of a dot of 8-bit floats without wgmma."""
REGISTER_BYTES = 4
STEP_BYTES = 32
"""Bytes of K that one instruction multiplies, of every element type."""

PTX_NAMES = {"f16": "f16", "bf16": "bf16", "f8E4M3FN": "e4m3", "f8E5M2": "e5m2", "i8": "s8", "ui8": "u8", "i32": "s32", "f32": "f32", "f64": "f64"}
"""Element types as instructions name them."""
ACCUMULATORS = {
    "f16": ("f32", "f16"), "bf16": ("f32",), "f8E4M3FN": ("f32", "f16"), "f8E5M2": ("f32", "f16"), "i8": ("i32",), "ui8": ("i32",),
    "f32": ("f32",), "f64": ("f64",),
}  # fmt: skip
"""What products of each operand type may be summed in, the default first."""


@dataclass(frozen=True, slots=True)
class DotKind:
    """The types of a dot as instructions name them ("bf16", "e4m3", "s8", "tf32" …); `size`: bytes of an operand's element."""

    lhs: str
    rhs: str
    acc: str
    size: int

    @property
    def tensor_core(self) -> bool:
        """Whether wgmma and mma.sync compute it; otherwise fma does."""
        return self.lhs not in ("f32", "f64")

    @property
    def lanes(self) -> int:
        """Elements along K of one operand register."""
        return max(1, REGISTER_BYTES // self.size)

    @property
    def step(self) -> int:
        """Elements of K of one instruction."""
        return STEP_BYTES // self.size

    @property
    def emulated(self) -> bool:
        """Whether mma.sync computes it on operands converted to f16."""
        return self.lhs in ("e4m3", "e5m2")

    @property
    def acc_size(self) -> int:
        """Bytes of an element of the accumulator."""
        return int(self.acc[1:]) // 8

    @property
    def integer(self) -> bool:
        return self.acc == "s32"

    def macs_per_clock(self, wgmma: bool) -> float:
        """Multiplications of one multiprocessor in a clock, by wgmma or by what a synchronous dot is done with: twice as many of operands half as wide.

        >>> [DotKind(name, name, "f32", size).macs_per_clock(True) for name, size in (("tf32", 4), ("bf16", 2), ("e4m3", 1))]
        [1024.0, 2048.0, 4096.0]
        """
        if not self.tensor_core:
            return FMA_LANES / UNITS["fma" if self.size == 4 else "fp64"].issue
        size = 2 if self.emulated and not wgmma else self.size
        return DOT_MACS_PER_CLOCK["wgmma" if wgmma else "mma"] * 2 / size

    def k_contiguous(self, wgmma: bool) -> bool:
        """Whether buffers must have K contiguous."""
        return self.tensor_core and (self.size == 1 or (wgmma and self.size != 2))

    def wgmma_opcode(self, n: int) -> str:
        """The wgmma of `n` columns."""
        return f"wgmma.mma_async.sync.aligned.m64n{n}k{self.step}.{self.acc}.{self.lhs}.{self.rhs}"

    def mma_opcode(self, swapped: bool = False) -> str:
        """The mma.sync that multiplies a step: two times 16 of K, converted to f16, where it is emulated. `swapped`: the right operand's columns are its rows."""
        if self.emulated:
            return f"mma.sync.aligned.m16n8k16.row.col.{self.acc}.f16.f16.{self.acc}"
        operands = f"{self.rhs}.{self.lhs}" if swapped else f"{self.lhs}.{self.rhs}"
        return f"mma.sync.aligned.m16n8k{self.step}.row.col.{self.acc}.{operands}.{self.acc}"

    @property
    def fma_opcode(self) -> str:
        return f"fma.rn.{self.acc}"


@dataclass(frozen=True, slots=True)
class DotTypes:
    """Element types of a dot as programs name them, `precision` as its attribute says ("" for none), and the kind that they make."""

    lhs: str
    rhs: str
    acc: str
    precision: str
    kind: DotKind


def all_dot_types() -> Iterator[DotTypes]:
    """Every combination of types that a dot takes."""
    mixed = [{str(kind) for kind in kinds} for kinds in tile.MIXED_OPERANDS]
    for lhs, rhs in product(ACCUMULATORS, repeat=2):
        if lhs != rhs and {lhs, rhs} not in mixed:
            continue
        size = OPERAND_BYTES[lhs]
        for acc in ACCUMULATORS[lhs]:
            yield DotTypes(lhs, rhs, acc, "", DotKind(PTX_NAMES[lhs], PTX_NAMES[rhs], PTX_NAMES[acc], size))
    yield DotTypes("f32", "f32", "f32", "tf32", TF32_KIND)


TF32_KIND = DotKind("tf32", "tf32", "f32", 4)
OPERAND_BYTES = {"f16": 2, "bf16": 2, "f8E4M3FN": 1, "f8E5M2": 1, "i8": 1, "ui8": 1, "f32": 4, "f64": 8}


TF32 = StringAttr("tf32")


def operand_elements(op: tile.DotOp | async_copy.DotOp) -> tuple[Attribute, Attribute, Attribute]:
    """The element types of a dot's left and right operand and of its accumulator."""
    return _element(op.lhs.type), _element(op.rhs.type), element_type(async_copy.pending_tile(op.acc.type))


def _element(kind: Attribute) -> Attribute:
    return kind.element if isinstance(kind, async_copy.BufferType) else element_type(kind)


def dot_kind(op: tile.DotOp | async_copy.DotOp) -> DotKind:
    """The kind of a dot op. Raises TeselaError for types that nothing multiplies."""
    lhs, rhs, acc, *_ = op.operands
    found = _kind_of(lhs.type, rhs.type, acc.type, op.attributes.get(tile.PRECISION) == TF32)
    if found is not None:
        return found
    elements = operand_elements(op)
    sums = ACCUMULATORS.get(str(elements[0]))
    if sums is None:
        known = ", ".join(ACCUMULATORS)
        raise TeselaError.at(op, f"dot takes no operands of {elements[0]}; it takes {known}", "convert the operands (tile.cast; x.to(f16) in Python)")
    hint = f"accumulate in {sums[0]} and cast the result with tile.cast"
    raise TeselaError.at(op, f"a dot of {elements[0]} sums in {' or '.join(sums)}, but the accumulator is {elements[2]}", hint)


@lru_cache(maxsize=1024)
def _kind_of(left: Attribute, right: Attribute, sums: Attribute, tf32: bool) -> DotKind | None:
    """The kind of dots of values of these types; None where nothing multiplies them."""
    lhs, rhs, acc = _element(left), _element(right), element_type(async_copy.pending_tile(sums))
    if str(acc) not in ACCUMULATORS.get(str(lhs), ()):
        return None
    if tf32:
        return TF32_KIND
    return DotKind(PTX_NAMES[str(lhs)], PTX_NAMES[str(rhs)], PTX_NAMES[str(acc)], memory_bytes(lhs))
