"""The instruction table: one row per PTX instruction that the compiler can emit or read, as data; no xDSL.

Everything that knows an instruction knows it from here: the verifier (operand classes), the printer and the reader of
PTX text (operand forms), the solvers and the cost model (unit, latency, issue cost), the simulator (the name of its
meaning) and the reference (all of it). Adding an instruction is a row here, a meaning in the simulator, and a test.

An operand form is written as `role:class` with an optional count for a braced vector:

    d:b32        a destination register            d4:b32       four of them in braces
    s:b32        a source register or immediate    s2:b32       two sources in braces
    r:b32        a source that must be a register
    io64:b32     64 registers read and overwritten in place (wgmma accumulators), in braces
    addr:shared  an address `[register + offset]` in a state space (shared, global, param, generic, cluster)
    tma:2        `[map, {x, y}]`: a tensor map's generic address and 2 coordinates
    imm          an immediate integer              label        a branch target
    sym          a parameter's or variable's name  special      a special register
    _            the sink, printed as it stands    _|d:pred     a destination behind a discarded one (elect.sync)

A predicate source `s:pred` takes 0 or 1 as its immediate (wgmma's scale-d). Some opcodes are spelt alike but take
different operands (`bar.sync a` and `bar.sync a, b`; a wgmma whose A comes from registers): such a row has several
`forms`, the first of which is `operands`.

    >>> lookup("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16").forms[1][1]
    Operand(role='r', cls='b32', count=4, after_sink=False)
    >>> str(lookup("shfl.sync.bfly.b32"))
    'shfl.sync.bfly.b32 d:b32, r:b32, s:b32, s:b32, s:b32'

The rows are written by comprehension in `ptx_rows_compute.py`, `ptx_rows_memory.py` and `ptx_rows_async.py`, and made
on first lookup, one family (the opcode up to its first dot) at a time: there are some thousands, and a kernel uses
twenty.

Facts: PTX ISA 9.0. Latencies and costs: as measured on an H200 where `source` says so, else the unit's usual figure.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

CLASS_BITS: Mapping[str, int] = MappingProxyType({"pred": 1, "b16": 16, "b32": 32, "b64": 64})

_CLASS_OF_TYPE: dict[str, str] = {"pred": "pred"}
_CLASS_OF_TYPE |= dict.fromkeys("b16 s16 u16 f16 bf16 e4m3x2 e5m2x2 b8 s8 u8".split(), "b16")
_CLASS_OF_TYPE |= dict.fromkeys("b32 s32 u32 f32 tf32 f16x2 bf16x2".split(), "b32")
_CLASS_OF_TYPE |= dict.fromkeys("b64 s64 u64 f64".split(), "b64")
CLASS_OF_TYPE: Mapping[str, str] = MappingProxyType(_CLASS_OF_TYPE)
"""Which register class holds a value of a PTX type; 8-bit values take a 16-bit register (no 8-bit arithmetic
exists)."""

_THREE = [f"{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"]
_CLUSTER = [f"{n}.{axis}" for n in ("clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid") for axis in "xyz"]
_MASKS = [f"lanemask_{which}" for which in ("eq", "le", "lt", "ge", "gt")]
_ONE = "laneid warpid nwarpid smid nsmid cluster_ctarank cluster_nctarank clock clock_hi globaltimer_lo globaltimer_hi"
_ONE += " dynamic_smem_size total_smem_size"
SPECIAL_REGISTERS: Mapping[str, str] = MappingProxyType(
    {f"%{name}": "b32" for name in (*_THREE, *_CLUSTER, *_MASKS, *_ONE.split())}
    | {"%clock64": "b64", "%globaltimer": "b64", "%gridid": "b64"}
)
"""Special registers (PTX ISA 9.0 §10) and their classes."""

SPACES = ("global", "shared", "cluster", "param", "generic")
"""State spaces of an address operand; `cluster` is the 32-bit shared::cluster window."""

OLDEST_VERSION = (7, 8)
"""The oldest PTX version that is written or read here; a row's `version` never states an older one."""

