"""Decoding: a kernel's instructions become steps, each one NumPy operation on [instructions, threads].

A step is a run of consecutive instructions of one opcode and one guard whose operands have the same forms and none of which reads or
rewrites what an earlier one of the run writes: 64 `add.f32` in a row are one addition of two [64, threads] arrays. Registers of
a class are the rows of one array, so a run over `%d0 … %d63` is a slice of it, not a copy.

A *meaning* is a function that takes a `Form` (the run, with accessors for its operands) once and returns what is done each time.
Meanings are registered by mnemonic, the longest dotted prefix of the opcode that has one; the modifiers that follow are read
from the opcode itself.

    @meaning("add")
    def add(form): return form.elementwise(np.add, "s32", ...)
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..dialects.diagnostics import TeselaError
from ..dialects.ptx_program import (
    Addr,
    Entry,
    Imm,
    Instr,
    Label,
    Operand,
    Pair,
    Program,
    Reg,
    SharedDecl,
    Sink,
    Special,
    Symbol,
    TensorAddr,
    Vec,
)
from . import memory
from .control_flow import Block, build_blocks, family, running_order
from .selection import Selection

if TYPE_CHECKING:
    from .machine import Machine

Array = NDArray[Any]
Getter = Callable[["Machine", Selection], Array]
Setter = Callable[["Machine", Selection, Array], None]
Action = Callable[["Machine", Selection], None]
Outcome = list[tuple[int, Selection]] | None
Control = Callable[["Machine", Selection, int], Outcome]

VIEWS: dict[str, tuple[str, type[Any]]] = {
    "pred": ("pred", np.bool_),
    "u16": ("b16", np.uint16),
    "s16": ("b16", np.int16),
    "u32": ("b32", np.uint32),
    "s32": ("b32", np.int32),
    "f32": ("b32", np.float32),
    "u64": ("b64", np.uint64),
    "s64": ("b64", np.int64),
    "f64": ("b64", np.float64),
}
"""The arrays under which registers can be read: name -> (register class, element type)."""

VIEW_INDEX = {name: i for i, name in enumerate(VIEWS)}
CLASS_VIEW = {"pred": "pred", "b16": "u16", "b32": "u32", "b64": "u64"}

TYPE_VIEW = {name: name for name in VIEWS} | {
    "b16": "u16",
    "f16": "u16",
    "bf16": "u16",
    "e4m3x2": "u16",
    "e5m2x2": "u16",
    "b32": "u32",
    "f16x2": "u32",
    "bf16x2": "u32",
    "tf32": "u32",
    "b64": "u64",
}
"""PTX type -> the view that holds its bits."""

NARROW = {"b8": np.uint8, "u8": np.uint8, "s8": np.int8}
"""Types narrower than every register class."""

TYPE_SIZE = {t: n for n in (1, 2, 4, 8) for t in (f"b{8 * n}", f"u{8 * n}", f"s{8 * n}", f"f{8 * n}")} | {
    "bf16": 2,
    "f16x2": 4,
    "bf16x2": 4,
    "e4m3x2": 2,
    "e5m2x2": 2,
    "tf32": 4,
}


@dataclass(frozen=True, slots=True)
class Meaning:
    """A registered meaning. `fuse`: runs may form; `dests`: positions of destination operands; `same`: positions whose immediates
    must be equal within a run; `unit`: how many threads must execute it together (0, 32 or 128); `mask`: the position of its member
    mask, None for the whole unit; `control`: it decides itself which threads go where."""

    name: str
    build: Callable[[Form], Any]
    fuse: bool
    dests: tuple[int, ...]
    same: tuple[int, ...]
    unit: int
    mask: int | None
    control: bool


MEANINGS: dict[str, Meaning] = {}

_MODULES = (
    "arithmetic",
    "integers",
    "conversions",
    "control",
    "data_movement",
    "atomics",
    "warp_ops",
    "barrier_ops",
    "copies",
    "tensor_copies",
    "matrix_ops",
)


def meaning(
    *names: str,
    fuse: bool = True,
    dests: tuple[int, ...] = (0,),
    same: tuple[int, ...] = (),
    unit: int = 0,
    mask: int | None = None,
    control: bool = False,
) -> Callable[[Callable[[Form], Any]], Callable[[Form], Any]]:
    """Registers the meaning of the mnemonics `names`; see Meaning."""

    def register(build: Callable[[Form], Any]) -> Callable[[Form], Any]:
        for name in names:
            MEANINGS[name] = Meaning(name, build, fuse and not control, dests, same, unit, mask, control)
        return build

    return register


@cache
def _register_all() -> None:
    """Import what registers meanings. Another thread may be at it: whoever comes here waits for all of it, not for the first."""
    for module in _MODULES:
        importlib.import_module(f".{module}", __package__)


@cache
def find_meaning(opcode: str) -> Meaning:
    """The meaning of an opcode. Raises TeselaError where the simulator has none."""
    _register_all()
    words = opcode.split(".")
    for end in range(len(words), 0, -1):
        found = MEANINGS.get(".".join(words[:end]))
        if found is not None:
            return found
    raise TeselaError(f"the simulator has no meaning for the PTX instruction '{opcode}'")


@dataclass(slots=True)
class Step:
    """One decoded step. `guard`: row of the guard predicate, -1 for none; `mask`: reads the member masks of a collective step;
    `every_lane`: they are known to name all lanes."""

    instrs: list[Instr]
    meaning: Meaning
    run: Any
    guard: int = -1
    negated: bool = False
    mask: Getter | None = None
    every_lane: bool = False


def _rows_key(rows: Sequence[int], collapse: bool) -> slice | NDArray[np.intp]:
    """Rows as a slice where they are regular. `collapse`: equal rows become one, which NumPy then repeats."""
    first = rows[0]
    if len(rows) == 1 or (collapse and all(r == first for r in rows)):
        return slice(first, first + 1, 1)
    step = rows[1] - first
    if step > 0 and all(r == first + i * step for i, r in enumerate(rows)):
        return slice(first, rows[-1] + 1, step)
    return np.array(rows, np.intp)


def immediate(value: Imm, view: str) -> Any:
    """An immediate as an element of a view: integers wrap, floating-point literals are converted where their kind differs."""
    dtype = VIEWS[view][1]
    if value.kind == "f64" and view in ("f32", "u32"):
        single = np.array(value.bits & (1 << 64) - 1, np.uint64).view(np.float64).astype(np.float32)
        return single.view(dtype)[()]
    if value.kind == "f32" and view in ("f64", "u64"):
        return np.array(value.bits, np.uint32).view(np.float32).astype(np.float64).view(dtype)[()]
    if view == "pred":
        return np.bool_(value.bits != 0)
    size = np.dtype(dtype).itemsize
    bits = np.array(value.bits & ((1 << (8 * size)) - 1), f"u{size}")
    return bits.view(dtype)[()]


class Form:
    """A run of instructions as its meaning sees it. `words` are the dotted parts of the opcode, `type` the last of them."""

    def __init__(self, code: Code, instrs: list[Instr], block: Block):
        self.code, self.instrs, self.block = code, instrs, block
        self.count = len(instrs)
        self.opcode = instrs[0].opcode
        self.words = tuple(self.opcode.split("."))
        self.type = self.words[-1]
        self.operands = instrs[0].operands
        self.arity = len(self.operands)

    def has(self, word: str) -> bool:
        return word in self.words

    def pick(self, words: Sequence[str], default: str = "") -> str:
        """The first of the opcode's modifiers that is among `words`."""
        return next((w for w in self.words if w in words), default)

    def column(self, k: int) -> list[Operand]:
        """The k-th operands of all instructions of the run."""
        return [instr.operands[k] for instr in self.instrs]

    def parts(self, k: int) -> int:
        """How many registers the k-th operand's braces hold (1 without braces)."""
        operand = self.operands[k]
        return len(operand.items) if isinstance(operand, Vec) else 1

    def flat(self, k: int) -> list[Operand]:
        """The k-th operands with braces opened: all of the first instruction, then of the second …"""
        result: list[Operand] = []
        for operand in self.column(k):
            result.extend(operand.items if isinstance(operand, Vec) else (operand,))
        return result

    def bad(self, message: str, hint: str | None = None) -> TeselaError:
        return self.code.error(self.instrs[0], message, hint)

    def reg_class(self, operand: Operand) -> str:
        """The class of a register operand; of a vector's first register."""
        if isinstance(operand, Vec):
            operand = operand.items[0]
        if isinstance(operand, Reg):
            return self.code.register(operand.name, self.instrs[0])[0]
        raise self.bad(f"'{self.opcode}' needs a register here, not {operand}")

    def _rows(self, operands: Sequence[Operand], cls: str, collapse: bool = False) -> slice | NDArray[np.intp]:
        rows: list[int] = []
        for operand in operands:
            if not isinstance(operand, Reg):
                raise self.bad(f"'{self.opcode}' mixes registers with other operands in one position")
            found, row = self.code.register(operand.name, self.instrs[0])
            if found != cls:
                raise self.bad(
                    f"'{self.opcode}' takes a register of class {cls}, but {operand.name} is of class {found}",
                    f"declare it as '.reg .{cls}'",
                )
            rows.append(row)
        return _rows_key(rows, collapse)

    def source(self, k: int | Sequence[Operand], type: str, loose: bool = False) -> Getter:
        """Reads the k-th operand (or the given operands, one per row) as [n, threads] of the type's view; constants are [n, 1], and
        one register that stands in all of them [1, threads].
        `loose`: the register may be of a wider class, of which the low bits count (ld, st, cvt; PTX ISA 9.0 §9.4.1)."""
        operands = self.flat(k) if isinstance(k, int) else list(k)
        first = operands[0]
        collapse = not isinstance(k, int) or self.parts(k) == 1
        view = TYPE_VIEW.get(type)
        if isinstance(first, Reg):
            cls = self.reg_class(first)
            if view is None or (loose and cls != VIEWS[view][0]):
                dtype = NARROW[type] if view is None else VIEWS[view][1]
                wide = self._row_getter(CLASS_VIEW[cls], self._rows(operands, cls, collapse))
                if np.dtype(dtype).itemsize > np.dtype(VIEWS[CLASS_VIEW[cls]][1]).itemsize:
                    raise self.bad(f"'{self.opcode}' reads {type} from {first.name}, a register of class {cls}")
                unsigned = np.dtype(f"u{np.dtype(dtype).itemsize}")
                return lambda m, sel: wide(m, sel).astype(unsigned).view(dtype)
            return self._row_getter(view, self._rows(operands, VIEWS[view][0], collapse))
        if isinstance(first, Special):
            return self._special_getter(first.name, view or "u32")
        if isinstance(first, Symbol):
            return self._symbol_getter(operands, view or "u64")
        if isinstance(first, Imm):
            if view is None:
                narrow = NARROW[type]
                bits = np.array([[op.bits & 0xFF] for op in operands if isinstance(op, Imm)], np.uint8).view(narrow)
                return lambda m, sel: bits
            if not all(isinstance(op, Imm) for op in operands):
                raise self.bad(f"'{self.opcode}' mixes immediates with other operands in one position")
            values = np.array([[immediate(op, view)] for op in operands if isinstance(op, Imm)], VIEWS[view][1])
            values.flags.writeable = False
            return lambda m, sel: values
        raise self.bad(f"'{self.opcode}' cannot read the operand {first}")

    @staticmethod
    def _row_getter(view: str, rows: slice | NDArray[np.intp]) -> Getter:
        index = VIEW_INDEX[view]
        if isinstance(rows, slice):

            def get(m: Machine, sel: Selection) -> Array:
                return m.regs[index][rows, sel.key]

            return get
        column = rows[:, None]

        def get_scattered(m: Machine, sel: Selection) -> Array:
            return m.regs[index][rows if sel.is_slice else column, sel.key]

        return get_scattered

    def _special_getter(self, name: str, view: str) -> Getter:
        dtype = VIEWS[view][1]

        def get(m: Machine, sel: Selection) -> Array:
            value = m.special(name)
            return np.asarray(value[sel.key] if value.ndim else value, dtype).reshape(1, -1)

        return get

    def _symbol_getter(self, operands: Sequence[Operand], view: str) -> Getter:
        dtype = VIEWS[view][1]
        spaces: set[str] = set()
        values: list[list[int]] = []
        for op in operands:
            assert isinstance(op, Symbol)
            space, offset = self.code.symbol(op, self.instrs[0])
            spaces.add(space)
            values.append([offset])
        if len(spaces) > 1:
            raise self.bad("symbols of different state spaces in one run")
        constant = np.array(values, dtype)
        if spaces == {"param"}:
            return lambda m, sel: constant

        def get(m: Machine, sel: Selection) -> Array:
            if m.cluster_size == 1:
                return constant
            return constant + m.rank_bits[sel.key].astype(dtype)

        return get

    def target(self, k: int | Sequence[Operand], type: str, loose: bool = False) -> Setter:
        """Writes [n, threads] to the k-th operand (or to the given ones). `loose`: a register of a wider class takes the value sign- or
        zero-extended by its type."""
        operands = self.flat(k) if isinstance(k, int) else list(k)
        if all(isinstance(op, Sink) for op in operands):
            return lambda m, sel, value: None
        cls = self.reg_class(operands[0])
        view = TYPE_VIEW.get(type)
        extend: np.dtype[Any] | None = None
        if view is None or (loose and cls != VIEWS[view][0]):
            size = 1 if view is None else np.dtype(VIEWS[view][1]).itemsize
            wide = np.dtype(VIEWS[CLASS_VIEW[cls]][1])
            if wide.itemsize < size or cls == "pred":
                raise self.bad(f"'{self.opcode}' writes {type} to a register of class {cls}")
            signed = type in ("s8", "s16", "s32")
            extend = np.dtype(f"{'i' if signed else 'u'}{wide.itemsize}")
            view = CLASS_VIEW[cls]
        index, out = VIEW_INDEX[view], VIEWS[view][1]
        rows = self._rows(operands, cls)
        column = rows if isinstance(rows, slice) else rows[:, None]

        def put(m: Machine, sel: Selection, value: Array) -> None:
            if extend is not None:
                value = value.astype(extend).view(out)
            m.regs[index][rows if sel.is_slice else column, sel.key] = value

        return put

    def elementwise(self, function: Callable[..., Array], dest: str, *sources: str) -> Action:
        """d = function(a, b, …) with operands 1, 2, … read as the given types."""
        put = self.target(0, dest)
        gets = [self.source(k + 1, t) for k, t in enumerate(sources)]
        if len(gets) == 1:
            (one,) = gets
            return lambda m, sel: put(m, sel, function(one(m, sel)))
        if len(gets) == 2:
            one, two = gets
            return lambda m, sel: put(m, sel, function(one(m, sel), two(m, sel)))
        return lambda m, sel: put(m, sel, function(*(get(m, sel) for get in gets)))

    def address(self, k: int | Sequence[Operand]) -> Getter:
        """Reads addresses `[base + offset]` as [n, threads] of int64 (32-bit bases wrap at 32 bits)."""
        operands = self.column(k) if isinstance(k, int) else list(k)
        bases: list[Operand] = []
        offsets: list[list[int]] = []
        for op in operands:
            if isinstance(op, Addr):
                bases.append(op.base)
                offsets.append([op.offset])
            elif isinstance(op, Reg | Symbol | Imm):
                bases.append(op)
                offsets.append([0])
            else:
                raise self.bad(f"'{self.opcode}' needs an address, not {op}")
        wide = isinstance(bases[0], Reg) and self.reg_class(bases[0]) == "b64"
        wide = wide or isinstance(bases[0], Imm)
        get = self.source(bases, "b64" if wide else "b32")
        bits = 64 if wide else 32
        offset = np.array([[o[0] & ((1 << bits) - 1)] for o in offsets], np.uint64 if wide else np.uint32)
        if not offset.any():
            rows = len(operands)  # one register in all of them is one row only
            return lambda m, sel: np.broadcast_to(get(m, sel), (rows, sel.count)).astype(np.int64)
        return lambda m, sel: (get(m, sel) + offset).astype(np.int64)

    def immediate(self, k: int) -> int:
        """The k-th operand's value, which must be an immediate."""
        operand = self.operands[k]
        if not isinstance(operand, Imm):
            raise self.bad(f"operand {k + 1} of '{self.opcode}' must be an immediate")
        return operand.bits


