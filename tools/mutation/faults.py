"""The kinds of faults that are planted: where each can be, what it does to the program, and as what it must be reported.

A kind of fault is a row of `KINDS`: a function that gives, for an instruction, the changes that would be that fault there, and the set of symptoms
of which at least one must be seen. `reports.KINDS` are symptoms, and so is a WRONG_RESULT: arrays that do not hold what the program that is right
leaves in them. Faults of *order* (a wait, a fence, a barrier, an arrival, a phase, a count) must be reported by the judge, whatever the results
happen to be; of faults of *data* (an offset, a swizzle, a constant, a register) a wrong result is what is expected.

Planting: `sites(launch)` lists every fault of every kind at every instruction that was executed; `choose` takes some of each kind, the same ones
for the same seed.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ...dialects.ptx_program import (
    Addr,
    Entry,
    Imm,
    Instr,
    LabelDef,
    Operand,
    Pair,
    Pragma,
    Program,
    Reg,
    Symbol,
    TensorAddr,
    Vec,
)
from ...simulator import reports as r
from ...simulator.decode import TYPE_SIZE, find_meaning, names_in
from ...simulator.tensor_maps import MAP_BYTES
from .launches import Recorded

WRONG_RESULT = "wrong result"

Item = Instr | LabelDef | Pragma

_STUCK = {r.DEADLOCK, r.BARRIER, r.BYTE_COUNT, r.DIVERGENCE}
_UNORDERED = {r.RACE, r.MISSING_WAIT, r.MISSING_PROXY_FENCE, r.IN_FLIGHT, r.UNINITIALISED, r.EXIT}
_DATA = {WRONG_RESULT, r.OUT_OF_BOUNDS, r.MISALIGNED, r.UNINITIALISED, r.RACE, r.MISSING_WAIT, r.FAULT, *_STUCK}


@dataclass(frozen=True)
class Change:
    """One fault at one place. `items`: what stands there instead, by position in the body; `registers`: new ones by name, with their class; `params`:
    bytes of the parameters that are changed, by offset."""

    text: str
    items: dict[int, tuple[Item, ...]] = field(default_factory=dict)
    registers: dict[str, str] = field(default_factory=dict)
    params: dict[int, int] = field(default_factory=dict)


Plant = Callable[[Recorded, Entry, int], Iterable[Change]]


class Kind(NamedTuple):
    """A kind of fault: what gives its changes at an instruction, the symptoms of which one must be seen, and whether it is a fault of order."""

    plant: Plant
    symptoms: frozenset[str]
    order: bool


KINDS: dict[str, Kind] = {}


def _kind(name: str, symptoms: Iterable[str], order: bool) -> Callable[[Plant], Plant]:
    def register(plant: Plant) -> Plant:
        KINDS[name] = Kind(plant, frozenset(symptoms), order)
        return plant

    return register


@dataclass(frozen=True)
class Mutant:
    """A fault planted in a recorded launch. `index`: the position in the body; `key` names it among all mutants of the launch."""

    kind: str
    index: int
    number: int
    change: Change
    opcode: str

    @property
    def key(self) -> str:
        return f"{self.kind}@{self.index}.{self.number}"

    def program(self, launch: Recorded) -> Program:
        """The faulty program; the launch's own stays as it is."""
        entry = launch.kernel
        body: list[Item] = []
        for position, item in enumerate(entry.body):
            body.extend(self.change.items.get(position, (item,)))
        faulty = replace(entry, body=body, registers={**entry.registers, **self.change.registers})
        return replace(launch.program, entries=[faulty if e is entry else e for e in launch.program.entries])

    def params(self, launch: Recorded) -> bytes:
        data = bytearray(launch.params)
        for offset, value in self.change.params.items():
            data[offset] = value
        return bytes(data)


