"""Meanings of matrix instructions: mma.sync and wgmma (PTX ISA 9.0 §9.7.14, §9.7.15).

Products of operands are exact in f64, and their sum over one instruction's K is as good as exact there; it is added to the
accumulator and rounded once. The hardware sums with fewer bits (about 24 for 16-bit and tf32 operands, 13 below the largest
term for 8-bit floats), so results agree within a bound, not bit for bit. Integer results are exact. tf32 operands are truncated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..dialects.ptx_program import Imm, Vec
from .asynchrony import Operation
from .barrier_ops import per_thread
from .decode import Action, Form, meaning
from .faults import Divergent, OutOfBounds
from .fragments import Descriptor, descriptor_bytes, flat_maps
from .memory import RESERVED_SHARED
from .numbers import canonical_f32, decode, f32_to_f16
from .selection import WARP, Selection

if TYPE_CHECKING:
    from .machine import Machine

Array = NDArray[Any]

WARPGROUP = 128
_BITS = {"bf16": 16, "f16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8}
_FILES = {8: np.uint8, 16: np.uint16, 32: np.uint32}


def numbers(raw: Array, type: str) -> NDArray[np.float64]:
    """Operand bits as numbers."""
    if type == "s8":
        return raw.view(np.int8).astype(np.float64)
    if type == "u8":
        return raw.astype(np.float64)
    with np.errstate(invalid="ignore"):  # signalling NaN becomes a quiet one
        return decode(raw, type).astype(np.float64)


def accumulate(product: NDArray[np.float64], old: Array | None, type: str, saturate: bool) -> Array:
    """product + old, as bits (u32 for f32 and s32, u16 for f16)."""
    if type == "s32":
        total = product.astype(np.int64) + (0 if old is None else old.view(np.int32))
        if saturate:
            total = np.clip(total, -(1 << 31), (1 << 31) - 1)
        return total.astype(np.uint32)
    with np.errstate(all="ignore"):
        if type == "f32":
            total = product if old is None else product + np.ascontiguousarray(old).view(np.float32)
            return canonical_f32(total.astype(np.float32)).view(np.uint32)
        total = product if old is None else product + decode(old, "f16")
        return f32_to_f16(total)


def split(registers: Array, bits: int) -> Array:
    """[registers, ..., threads] of u32 -> [elements, ..., threads], lowest element of a register first."""
    if bits == 32:
        return registers
    per = 32 // bits
    parts = np.ascontiguousarray(registers)[..., None].view(_FILES[bits])
    return np.moveaxis(parts, -1, 1).reshape(registers.shape[0] * per, *registers.shape[1:])


def join(elements: Array) -> Array:
    """The inverse of `split` for u16 elements."""
    pairs = elements.reshape(elements.shape[0] // 2, 2, *elements.shape[1:])
    return pairs[:, 0].astype(np.uint32) | (pairs[:, 1].astype(np.uint32) << np.uint32(16))


def _extents(form: Form) -> tuple[int, int, int]:
    """(m, n, k) of the `.mMnNkK` modifier."""
    word = next(w for w in form.words if w[0] == "m" and w[1:2].isdigit())
    m, _, rest = word[1:].partition("n")
    n, _, k = rest.partition("k")
    return int(m), int(n), int(k)


# mma.sync


@meaning("mma.sync", unit=WARP)
def mma(form: Form) -> Action:
    """`mma.sync.aligned.mMnNkK.row.col.D.A.B.C d, a, b, c`"""
    m_extent, n, k = _extents(form)
    words = list(form.words)
    d_type, a_type, b_type = words[-4:-1]
    saturate = form.has("satfinite")
    if (
        m_extent != 16
        or n != 8
        or a_type not in _BITS
        or b_type not in _BITS
        or d_type not in ("f32", "f16", "s32")
        or form.has("sp")
    ):
        raise form.bad(f"the simulator has no meaning for '{form.opcode}'")
    if not (form.has("row") and form.has("col")):
        raise form.bad(f"'{form.opcode}': A is row-major and B column-major")
    bits = _BITS[a_type]
    gather_a = flat_maps(16, k, "mma a", bits)[1]
    gather_b = flat_maps(k, 8, "mma b", bits)[1]
    scatter, gather = flat_maps(16, 8, "mma d", 32)
    sources = [form.source(i, "b32") for i in (1, 2, 3)]
    put = form.target(0, "b32")
    count = form.count

    def matrix(raw: Array, bits: int, order: Array, sel: Selection) -> Array:
        """Registers [n * registers, threads] -> [n, warps, elements of the matrix]."""
        grid = sel.lanes.spread(np.broadcast_to(raw, (raw.shape[0], sel.count)))
        rows = count * order.size * bits // 1024
        if raw.shape[0] < rows:  # one operand for all n, or one value for all registers
            grid = np.concatenate([grid] * (rows // raw.shape[0]))
        grid = grid.reshape(count, -1, *grid.shape[1:])  # [n, registers, warps, 32]
        elements = split(np.moveaxis(grid, 1, 0), bits)  # [elements, n, warps, 32]
        flat = np.moveaxis(elements, 0, 2).reshape(count, elements.shape[2], -1)
        return flat[..., order]

    def run(m: Machine, sel: Selection) -> None:
        a, b, c = (get(m, sel) for get in sources)
        left = numbers(matrix(a, bits, gather_a, sel), a_type).reshape(count, -1, 16, k)
        right = numbers(matrix(b, bits, gather_b, sel), b_type).reshape(count, -1, k, 8)
        with np.errstate(all="ignore"):
            product = np.matmul(left, right)
        old = matrix(c, 16 if d_type == "f16" else 32, gather, sel).reshape(product.shape)
        new = accumulate(product, old, d_type, saturate).reshape(*product.shape[:2], -1)[..., scatter]
        elements = new.reshape(*new.shape[:2], -1, WARP)  # [n, warps, elements, 32]
        grid = np.moveaxis(elements, 2, 0)  # [elements, n, warps, 32]
        registers = join(grid) if d_type == "f16" else grid
        rows = np.moveaxis(registers, 1, 0).reshape(-1, *registers.shape[2:])
        put(m, sel, sel.lanes.gather(rows))

    return run


# wgmma


class _Operand:
    """A wgmma operand in shared memory, given by descriptors: reads it as numbers [warpgroups, extent, k]."""

    def __init__(self, type: str, extent: int, k: int, k_major: bool):
        self.type, self.extent, self.k, self.k_major = type, extent, k, k_major
        self.size = _BITS[type] // 8

    def read(self, m: Machine, words: NDArray[np.uint64], firsts: NDArray[np.intp]) -> NDArray[np.float64]:
        """`firsts`: the first thread of each warpgroup."""
        blocks = m.block_of[firsts]
        shared, size = m.shared, self.size
        view = shared.view(size)
        low = np.uint64((1 << 6) - 1)
        # Warpgroups whose descriptors differ only in whole kilobytes of the start address share one index array.
        alike = (words & ~np.uint64(0x3FFF)) | (words & low)
        result = np.empty((len(words), self.extent, self.k), view.dtype)
        for kind in np.unique(alike):
            mine = np.nonzero(alike == kind)[0]
            d = Descriptor.decode(int(words[mine[0]]))
            offsets = descriptor_bytes(
                d.start % 1024, d.leading, d.stride, d.span, self.extent, self.k, size, self.k_major
            )
            starts = ((words[mine] & np.uint64(0x3FFF)).astype(np.int64) << 4) & ~1023
            low_end, high_end = int(starts.min()) + int(offsets.min()), int(starts.max()) + int(offsets.max()) + size
            if low_end < RESERVED_SHARED or high_end > shared.limit:
                raise OutOfBounds(
                    f"the descriptor 0x{int(words[mine[0]]):016x} reaches shared addresses 0x{low_end:x} to 0x{high_end:x}; the "
                    f"kernel's shared memory is 0x{RESERVED_SHARED:x} to 0x{shared.limit:x}"
                )
            index = (starts + blocks[mine] * shared.stride)[:, None, None] // size + offsets // size
            m.observe("async load", "shared", np.moveaxis(index, 0, -1) * size, size, firsts[mine])
            result[mine] = view.take(index)
        return numbers(result, self.type)


class WarpgroupMma(Operation):
    """One execution of wgmma.mma_async by some warpgroups (the owners)."""

    TOGETHER = 4

    def __init__(self, m: Machine, form: _WgmmaForm, warpgroups: Array, a: Array | None, b: Array, keep: Array):
        super().__init__("wgmma", warpgroups)
        self.machine, self.form, self.a, self.b, self.keep = m, form, a, b, keep

    def execute(self, pieces: NDArray[np.intp]) -> None:
        """In runs of neighbouring warpgroups: their registers are views, and a few of them stay in the cache."""
        groups = self.owners[pieces]
        breaks = np.nonzero(np.diff(groups) != 1)[0] + 1
        for run in np.split(pieces, breaks):
            for at in range(0, len(run), self.TOGETHER):
                self._multiply(run[at : at + self.TOGETHER])

    def _multiply(self, pieces: NDArray[np.intp]) -> None:
        m, f = self.machine, self.form
        groups = self.owners[pieces]
        firsts = groups * WARPGROUP
        threads = m.select((groups[:, None] * WARPGROUP + np.arange(WARPGROUP)).reshape(-1))
        if self.a is None:
            registers = f.a_registers(m, threads).reshape(-1, len(groups), WARPGROUP)
            elements = np.moveaxis(split(registers, f.bits), 0, 1).reshape(len(groups), -1)
            left = numbers(elements.take(f.gather_a, axis=1), f.a_type).reshape(len(groups), 64, f.k)
        else:
            left = f.a_operand.read(m, self.a[pieces], firsts)
        right = f.b_operand.read(m, self.b[pieces], firsts)
        if f.negate:
            left = -left
        with np.errstate(all="ignore"):
            product = np.matmul(left, right.swapaxes(1, 2))
        old = None
        keep = self.keep[pieces]
        if keep.any():
            raw = f.d_registers(m, threads).reshape(-1, len(groups), WARPGROUP)
            raw = split(raw, 16) if f.d_type == "f16" else raw
            old = np.moveaxis(raw, 0, 1).reshape(len(groups), -1).take(f.gather, axis=1).reshape(product.shape)
            if not keep.all():
                old = np.where(keep[:, None, None], old, old.dtype.type(0))
        new = accumulate(product, old, f.d_type, f.saturate).reshape(len(groups), -1)
        new = new.take(f.scatter, axis=1)
        registers = np.moveaxis(new.reshape(len(groups), -1, WARPGROUP), 0, 1)
        if f.d_type == "f16":
            registers = join(registers)
        f.put(m, threads, registers.reshape(registers.shape[0], -1))


class _WgmmaForm:
    """The decoded modifiers and operands of a wgmma."""

    def __init__(self, form: Form):
        _, self.n, self.k = _extents(form)
        self.d_type, self.a_type, self.b_type = [w for w in form.words[5:] if w != "satfinite"][:3]
        self.saturate = form.has("satfinite")
        if (
            form.has("sp")
            or self.a_type not in _BITS
            or self.b_type not in _BITS
            or self.d_type not in ("f32", "f16", "s32")
        ):
            raise form.bad(f"the simulator has no meaning for '{form.opcode}'")
        self.bits = _BITS[self.a_type]
        if self.k * self.bits != 256:
            raise form.bad(f"'{form.opcode}' must have k = {256 // self.bits}")
        in_registers = isinstance(form.operands[1], Vec)
        extra = [op.bits for op in form.operands[4:] if isinstance(op, Imm)]
        if len(extra) != form.arity - 4:
            raise form.bad(f"the operands of '{form.opcode}' after scale-d must be immediates")
        scales, transposes = extra[:2], extra[2:]
        self.negate = (scales.count(-1) + scales.count(0xFFFFFFFF)) % 2 == 1
        if any(s not in (1, -1, 0xFFFFFFFF) for s in scales):
            raise form.bad(f"the scales of '{form.opcode}' must be 1 or -1")
        transpose_a = not in_registers and bool(transposes[:1] and transposes[0])
        transpose_b = bool(transposes and transposes[-1])
        if (transpose_a or transpose_b) and self.bits != 16:
            raise form.bad(f"'{form.opcode}': only operands of 16 bits may be MN-major")
        self.a_operand = _Operand(self.a_type, 64, self.k, not transpose_a)
        self.b_operand = _Operand(self.b_type, self.n, self.k, not transpose_b)
        self.gather_a = flat_maps(64, self.k, "wgmma a", self.bits)[1]
        self.scatter, self.gather = flat_maps(64, self.n, "wgmma d", 32)
        self.put, self.d_registers = form.target(0, "b32"), form.source(0, "b32")
        self.a_registers = form.source(1, "b32") if in_registers else form.source(2, "b64")
        self.a_descriptor = None if in_registers else form.source([form.operands[1]], "b64")
        self.b_descriptor = form.source([form.operands[2]], "b64")
        self.keep = form.source([form.operands[3]], "pred")
        want = self.n // 4 if self.d_type == "f16" else self.n // 2
        if form.parts(0) != want:
            raise form.bad(f"'{form.opcode}' has {want} accumulator registers, not {form.parts(0)}")


@meaning("wgmma.mma_async", unit=WARPGROUP, fuse=False)
def wgmma(form: Form) -> Action:
    """Descriptors and scale-d are read when it is issued; shared memory and registers when the machine executes it."""
    decoded = _WgmmaForm(form)

    def run(m: Machine, sel: Selection) -> None:
        firsts = sel.threads[::WARPGROUP]
        groups = firsts // WARPGROUP

        def uniform(value: Array, what: str) -> Array:
            values = per_thread(value, sel).reshape(len(groups), WARPGROUP)
            if (values != values[:, :1]).any():
                raise Divergent(f"the threads of a warpgroup give different {what}", 0, int(firsts[0]))
            return values[:, 0].copy()  # the registers may change before the operation is executed

        a = decoded.a_descriptor
        m.pending.issue(
            WarpgroupMma(
                m,
                decoded,
                groups,
                None if a is None else uniform(a(m, sel), "A descriptors"),
                uniform(decoded.b_descriptor(m, sel), "B descriptors"),
                uniform(decoded.keep(m, sel), "scale-d predicates"),
            )
        )

    return run


@meaning("wgmma.fence", dests=(), unit=WARP, fuse=False)
def wgmma_fence(form: Form) -> Action:
    """Orders register accesses before the asynchronous ones; here they are in order anyway."""
    instr = form.instrs[0]

    def run(m: Machine, sel: Selection) -> None:
        if m.observer is not None:
            m.observer.sync(m, instr, sel.threads)

    return run


@meaning("wgmma.commit_group", dests=(), unit=WARPGROUP, fuse=False)
def commit_wgmma(form: Form) -> Action:
    return lambda m, sel: m.pending.commit("wgmma", sel.threads[::WARPGROUP] // WARPGROUP)


@meaning("wgmma.wait_group", dests=(), unit=WARPGROUP, fuse=False)
def wait_wgmma(form: Form) -> Action:
    newest = form.immediate(0)
    return lambda m, sel: m.pending.wait("wgmma", sel.threads[::WARPGROUP] // WARPGROUP, newest)