class Code:
    """A decoded kernel: its steps in running order and the sizes of its register files."""

    def __init__(self, program: Program, entry: Entry):
        self.program, self.entry = program, entry
        find_meaning("ret")
        self._registers: dict[str, tuple[str, int]] = {}
        self.rows = dict.fromkeys(CLASS_VIEW, 0)
        for name, cls in entry.registers.items():
            self._registers[name] = (cls, self.rows[cls])
            self.rows[cls] += 1
        self.param_offsets: dict[str, tuple[int, int]] = {}
        at = 0
        for param in entry.params:
            size = param.size or TYPE_SIZE[param.type]
            align = param.align or min(size, 8)
            at = -(-at // align) * align
            self.param_offsets[param.name] = (at, size)
            at += size
        self.param_bytes = at
        self.shared_offsets: dict[str, int] = {}
        self.static_shared = self._place_shared([*program.shared, *entry.shared])
        self.uses_warpgroups = any(isinstance(i, Instr) and i.opcode.startswith("wgmma.") for i in entry.body)
        self.blocks = build_blocks(entry)
        self.starts: dict[int, int] = {}
        self.steps: list[Step] = []
        self._lay_out()

    def _place_shared(self, variables: Sequence[SharedDecl]) -> int:
        at = memory.RESERVED_SHARED
        for var in variables:
            if not var.extern:
                at = -(-at // max(1, var.align)) * max(1, var.align)
                self.shared_offsets[var.name] = at
                at += var.size
        static = at - memory.RESERVED_SHARED
        for var in variables:
            if var.extern:
                at = -(-at // max(1, var.align)) * max(1, var.align)
                self.shared_offsets[var.name] = at
                static = at - memory.RESERVED_SHARED
        return static

    def error(self, instr: Instr, message: str, hint: str | None = None) -> TeselaError:
        """An error at an instruction."""
        from .machine import place

        location, where = place(self.program, instr)
        return TeselaError.at(location, f"{message}{where}", hint)

    def register(self, name: str, instr: Instr) -> tuple[str, int]:
        """(class, row) of a register."""
        found = self._registers.get(name)
        if found is None:
            raise self.error(instr, f"the register {name} is not declared")
        return found

    def symbol(self, symbol: Symbol, instr: Instr) -> tuple[str, int]:
        """(state space, offset) of a variable: offsets in a block's shared window, or in the parameters."""
        if symbol.name in self.shared_offsets:
            return "shared", self.shared_offsets[symbol.name] + symbol.offset
        if symbol.name in self.param_offsets:
            return "param", self.param_offsets[symbol.name][0] + symbol.offset
        raise self.error(instr, f"'{symbol.name}' is neither a parameter nor a shared variable")

    def _lay_out(self) -> None:
        order = running_order(self.blocks)
        following = dict(zip(order, order[1:]))
        for index in order:
            block = self.blocks[index]
            self.starts[index] = len(self.steps)
            for run in self._runs(block):
                self._add_step(run, block)
            last = block.instrs[-1] if block.instrs else None
            leaves = last is not None and last.guard is None and family(last.opcode) in ("bra", "ret", "exit", "trap")
            if leaves:
                continue
            if block.fall is None:
                self._add_step([Instr("ret")], block)  # the closing brace ends a kernel too
            elif following.get(index) != block.fall:
                target = block.fall
                jump = Block(block.index, jump=target)
                self._add_step([Instr("bra", (Label(""),))], jump)

    def _add_step(self, run: list[Instr], block: Block) -> None:
        found = find_meaning(run[0].opcode)
        form = Form(self, run, block)
        step = Step(run, found, found.build(form))
        if run[0].guard is not None:
            cls, step.guard = self.register(run[0].guard, run[0])
            step.negated = run[0].negated
            if cls != "pred":
                raise self.error(run[0], f"the guard {run[0].guard} is of class {cls}, not a predicate")
        if found.mask is not None:
            members = run[0].operands[found.mask]
            step.mask = form.source([members], "b32")
            step.every_lane = isinstance(members, Imm) and members.bits & 0xFFFFFFFF == 0xFFFFFFFF
        self.steps.append(step)

    def _runs(self, block: Block) -> list[list[Instr]]:
        runs: list[list[Instr]] = []
        key: Any = None
        written: set[str] = set()
        for instr in block.instrs:
            found = find_meaning(instr.opcode)
            writes = {n for k in found.dests if k < len(instr.operands) for n in names_in(instr.operands[k])}
            reads = {n for k, op in enumerate(instr.operands) if k not in found.dests for n in names_in(op)}
            if instr.guard is not None:
                reads.add(instr.guard)
            this = None
            if found.fuse:
                this = (
                    instr.opcode,
                    instr.guard,
                    instr.negated,
                    tuple(self._shape(op) for op in instr.operands),
                    tuple(instr.operands[k] for k in found.same if k < len(instr.operands)),
                )
            if this is not None and this == key and not (written & reads) and not (written & writes):
                runs[-1].append(instr)
                written |= writes
            else:
                runs.append([instr])
                written = writes
                key = this
        return runs

    def _shape(self, operand: Operand) -> Any:
        match operand:
            case Reg():
                return "r", self._registers.get(operand.name, ("",))[0]
            case Imm():
                return "i"
            case Symbol():
                return "param" if operand.name in self.param_offsets else "shared"
            case Addr():
                return "a", self._shape(operand.base)
            case Vec():
                return "v", *(self._shape(op) for op in operand.items)
            case Pair():
                return "p", self._shape(operand.first), self._shape(operand.second)
            case Sink():
                return "_"
            case _:
                return operand


def names_in(operand: Operand) -> list[str]:
    """The registers an operand mentions."""
    match operand:
        case Reg():
            return [operand.name]
        case Addr():
            return names_in(operand.base)
        case TensorAddr():
            return [*names_in(operand.base), *(n for op in operand.coords for n in names_in(op))]
        case Vec():
            return [n for op in operand.items for n in names_in(op)]
        case Pair():
            return [*names_in(operand.first), *names_in(operand.second)]
        case _:
            return []