def sites(launch: Recorded) -> dict[str, list[Mutant]]:
    """Every fault that can be planted at an instruction which the launch executes, by kind."""
    entry = launch.kernel
    found: dict[str, list[Mutant]] = {name: [] for name in KINDS}
    for index, item in enumerate(entry.body):
        if not isinstance(item, Instr) or not launch.executed[index]:
            continue
        for name, kind in KINDS.items():
            for number, change in enumerate(kind.plant(launch, entry, index)):
                found[name].append(Mutant(name, index, number, change, item.opcode))
    return found


def choose(
    found: dict[str, list[Mutant]], each: int, seed: str, kinds: Sequence[str] = (), fits: Callable[[Mutant], bool] = lambda mutant: True
) -> list[Mutant]:
    """At most `each` mutants that fit of every kind (of the given ones), spread at random by the seed over the places where they can be, in order of
    the text."""
    chosen: list[Mutant] = []
    for name, mutants in found.items():
        if kinds and name not in kinds:
            continue
        order = random.Random(f"{seed}/{name}").sample(mutants, len(mutants))
        chosen.extend(itertools.islice(filter(fits, order), each))
    return sorted(chosen, key=lambda m: (m.index, m.kind, m.number))


# --- Instructions and operands ---


def instr_at(entry: Entry, index: int) -> Instr:
    item = entry.body[index]
    assert isinstance(item, Instr)
    return item


def next_instr(entry: Entry, index: int) -> int | None:
    """The position of the next instruction, if no label stands between."""
    for position in range(index + 1, len(entry.body)):
        item = entry.body[position]
        if isinstance(item, Instr):
            return position
        if isinstance(item, LabelDef):
            return None
    return None


def is_control(instr: Instr) -> bool:
    return instr.opcode.split(".")[0] in ("bra", "ret", "exit", "trap")


def is_wait(instr: Instr) -> bool:
    return ".wait_group" in instr.opcode or ".wait_all" in instr.opcode


def is_try_wait(instr: Instr) -> bool:
    return instr.opcode.startswith(("mbarrier.try_wait", "mbarrier.test_wait"))


def is_barrier(instr: Instr) -> bool:
    return instr.opcode.startswith(("bar.", "barrier."))


def is_fence(instr: Instr) -> bool:
    return instr.opcode.startswith(("fence.", "membar.", "wgmma.fence"))


def is_commit(instr: Instr) -> bool:
    return ".commit_group" in instr.opcode


def is_arrive(instr: Instr) -> bool:
    return instr.opcode.startswith(("mbarrier.arrive", "cp.async.mbarrier.arrive", "mbarrier.complete_tx", "mbarrier.expect_tx"))


def is_copy(instr: Instr) -> bool:
    """An asynchronous copy."""
    words = instr.opcode.split(".")
    return words[0] in ("cp", "red") and "async" in words and not is_wait(instr) and not is_commit(instr) and not is_arrive(instr)


def is_async_mma(instr: Instr) -> bool:
    return instr.opcode.startswith("wgmma.mma_async")


def is_access(instr: Instr) -> bool:
    """An access to memory by a thread."""
    words = instr.opcode.split(".")
    return words[0] in ("ld", "st", "atom", "red", "ldmatrix", "stmatrix") and "param" not in words and not is_copy(instr)


def orders(instr: Instr) -> bool:
    """Whether an instruction orders accesses, begins asynchronous ones, or counts for a barrier."""
    return (
        is_wait(instr)
        or is_try_wait(instr)
        or is_barrier(instr)
        or is_fence(instr)
        or is_commit(instr)
        or is_arrive(instr)
        or is_copy(instr)
        or is_async_mma(instr)
        or instr.opcode.startswith("mbarrier.init")
    )


def reads_of(instr: Instr) -> list[str]:
    """The registers an instruction reads, its guard too."""
    dests = find_meaning(instr.opcode).dests
    found = [name for k, operand in enumerate(instr.operands) if k not in dests for name in names_in(operand)]
    return found if instr.guard is None else [*found, instr.guard]


def writes_of(instr: Instr) -> list[str]:
    """The registers an instruction writes."""
    dests = find_meaning(instr.opcode).dests
    return [name for k in dests if k < len(instr.operands) for name in names_in(instr.operands[k])]