TARGETS = ("sm_80", "sm_90", "sm_90a")
"""The targets, each of which takes all rows of those before it."""


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand of a row. `role`: 'd', 's', 'r', 'io', 'addr', 'tma', 'imm', 'label', 'sym', 'special' or 'sink';
    `cls`: register class, or the state space of an address; `count`: registers in braces (0: a single one, no braces;
    for 'tma', the dimensions); `after_sink`: printed behind `_|`."""

    role: str
    cls: str = ""
    count: int = 0
    after_sink: bool = False

    @property
    def registers(self) -> int:
        """How many registers it takes: an address its base, a tensor address its map and every coordinate."""
        if self.role in ("imm", "label", "sym", "special", "sink"):
            return 0
        return self.count + 1 if self.role == "tma" else max(1, self.count)

    def __str__(self) -> str:
        if self.role == "sink":
            return "_"
        if self.role == "tma":
            return f"tma:{self.count}"
        head = f"{self.role}{self.count or ''}"
        return ("_|" if self.after_sink else "") + (f"{head}:{self.cls}" if self.cls else head)


class Unit(NamedTuple):
    """What executes an instruction, and its usual figures: `latency` in clocks until a dependent instruction may
    issue, `issue` in clocks of the unit that one warp's instruction takes (of a quarter of the SM for alu, fma, fp64,
    mufu, cvt and shuffle; of the whole SM for the others)."""

    latency: int
    issue: int
    source: str


UNITS: Mapping[str, Unit] = MappingProxyType(
    {
        "alu": Unit(4, 2, "64 lanes a clock and SM: CUDA C++ Programming Guide, throughput of native arithmetic"),
        "fma": Unit(4, 1, "measured on an H200: 119 lanes a clock and SM"),
        "fp64": Unit(8, 2, "64 lanes a clock and SM: CUDA C++ Programming Guide, throughput of native arithmetic"),
        "mufu": Unit(18, 8, "measured on an H200: 15.8 lanes a clock and SM"),
        "cvt": Unit(6, 2, "measured on an H200: 57 lanes of cvt.rn.bf16x2.f32 a clock and SM"),
        "shuffle": Unit(24, 4, "measured on an H200: latency 24, 32 lanes a clock and SM"),
        "shared": Unit(23, 1, "measured on an H200: latency 23, 128 bytes a clock and SM"),
        "global": Unit(280, 1, "measured on an H200: 280 from L2, 720 from memory"),
        "cp_async": Unit(294, 1, "measured on an H200: 294 from L2, 720 from memory"),
        "tma": Unit(
            466, 1, "measured on an H200: a 128x64 bf16 tile 466 from L2, 1080 from memory; 106 bytes a clock and SM"
        ),
        "mma": Unit(33, 16, "512 f16 multiply-adds a clock and quarter SM; latency as usual for m16n8k16"),
        "wgmma": Unit(183, 32, "measured on an H200: n/2 clocks each, 55 more until a batch completes, 24 to issue"),
        "barrier": Unit(29, 1, "measured on an H200: bar.sync of 32/128/256/384 threads 15/21/29/37"),
        "mbarrier": Unit(45, 1, "measured on an H200: a try_wait that hits 45"),
        "fence": Unit(37, 1, "measured on an H200: fence.proxy.async 23 for one warp, 37 for four"),
        "branch": Unit(8, 1, "estimate"),
        "control": Unit(1, 1, "estimate"),
    }
)


@dataclass(frozen=True, slots=True)
class Row:
    """One instruction. `operands`: its first form, and `forms` all of them; `meaning`: the simulator's function;
    `args`: its parameters, decoded from the spelling (`type`, `cmp`, `space`, `vector`, `shape` …). `since` and
    `version`: the first target and PTX version that take it. `effects`: words out of 'read:SPACE', 'write:SPACE',
    'async' (completes later), 'sync' (orders threads or memory), 'convergent' (all lanes of the warp must execute it
    together), 'branch', 'volatile' (neither removed nor merged). `latency` and `issue`: see Unit."""

    opcode: str
    operands: tuple[Operand, ...]
    meaning: str
    args: Mapping[str, Any] = field(default_factory=dict)
    since: str = "sm_80"
    version: tuple[int, int] = OLDEST_VERSION
    unit: str = "alu"
    latency: int = 4
    issue: int = 1
    effects: frozenset[str] = frozenset()
    source: str = "PTX ISA 9.0"
    forms: tuple[tuple[Operand, ...], ...] = ()

    def supports(self, target: str) -> bool:
        """Whether `target` ('sm_80', 'sm_90', 'sm_90a') takes it."""
        return TARGETS.index(target) >= TARGETS.index(self.since)

    def __str__(self) -> str:
        return " | ".join(f"{self.opcode} {', '.join(map(str, form))}".rstrip() for form in self.forms)


@cache
def parse_operand(text: str) -> Operand:
    """`io64:b32` -> Operand('io', 'b32', 64). Raises ValueError for what is no operand form."""
    if text == "_":
        return Operand("sink")
    if text.startswith("_|"):
        inner = parse_operand(text[2:])
        return Operand(inner.role, inner.cls, inner.count, True)
    head, _, cls = text.partition(":")
    role = head.rstrip("0123456789")
    count = int(head[len(role) :] or 0)
    if role == "tma":
        return Operand("tma", "global", int(cls))
    if role not in ("d", "s", "r", "io", "addr", "imm", "label", "sym", "special"):
        raise ValueError(f"unknown operand form {text!r}")
    if role in ("d", "s", "r", "io") and cls not in CLASS_BITS or role == "addr" and cls not in SPACES:
        raise ValueError(f"unknown class in operand form {text!r}")
    return Operand(role, cls, count)


@cache
def parse_forms(text: str) -> tuple[tuple[Operand, ...], ...]:
    """`s:b32 imm; s:b32` -> two forms. An empty text is one form without operands."""
    return tuple(tuple(parse_operand(word) for word in form.split()) for form in text.split(";"))


_NO_ARGS: Mapping[str, Any] = MappingProxyType({})


def make_row(
    opcode: str,
    forms: str,
    meaning: str,
    args: Mapping[str, Any] = _NO_ARGS,
    unit: str = "alu",
    effects: frozenset[str] = frozenset(),
    since: str = "sm_80",
    version: tuple[int, int] = OLDEST_VERSION,
    latency: int | None = None,
    issue: int | None = None,
) -> Row:
    """A Row from the textual operand forms, with the unit's figures where no others are given."""
    parsed, facts = parse_forms(forms), UNITS[unit]
    return Row(
        opcode,
        parsed[0],
        meaning,
        args,
        since,
        version,
        unit,
        facts.latency if latency is None else latency,
        facts.issue if issue is None else issue,
        effects,
        facts.source,
        parsed,
    )


