"""Every row of the instruction table that layouts choose between, gathered from the code that offers them.

A test that runs programs (`bench/random_programs.py`) can so ask whether each choice has been made, and made right. Nothing here lists instructions: of a dot
the types are those of `dot_types`, the widths those of `dot_rules.wgmma_width`; of accesses the forms are those of `matrix_access` and `access`;
of copies the ranks and widths are those that `dot_rules` allows. What an op determines by itself (an atomic update's kind, an elementwise
op's type) is no choice of layouts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from xdsl.dialects.builtin import BFloat16Type, Float16Type, Float32Type

from ..dialects.ptx_isa import lookup
from ..dialects.target import Target
from . import shuffles
from .access import VECTOR_BYTES, vector_form, vector_update, vector_widths
from .dot_rules import (
    CP_ASYNC_BYTES,
    MOST_TMA_DIMS,
    WGMMA_MAX_N,
    cp_async_opcode,
    tma_load_opcode,
    wgmma_width,
)
from .dot_types import DotTypes, all_dot_types
from .layout_costs import BUTTERFLY
from .matrix_access import MATRIX_COUNTS, access_widths, matrix_opcode
from .scan_layouts import SHUFFLES, shuffle_opcode

ELEMENT_BITS = (1, 8, 16, 32, 64)
DOT_RANK = 2
"""Dimensions of a dot's operand at least, so of an array of which it is a tile."""


@dataclass(frozen=True, slots=True)
class Offered:
    """A row, and what chooses it ('dot', 'matrix', 'shared', 'global', 'copy', 'reduce', 'scan', 'convert', 'update'). Of a dot, `types`, and of wgmma its `columns`; of a tensor copy
    the dimensions of the array; of accesses the bits of an
    element; of atomic updates of several its type, and the bits of all."""

    opcode: str
    by: str
    types: DotTypes | None = None
    columns: int = 0
    array_rank: int = 0
    bits: int = 0
    element: str = ""


def offered_rows(target: Target) -> dict[str, Offered]:
    """The rows that layouts choose between on a target, by opcode."""
    found: dict[str, Offered] = {}
    for offered in (*_dots(target), *_accesses(), *_copies(target), *_reductions()):
        if lookup(offered.opcode).supports(target.name):
            found.setdefault(offered.opcode, offered)
    return found


def _dots(target: Target) -> Iterator[Offered]:
    for types in all_dot_types():
        kind = types.kind
        if not kind.tensor_core:
            yield Offered(kind.fma_opcode, "dot", types)
            continue
        yield Offered(kind.mma_opcode(), "dot", types)
        if target.has_wgmma:
            yield from (
                Offered(kind.wgmma_opcode(n), "dot", types, n) for n in range(8, WGMMA_MAX_N + 1, 8) if wgmma_width(kind, n)
            )


def _accesses() -> Iterator[Offered]:
    for name, count, transposed in product(("ldmatrix", "stmatrix"), MATRIX_COUNTS, (False, True)):
        yield Offered(matrix_opcode(name, count, transposed), "matrix", bits=16)
    for bits in ELEMENT_BITS:
        for name, vector in product(("ld", "st"), access_widths(max(1, bits // 8))):
            yield Offered(f"{name}.shared.{vector_form(max(8, bits), vector)}", "shared", bits=bits)
        for name, vector in product(("ld", "st"), vector_widths(bits)):
            yield Offered(f"{name}.global.{vector_form(bits, vector)}", "global", bits=bits)


def _copies(target: Target) -> Iterator[Offered]:
    if target.has_tma:
        for rank in range(DOT_RANK, MOST_TMA_DIMS + 1):
            yield Offered(tma_load_opcode(rank, cluster=False), "copy", array_rank=rank)
        for element, vector, result in product((Float32Type(), Float16Type(), BFloat16Type()), (2, 4, 8), (False, True)):
            if element.bitwidth * vector <= 8 * VECTOR_BYTES:
                yield Offered(vector_update(element, vector, result), "update", element=str(element), bits=element.bitwidth * vector)
    for width in CP_ASYNC_BYTES:
        yield Offered(cp_async_opcode(width), "copy")


def _reductions() -> Iterator[Offered]:
    yield Offered(BUTTERFLY, "reduce")
    yield from (Offered(shuffle_opcode(how), "scan") for how in SHUFFLES)
    yield Offered(shuffles.BUTTERFLY, "convert")
    yield Offered(shuffles.INDEXED, "convert")