def with_operand(instr: Instr, position: int, operand: Operand) -> Instr:
    operands = (*instr.operands[:position], operand, *instr.operands[position + 1 :])
    return replace(instr, operands=operands)


def renamed(operand: Operand, old: str, new: str) -> Operand:
    """An operand with one register in place of another."""
    match operand:
        case Reg(name):
            return Reg(new) if name == old else operand
        case Addr():
            base = renamed(operand.base, old, new)
            assert isinstance(base, Reg | Symbol | Imm)
            return replace(operand, base=base)
        case TensorAddr():
            base = renamed(operand.base, old, new)
            assert isinstance(base, Reg | Symbol)
            return TensorAddr(base, tuple(renamed(c, old, new) for c in operand.coords))
        case Vec():
            return Vec(tuple(renamed(i, old, new) for i in operand.items))
        case Pair():
            return Pair(renamed(operand.first, old, new), renamed(operand.second, old, new))
        case _:
            return operand


def _fresh(entry: Entry, cls: str) -> tuple[str, dict[str, str]]:
    """The name of a register that the kernel does not have, and its declaration."""
    name = f"%mutant_{cls}"
    assert name not in entry.registers
    return name, {name: cls}


def _dropped(index: int, instr: Instr) -> Change:
    return Change(f"without '{instr.opcode}'", {index: ()})


# --- Faults of order ---


@_kind("drop-wait", {r.MISSING_WAIT, r.RACE, r.IN_FLIGHT, r.UNINITIALISED, *_STUCK}, order=True)
def _drop_wait(launch: Recorded, entry: Entry, index: int) -> Iterator[Change]:
    instr = instr_at(entry, index)
    if is_wait(instr):
        yield _dropped(index, instr)
    elif is_try_wait(instr):
        told = Instr("mov.pred", (instr.operands[0], Imm(1)), instr.guard, instr.negated, instr.loc)
        yield Change(f"'{instr.opcode}' always says yes", {index: (told,)})


@_kind("weaken-wait", {r.MISSING_WAIT, r.RACE, r.IN_FLIGHT, r.UNINITIALISED}, order=True)
def _weaken_wait(launch: Recorded, entry: Entry, index: int) -> Iterator[Change]:
    instr = instr_at(entry, index)
    if is_wait(instr) and instr.operands and isinstance(instr.operands[0], Imm):
        count = instr.operands[0].bits
        yield Change(f"wait for all but {count + 1} groups, not {count}", {index: (with_operand(instr, 0, Imm(count + 1)),)})
        if ".bulk.wait_group" in instr.opcode and ".read" not in instr.opcode:
            yield Change("wait for reads only", {index: (replace(instr, opcode=instr.opcode + ".read"),)})


@_kind("drop-fence", {r.MISSING_PROXY_FENCE, r.RACE, r.IN_FLIGHT}, order=True)
def _drop_fence(launch: Recorded, entry: Entry, index: int) -> Iterator[Change]:
    instr = instr_at(entry, index)
    if is_fence(instr):
        yield _dropped(index, instr)


@_kind("drop-arrive", {*_STUCK, *_UNORDERED}, order=True)
def _drop_arrive(launch: Recorded, entry: Entry, index: int) -> Iterator[Change]:
    instr = instr_at(entry, index)
    if is_arrive(instr):
        yield _dropped(index, instr)


@_kind("drop-commit", {r.MISSING_WAIT, r.RACE, r.IN_FLIGHT, r.UNINITIALISED}, order=True)
def _drop_commit(launch: Recorded, entry: Entry, index: int) -> Iterator[Change]:
    instr = instr_at(entry, index)
    if is_commit(instr):
        yield _dropped(index, instr)


@_kind("drop-barrier", {*_STUCK, *_UNORDERED}, order=True)
def _drop_barrier(launch: Recorded, entry: Entry, index: int) -> Iterator[Change]:
    instr = instr_at(entry, index)
    if is_barrier(instr):
        yield _dropped(index, instr)