Family = Callable[[], Iterable[Row]]

# Which module writes which families; the module maps each family's name to the function that makes its rows.
_MODULES: Mapping[str, str] = {
    **dict.fromkeys(
        "add sub mul mad fma div rem min max abs neg sqrt rcp rsqrt ex2 lg2 tanh sin cos copysign and or xor not shl shr shf lop3 "
        "prmt bfe bfi popc clz brev setp selp cvt mov".split(),
        "ptx_rows_compute",
    ),
    **dict.fromkeys(
        "ld st cvta mapa atom red prefetch createpolicy shfl vote redux activemask match elect ldmatrix stmatrix movmatrix bra ret exit "
        "trap nanosleep".split(),
        "ptx_rows_memory",
    ),
    **dict.fromkeys(
        "cp mbarrier fence membar bar barrier mma wgmma setmaxnreg griddepcontrol tensormap".split(), "ptx_rows_async"
    ),
}


class _Table(Mapping[str, Row]):
    """All rows by opcode, made family by family as they are asked for; iteration makes them all, and takes the families in the
    order of `_MODULES`, whichever were asked for first."""

    def __init__(self) -> None:
        self._rows: dict[str, Row] = {}
        self._pending: dict[str, str] = dict(_MODULES)
        self._lock = threading.RLock()
        self._opcodes: list[str] = []

    def _load(self, family: str) -> None:
        if family not in self._pending:
            return
        with self._lock:
            module = self._pending.get(family)
            if module is None:  # another thread has made them meanwhile
                return
            families: Mapping[str, Family] = importlib.import_module(f".{module}", __package__).FAMILIES
            self._rows.update((row.opcode, row) for row in families[family]())
            del self._pending[family]

    def get(self, key: str, default: Any = None) -> Any:
        row = self._rows.get(key)
        if row is None:
            self._load(key.partition(".")[0])
            row = self._rows.get(key)
        return default if row is None else row

    def __getitem__(self, key: str) -> Row:
        row = self.get(key)
        if row is None:
            raise KeyError(key)
        return row

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.get(key) is not None

    def __iter__(self) -> Iterator[str]:
        for family in list(self._pending):
            self._load(family)
        if not self._opcodes:
            place = {family: number for number, family in enumerate(_MODULES)}
            self._opcodes = sorted(self._rows, key=lambda opcode: place[opcode.partition(".")[0]])
        return iter(self._opcodes)

    def __len__(self) -> int:
        return sum(1 for _ in self)


