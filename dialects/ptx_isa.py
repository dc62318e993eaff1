"""The instruction table: one row per PTX instruction that the compiler can emit, as data. Plain Python, no xDSL.

Everything that knows an instruction knows it from here: the verifier (operand classes), the printer and the reader of PTX
text (operand forms), the solvers and the cost model (unit, latency, issue cost), the simulator (the name of its meaning) and the
reference (all of it). Adding an instruction is a row here, a meaning in the simulator, and a test.

An operand form is written as `role:class` with an optional count for a braced vector:

    d:b32        a destination register            d4:b32       four of them in braces
    s:b32        a source register or immediate    s2:b32       two sources in braces
    r:b32        a source that must be a register
    io64:b32     64 registers read and overwritten in place (wgmma accumulators), in braces
    addr:shared  an address `[register + offset]` in a state space (shared, global, param, generic, cluster)
    tma:2        `[map, {x, y}]`: a tensor map's generic address and 2 coordinates
    imm          an immediate integer              label        a branch target
    sym          a parameter's or variable's name  special      a special register
    p|s          alternatives: a predicate or an immediate, as wgmma's scale-d takes

Facts: PTX ISA 9.0; latencies and issue costs as measured on an H200 where `source` says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Mapping

CLASS_BITS: Mapping[str, int] = MappingProxyType({"pred": 1, "b16": 16, "b32": 32, "b64": 64})


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand of a row. `role`: 'd', 's', 'r', 'io', 'addr', 'tma', 'imm', 'label', 'sym', 'special'; `cls`: register class, or the
    state space of an address; `count`: registers in braces (0: a single one, no braces; for 'tma', the dimensions)."""

    role: str
    cls: str = ""
    count: int = 0

    @property
    def registers(self) -> int:
        """How many registers it takes."""
        return 0 if self.role in ("imm", "label", "sym", "special") else max(1, self.count)


@dataclass(frozen=True, slots=True)
class Row:
    """One instruction. `meaning`: the simulator's function; `args`: its parameters (`type`, `cmp` …). `effects`: words out of
    'read:SPACE', 'write:SPACE', 'async' (completes later), 'sync' (orders threads or memory), 'convergent' (all lanes of the warp
    must execute it together), 'branch'. `latency` in clocks, `issue` in issue slots of a warp."""

    opcode: str
    operands: tuple[Operand, ...]
    meaning: str
    args: Mapping[str, Any] = field(default_factory=dict)
    since: str = "sm_80"
    version: tuple[int, int] = (7, 0)
    unit: str = "alu"
    latency: int = 4
    issue: int = 1
    effects: frozenset[str] = frozenset()
    source: str = "PTX ISA 9.0"


@lru_cache(maxsize=None)
def parse_operand(text: str) -> Operand:
    """`io64:b32` -> Operand('io', 'b32', 64). Raises ValueError for what is no operand form."""
    head, _, cls = text.partition(":")
    role = head.rstrip("0123456789")
    count = int(head[len(role) :] or 0)
    if role == "tma":
        return Operand("tma", "global", int(cls))
    if role not in ("d", "s", "r", "io", "addr", "imm", "label", "sym", "special"):
        raise ValueError(f"unknown operand form {text!r}")
    return Operand(role, cls, count)