@_kind("drop-init", {*_STUCK, *_UNORDERED}, order=True)
def _drop_init(launch: Recorded, entry: Entry, index: int) -> Iterator[Change]:
    instr = instr_at(entry, index)
    if instr.opcode.startswith("mbarrier.init"):
        yield _dropped(index, instr)


@_kind("flip-parity", {*_STUCK, *_UNORDERED}, order=True)
def _flip_parity(launch: Recorded, entry: Entry, index: int) -> Iterator[Change]:
    instr = instr_at(entry, index)
    if not is_try_wait(instr) or ".parity" not in instr.opcode:
        return
    parity = instr.operands[2]
    if isinstance(parity, Imm):
        yield Change("the other parity", {index: (with_operand(instr, 2, Imm(1 - parity.bits)),)})
    elif isinstance(parity, Reg):
        name, registers = _fresh(entry, "b32")
        flip = Instr("xor.b32", (Reg(name), parity, Imm(1)), loc=instr.loc)
        yield Change("the other parity", {index: (flip, with_operand(instr, 2, Reg(name)))}, registers)


@_kind("change-count", {*_STUCK, *_UNORDERED}, order=True)
def _change_count(launch: Recorded, entry: Entry, index: int) -> Iterator[Change]:
    instr = instr_at(entry, index)
    if instr.opcode.startswith("mbarrier.init"):
        position, by = 1, (1, -1)
    elif is_barrier(instr) and "warp" not in instr.opcode and len(instr.operands) > 1:
        position, by = 1, (32, -32)
    else:
        return
    count = instr.operands[position]
    for step in by:
        if isinstance(count, Imm) and count.bits + step > 0:
            yield Change(f"{count.bits + step} arrivals, not {count.bits}", {index: (with_operand(instr, position, Imm(count.bits + step)),)})


@_kind("change-bytes", {r.BYTE_COUNT, r.DEADLOCK, *_UNORDERED}, order=True)
def _change_bytes(launch: Recorded, entry: Entry, index: int) -> Iterator[Change]:
    instr = instr_at(entry, index)
    if "expect_tx" not in instr.opcode:
        return
    count = instr.operands[-1]
    if isinstance(count, Imm):
        for step in (16, -16):
            yield Change(f"{count.bits + step} bytes, not {count.bits}", {index: (with_operand(instr, len(instr.operands) - 1, Imm(count.bits + step)),)})


def role(instr: Instr) -> str | None:
    """What an instruction does in the order of accesses: a key of WEAKENED, or None."""
    tests = (
        ("wait", is_wait), ("fence", is_fence), ("barrier", is_barrier), ("commit", is_commit), ("arrive", is_arrive), ("copy", is_copy),
        ("mma", is_async_mma), ("access", is_access), ("init", lambda i: i.opcode.startswith("mbarrier.init")),
    )  # fmt: skip
    return next((name for name, test in tests if test(instr)), None)


WEAKENED = {
    "wait": ("fence", "barrier", "arrive", "access", "copy", "mma"),
    "access": ("fence", "barrier", "arrive"),
    "fence": ("barrier", "arrive", "copy", "mma"),
    "barrier": ("access", "copy", "mma"),
    "copy": ("commit",),
    "mma": ("commit",),
    "commit": ("wait",),
    "init": ("fence", "barrier"),
}
"""By role: which roles may follow it so that the other order is weaker."""


@_kind("swap-order", {*_STUCK, *_UNORDERED}, order=True)
def _swap_order(launch: Recorded, entry: Entry, index: int) -> Iterator[Change]:
    """Two neighbours of which the second relies on the first."""
    after = next_instr(entry, index)
    if after is None:
        return
    first, second = instr_at(entry, index), instr_at(entry, after)
    if role(second) in WEAKENED.get(role(first) or "", ()) and not _depend(first, second):
        yield Change(f"'{second.opcode}' before '{first.opcode}'", {index: (second,), after: (first,)})


# --- Faults of data ---