TABLE: Mapping[str, Row] = _Table()
"""Every instruction by its whole spelling. A Mapping; looking one up makes only its family's rows."""


class UnknownInstruction(ValueError):
    """An opcode that the table lacks; the message names the nearest ones."""


def lookup(opcode: str) -> Row:
    """The row of an opcode. Raises UnknownInstruction, naming the nearest spellings."""
    row = TABLE.get(opcode)
    if row is not None:
        return row
    import difflib  # 3 ms, for the error only

    family = opcode.partition(".")[0]
    if family in _MODULES:
        near = difflib.get_close_matches(opcode, [key for key in TABLE if key.partition(".")[0] == family], 3, 0.5)
        hint = f"; nearest: {', '.join(near)}" if near else ""
        raise UnknownInstruction(f"unknown PTX instruction '{opcode}': the table has no such form of '{family}'{hint}")
    near = difflib.get_close_matches(family, list(_MODULES), 3, 0.6)
    hint = f"; did you mean {' or '.join(repr(name) for name in near)}?" if near else ""
    raise UnknownInstruction(f"unknown PTX instruction '{opcode}': the table has no '{family}'{hint}")


# Spellings that mean the same as another: data movement looks only at bits, so typed forms are read as bit forms.
_BIT_TYPE = {
    "u32": "b32",
    "s32": "b32",
    "f32": "b32",
    "u64": "b64",
    "s64": "b64",
    "f64": "b64",
    "u16": "b16",
    "f16": "b16",
}
_BIT_TYPE |= {"bf16": "b16", "u8": "b8", "f16x2": "b32", "bf16x2": "b32"}
_MOVES_BITS = ("ld", "st", "mov", "selp")


def canonical(opcode: str) -> str:
    """The table's spelling of an opcode as people write it: `ld.global.f32` is `ld.global.b32`, `mov.u32` is
    `mov.b32`, `bra.uni` is `bra`, `barrier.sync.aligned` is `bar.sync` (PTX ISA 9.0 §9.7.13.1). Unknown opcodes come
    back as they are."""
    if opcode in TABLE:
        return opcode
    words = opcode.split(".")
    if words[0] in _MOVES_BITS:
        if words[-1] in _BIT_TYPE:
            words[-1] = _BIT_TYPE[words[-1]]
        elif words[0] == "mov" and words[-1] == "s16":
            words[-1] = "b16"
        elif words[0] in ("st", "selp") and words[-1] in ("s16", "s8"):
            words[-1] = "b" + words[-1][1:]
        words = ["shared" if word == "shared::cta" else word for word in words]
    elif opcode in _SYNONYMS:
        return _SYNONYMS[opcode]
    elif words[0] == "barrier" and words[1:2] == ["cta"] and words[-1] == "aligned":
        words = ["bar", *words[2:-1]]
    elif words[:2] == ["barrier", "sync"] and words[-1] == "aligned":
        words = ["bar", "sync"]
    elif words[0] in ("mbarrier", "cp", "ldmatrix", "stmatrix"):
        words = ["shared::cta" if word == "shared" and words[0] == "mbarrier" else word for word in words]
        words = ["shared" if word == "shared::cta" and words[0].endswith("matrix") else word for word in words]
    spelling = ".".join(words)
    return spelling if spelling in TABLE else opcode


_SYNONYMS: Mapping[str, str] = {
    "bra.uni": "bra",
    "ret.uni": "ret",
    "barrier.cluster.arrive.release.aligned": "barrier.cluster.arrive.aligned",
    "barrier.cluster.wait.acquire.aligned": "barrier.cluster.wait.aligned",
    "barrier.cluster.arrive.release": "barrier.cluster.arrive",
    "barrier.cluster.wait.acquire": "barrier.cluster.wait",
}