def _depend(first: Instr, second: Instr) -> bool:
    """Whether registers make the order of two instructions matter."""
    writes, later = set(writes_of(first)), set(writes_of(second))
    return bool(writes & set(reads_of(second)) or later & set(reads_of(first)) or writes & later)


@_kind("swap-ops", _DATA | {r.IN_FLIGHT, r.MISSING_PROXY_FENCE}, order=False)
def _swap_ops(launch: Recorded, entry: Entry, index: int) -> Iterator[Change]:
    """Two neighbours of which one needs what the other makes."""
    after = next_instr(entry, index)
    if after is None:
        return
    first, second = instr_at(entry, index), instr_at(entry, after)
    if not is_control(first) and not is_control(second) and _depend(first, second):
        yield Change(f"'{second.opcode}' before '{first.opcode}'", {index: (second,), after: (first,)})


@_kind("drop-op", _DATA | {r.IN_FLIGHT}, order=False)
def _drop_op(launch: Recorded, entry: Entry, index: int) -> Iterator[Change]:
    instr = instr_at(entry, index)
    counted = instr.opcode.startswith(("mbarrier.init", "setmaxnreg", "prefetch"))
    if is_copy(instr) or is_async_mma(instr) or not (orders(instr) or is_control(instr) or counted):
        yield _dropped(index, instr)


@_kind("change-offset", _DATA, order=False)
def _change_offset(launch: Recorded, entry: Entry, index: int) -> Iterator[Change]:
    """Of an address, a coordinate of a box, or the start of a variable."""
    instr = instr_at(entry, index)
    words = instr.opcode.split(".")
    if "param" in words or words[0] == "prefetch":
        return
    vector = next((int(w[1]) for w in words if w in ("v2", "v4")), 1)
    size = 8 if words[0] == "mbarrier" else 16 if words[0] in ("cp", "ldmatrix", "stmatrix", "mov") else TYPE_SIZE.get(words[-1], 4) * vector
    for k, operand in enumerate(instr.operands):
        if isinstance(operand, Addr):
            moved = replace(operand, offset=operand.offset + size)
            yield Change(f"{size} bytes further", {index: (with_operand(instr, k, moved),)})
        elif isinstance(operand, Symbol) and words[0] == "mov":
            yield Change(f"{size} bytes further", {index: (with_operand(instr, k, replace(operand, offset=operand.offset + size)),)})
        elif isinstance(operand, TensorAddr):
            name, registers = _fresh(entry, "b32")
            for axis, step in ((0, 8), (1, 1)):
                coordinate = operand.coords[axis]
                add = Instr("add.s32", (Reg(name), coordinate, Imm(step)), loc=instr.loc)
                coords = (*operand.coords[:axis], Reg(name), *operand.coords[axis + 1 :])
                yield Change(
                    f"a box {step} further in dimension {axis}",
                    {index: (add, with_operand(instr, k, replace(operand, coords=coords)))},
                    registers,
                )


@_kind("change-swizzle", _DATA, order=False)
def _change_swizzle(launch: Recorded, entry: Entry, index: int) -> Iterator[Change]:
    """Of an address (an exclusive or), a matrix descriptor (its bits 62 and 63), or a tensor map."""
    instr = instr_at(entry, index)
    if instr.opcode == "xor.b32" and isinstance(instr.operands[1], Reg):
        plain = Instr("mov.b32", instr.operands[:2], instr.guard, instr.negated, instr.loc)
        yield Change("an address without its swizzle", {index: (plain,)})
    for k in (1, 2) if is_async_mma(instr) else ():
        operand = instr.operands[k]
        if isinstance(operand, Reg) and entry.registers[operand.name] == "b64":
            name, registers = _fresh(entry, "b64")
            flip = Instr("xor.b64", (Reg(name), operand, Imm(3 << 62)), loc=instr.loc)
            yield Change("another swizzle in a descriptor", {index: (flip, with_operand(instr, k, Reg(name)))}, registers)
    if is_copy(instr):
        yield from _maps(launch, entry)


def _maps(launch: Recorded, entry: Entry) -> Iterator[Change]:
    """The tensor maps among the parameters, without their swizzle (`simulator/tensor_maps.py` says where it is)."""
    offset = 0
    for param in entry.params:
        size = param.size or TYPE_SIZE[param.type]
        align = param.align or min(size, 8)
        offset = -(-offset // align) * align
        if size == MAP_BYTES and launch.params[offset + 6]:
            yield Change(f"the tensor map {param.name} without its swizzle", params={offset + 6: 0})
        offset += size


@_kind("change-constant", _DATA | {r.MISSING_PROXY_FENCE, r.BUDGET, r.IN_FLIGHT}, order=False)
def _change_constant(launch: Recorded, entry: Entry, index: int) -> Iterator[Change]:
    instr = instr_at(entry, index)
    if orders(instr) or instr.opcode.startswith("setmaxnreg"):
        return
    for k, operand in enumerate(instr.operands):
        if not isinstance(operand, Imm):
            continue
        if operand.kind != "int":
            high = 1 << (23 if operand.kind == "f32" else 52)
            yield Change("a float twice or half as large", {index: (with_operand(instr, k, replace(operand, bits=operand.bits ^ high)),)})
        elif instr.opcode.startswith("mov.pred"):
            yield Change("the other truth value", {index: (with_operand(instr, k, Imm(1 - operand.bits)),)})
        else:
            every_lane = operand.bits == 0xFFFFFFFF
            value = operand.bits - 1 if every_lane else 2 * operand.bits or 1
            yield Change(f"{value}, not {operand.bits}", {index: (with_operand(instr, k, Imm(value)),)})


@_kind("rename-register", _DATA | {r.MISSING_PROXY_FENCE, r.IN_FLIGHT}, order=False)
def _rename_register(launch: Recorded, entry: Entry, index: int) -> Iterator[Change]:
    """A register that an instruction reads becomes the one of its class that was assigned last before it in the text, and otherwise than the
    first."""
    instr = instr_at(entry, index)
    dests = find_meaning(instr.opcode).dests
    for k, operand in enumerate(instr.operands):
        names = [] if k in dests else names_in(operand)
        for old in names[:1]:
            new = _assigned_before(entry, index, old, {*writes_of(instr), *reads_of(instr)})
            if new is not None:
                yield Change(f"{new} for {old}", {index: (with_operand(instr, k, renamed(operand, old, new)),)})


def _assigned_before(entry: Entry, index: int, old: str, besides: set[str]) -> str | None:
    cls = entry.registers[old]
    before = [item for item in reversed(entry.body[:index]) if isinstance(item, Instr)]
    how = next((item.opcode for item in before if old in writes_of(item)), None)
    for item in before:
        if item.opcode != how:
            for name in writes_of(item):
                if entry.registers[name] == cls and name != old and name not in besides:
                    return name
    return None


@_kind("change-guard", _DATA | {r.MISSING_PROXY_FENCE, r.EXIT, r.IN_FLIGHT, r.BUDGET}, order=False)
def _change_guard(launch: Recorded, entry: Entry, index: int) -> Iterator[Change]:
    instr = instr_at(entry, index)
    if instr.guard is not None:
        if not is_control(instr):
            yield Change("without its predicate", {index: (replace(instr, guard=None, negated=False),)})
        yield Change("with the opposite predicate", {index: (replace(instr, negated=not instr.negated),)})


_OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}


@_kind("change-comparison", _DATA | {r.MISSING_PROXY_FENCE, r.EXIT, r.IN_FLIGHT}, order=False)
def _change_comparison(launch: Recorded, entry: Entry, index: int) -> Iterator[Change]:
    instr = instr_at(entry, index)
    words = instr.opcode.split(".")
    if words[0] == "setp" and words[1] in _OPPOSITE:
        words[1] = _OPPOSITE[words[1]]
        yield Change(f"'{words[1]}' for '{instr.opcode.split('.')[1]}'", {index: (replace(instr, opcode=".".join(words)),)})
