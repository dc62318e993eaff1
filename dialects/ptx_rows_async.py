"""Rows of the instruction table that are asynchronous, synchronise, or multiply matrices.

Sections of the PTX ISA 9.0: 9.7.9.25 asynchronous copies and tensor maps, 9.7.13 barriers, mbarriers and fences,
9.7.15 warp-level `mma`, 9.7.16 asynchronous warpgroup-level `wgmma`. `FAMILIES` maps a family's name to the function
that makes its rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from .ptx_isa import OLDEST_VERSION, Family, Row, make_row

_SYNC = frozenset({"sync"})
_CONVERGENT_SYNC = frozenset({"sync", "convergent"})
_SM90: Mapping[str, Any] = {"since": "sm_90", "version": (8, 0)}
_SM90A: Mapping[str, Any] = {"since": "sm_90a", "version": (8, 0)}
_COMPLETE_TX = "mbarrier::complete_tx::bytes"


def _spell(*words: str) -> str:
    return ".".join(word for word in words if word)


def _copies() -> Iterator[Row]:
    """The `cp` family: cp.async, and the bulk copies of sm_90."""
    yield from _cp_async()
    yield from _bulk()
    yield from _bulk_tensor()


def _cp_async() -> Iterator[Row]:
    """16-byte (`cg`) and 4, 8 or 16-byte (`ca`) copies; a source size below the size fills the rest with zeros, a true
    ignore-source predicate fills all of it (PTX ISA 9.0 §9.7.9.25.3)."""
    effects = frozenset({"read:global", "write:shared", "async"})
    for level, prefetch in product(("ca", "cg"), ("", "L2::64B", "L2::128B", "L2::256B")):
        opcode = _spell(f"cp.async.{level}.shared.global", prefetch)
        forms = "addr:shared addr:global imm; addr:shared addr:global imm s:b32; addr:shared addr:global imm r:pred"
        args = {"level": level, "hint": prefetch}
        yield make_row(opcode, forms, "cp_async", args, "cp_async", effects)
    for level in ("ca", "cg"):
        opcode = f"cp.async.{level}.shared.global.L2::cache_hint"
        forms = "addr:shared addr:global imm r:b64; addr:shared addr:global imm s:b32 r:b64"
        args = {"level": level, "hint": "L2::cache_hint"}
        yield make_row(opcode, forms, "cp_async", args, "cp_async", effects)
    yield make_row("cp.async.commit_group", "", "cp_async_commit", {}, "control", frozenset({"sync", "async"}))
    yield make_row("cp.async.wait_group", "imm", "cp_async_wait", {}, "control", _SYNC)
    yield make_row("cp.async.wait_all", "", "cp_async_wait_all", {}, "control", _SYNC)
    for noinc, where in product(("", "noinc"), ("", "shared::cta")):
        opcode = _spell("cp.async.mbarrier.arrive", noinc, where, "b64")
        args = {"noinc": bool(noinc)}
        effects = frozenset({"sync", "async", "write:shared"})
        yield make_row(opcode, "addr:shared", "cp_async_mbarrier_arrive", args, "mbarrier", effects)


def _bulk() -> Iterator[Row]:
    """Untyped bulk copies: addresses and sizes are multiples of 16 bytes (PTX ISA 9.0 §9.7.9.25.4)."""
    load = frozenset({"read:global", "write:shared", "async"})
    for where, multicast, hint in product(("cta", "cluster"), (False, True), (False, True)):
        if where == "cta" and multicast:
            continue
        words = ("multicast::cluster" if multicast else "", "L2::cache_hint" if hint else "")
        opcode = _spell(f"cp.async.bulk.shared::{where}.global", _COMPLETE_TX, *words)
        dst = "addr:shared" if where == "cta" else "addr:cluster"
        form = f"{dst} addr:global s:b32 {dst}" + (" s:b16" if multicast else "") + (" s:b64" if hint else "")
        args = {"to": where, "from": "global", "multicast": multicast, "cache_hint": hint}
        since = dict(_SM90, version=(8, 6)) if where == "cta" else _SM90
        since = dict(since, since="sm_90a") if multicast else since  # sm_90 takes it with a warning
        yield make_row(opcode, form, "cp_bulk", args, "tma", load, **since)
    opcode = f"cp.async.bulk.shared::cluster.shared::cta.{_COMPLETE_TX}"
    args = {"to": "cluster", "from": "shared"}
    effects = frozenset({"read:shared", "write:cluster", "async"})
    yield make_row(opcode, "addr:cluster addr:shared s:b32 addr:cluster", "cp_bulk", args, "tma", effects, **_SM90)
    store = frozenset({"read:shared", "write:global", "async"})
    for hint in (False, True):
        opcode = _spell("cp.async.bulk.global.shared::cta.bulk_group", "L2::cache_hint" if hint else "")
        form = "addr:global addr:shared s:b32" + (" s:b64" if hint else "")
        args = {"to": "global", "from": "shared", "cache_hint": hint}
        yield make_row(opcode, form, "cp_bulk", args, "tma", store, **_SM90)
    for spelled in ("f32", "f64", "noftz.f16", "noftz.bf16", "s32", "u32", "u64"):
        operations = ("add",) if "f" in spelled else ("add", "min", "max")
        for operation in operations:
            opcode = f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{operation}.{spelled}"
            args = {"to": "global", "from": "shared", "op": operation, "type": spelled.removeprefix("noftz.")}
            yield make_row(
                opcode, "addr:global addr:shared s:b32", "cp_reduce_bulk", args, "tma", store | {"read:global"}, **_SM90
            )
    yield make_row("cp.async.bulk.prefetch.L2.global", "addr:global s:b32", "cp_bulk_prefetch", {}, "tma", **_SM90)
    yield make_row(
        "cp.async.bulk.commit_group", "", "cp_bulk_commit", {}, "control", frozenset({"sync", "async"}), **_SM90
    )
    for read in (False, True):
        opcode = _spell("cp.async.bulk.wait_group", "read" if read else "")
        yield make_row(opcode, "imm", "cp_bulk_wait", {"read": read}, "control", _SYNC, **_SM90)


def _bulk_tensor() -> Iterator[Row]:
    """Tensor copies of 1 to 5 dimensions through a tensor map (PTX ISA 9.0 §9.7.9.25.5). `.shared::cta` destinations
    need PTX 8.6; `.multicast::cluster` takes a 16-bit mask of CTAs."""
    load = frozenset({"read:global", "write:shared", "async"})
    store = frozenset({"read:shared", "write:global", "async"})
    for rank, where, multicast, hint in product(range(1, 6), ("cta", "cluster"), (False, True), (False, True)):
        if where == "cta" and multicast:
            continue
        words = ("multicast::cluster" if multicast else "", "L2::cache_hint" if hint else "")
        dst = "addr:shared" if where == "cta" else "addr:cluster"
        tail = (" s:b16" if multicast else "") + (" s:b64" if hint else "")
        args = {"rank": rank, "to": where, "multicast": multicast, "cache_hint": hint, "mode": "tile"}
        since = dict(_SM90, version=(8, 6)) if where == "cta" else _SM90
        since = dict(since, since="sm_90a") if multicast else since
        opcode = _spell(f"cp.async.bulk.tensor.{rank}d.shared::{where}.global.tile", _COMPLETE_TX, *words)
        yield make_row(opcode, f"{dst} tma:{rank} {dst}{tail}", "tma_load", args, "tma", load, **since)
        if rank >= 3 and not multicast:
            opcode = _spell(f"cp.async.bulk.tensor.{rank}d.shared::{where}.global.im2col", _COMPLETE_TX, *words)
            form = f"{dst} tma:{rank} {dst} r{rank - 2}:b16{tail}"
            yield make_row(opcode, form, "tma_load", args | {"mode": "im2col"}, "tma", load, **since)
    for rank, hint in product(range(1, 6), (False, True)):
        word, tail = ("L2::cache_hint", " s:b64") if hint else ("", "")
        args = {"rank": rank, "cache_hint": hint}
        opcode = _spell(f"cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group", word)
        yield make_row(opcode, f"tma:{rank} addr:shared{tail}", "tma_store", args, "tma", store, **_SM90)
        for operation in ("add", "min", "max", "and", "or", "xor"):
            opcode = f"cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{operation}.tile.bulk_group"
            args = {"rank": rank, "op": operation, "cache_hint": hint}
            effects = store | {"read:global"}
            yield make_row(
                _spell(opcode, word), f"tma:{rank} addr:shared{tail}", "tma_reduce", args, "tma", effects, **_SM90
            )
        if not hint:
            opcode = f"cp.async.bulk.prefetch.tensor.{rank}d.L2.global.tile"
            yield make_row(opcode, f"tma:{rank}", "tma_prefetch", {"rank": rank}, "tma", **_SM90)


def _tensormap() -> Iterator[Row]:
    """Editing a tensor map in shared memory and publishing it (PTX ISA 9.0 §9.7.9.27)."""
    write = frozenset({"write:shared", "read:shared"})
    prefix = "tensormap.replace.tile"
    fields = {"global_address": ("b64", ""), "rank": ("b32", "")}
    fields |= dict.fromkeys(("box_dim", "global_dim", "element_stride"), ("b32", "imm "))
    fields |= {"global_stride": ("b64", "imm ")}
    for name, (cls, index) in fields.items():
        opcode = f"{prefix}.{name}.shared::cta.b1024.{cls}"
        form = f"addr:shared {index}s:{cls}"
        args = {"field": name}
        yield make_row(opcode, form, "tensormap_replace", args, "shared", write, "sm_90a", (8, 3))
    opcode = "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned"
    effects = frozenset({"read:shared", "write:global", "sync", "convergent"})
    form = "addr:global addr:shared imm"
    yield make_row(opcode, form, "tensormap_cp_fenceproxy", {}, "fence", effects, "sm_90", (8, 3))


def _mbarrier() -> Iterator[Row]:
    """8-byte barrier objects in shared memory (PTX ISA 9.0 §9.7.13.15). The default semantics are `.release.cta` of an
    arrive and `.acquire.cta` of a wait; `.cluster` scope publishes to the whole cluster."""
    own = {"space": "shared"}
    yield make_row(
        "mbarrier.init.shared::cta.b64", "addr:shared s:b32", "mbarrier_init", own, "mbarrier", _write("shared")
    )
    yield make_row("mbarrier.inval.shared::cta.b64", "addr:shared", "mbarrier_inval", own, "mbarrier", _write("shared"))
    arrive_orders = ("", "release.cta", "release.cluster", "relaxed.cta", "relaxed.cluster")
    for order, space, expect in product(arrive_orders, ("shared", "cluster"), (False, True)):
        where = "shared::cta" if space == "shared" else "shared::cluster"
        opcode = _spell("mbarrier.arrive", "expect_tx" if expect else "", order, where, "b64")
        address = f"addr:{space}"
        if expect:
            forms = [f"_ {address} s:b32", f"d:b64 {address} s:b32"]
        else:
            forms = [f"_ {address}", f"_ {address} s:b32", f"d:b64 {address}", f"d:b64 {address} s:b32"]
        if space == "cluster":
            forms = [form for form in forms if form[0] == "_"]
        args = {"space": space, "expect_tx": expect} | _order(order or "release.cta")
        effects, version = _write(space) | _SYNC, max((8, 0), _order_version(order))
        yield make_row(opcode, "; ".join(forms), "mbarrier_arrive", args, "mbarrier", effects, "sm_90", version)
    # sm_80 has neither the sink nor a count.
    args = own | {"expect_tx": False, "semantics": "release", "scope": "cta"}
    effects = _write("shared") | _SYNC
    yield make_row("mbarrier.arrive.shared.b64", "d:b64 addr:shared", "mbarrier_arrive", args, "mbarrier", effects)
    for space in ("shared", "cluster"):
        where = "shared::cta" if space == "shared" else "shared::cluster"
        for kind in ("expect_tx", "complete_tx"):
            opcode = f"mbarrier.{kind}.relaxed.{'cta' if space == 'shared' else 'cluster'}.{where}.b64"
            args = {"space": space, "kind": kind}
            yield make_row(opcode, f"addr:{space} s:b32", "mbarrier_tx", args, "mbarrier", _write(space), **_SM90)
    wait_orders = ("", "acquire.cta", "acquire.cluster", "relaxed.cta", "relaxed.cluster")
    for kind, parity, order in product(("try_wait", "test_wait"), (True, False), wait_orders):
        opcode = _spell("mbarrier", kind, "parity" if parity else "", order, "shared::cta.b64")
        form = f"d:pred addr:shared s:{'b32' if parity else 'b64'}"
        forms = f"{form}; {form} s:b32" if kind == "try_wait" else form
        args = {"kind": kind, "parity": parity, "space": "shared"} | _order(order or "acquire.cta")
        version = _order_version(order)
        since = "sm_90" if kind == "try_wait" or order else "sm_80"
        version = max(version, (8, 0)) if since == "sm_90" else version
        effects = frozenset({"read:shared", "sync", "volatile"})
        yield make_row(opcode, forms, "mbarrier_wait", args, "mbarrier", effects, since, version)


def _order(words: str) -> dict[str, str]:
    semantics, _, scope = words.partition(".")
    return {"semantics": semantics, "scope": scope}


def _order_version(words: str) -> tuple[int, int]:
    """Relaxed barrier operations came with PTX 8.6."""
    return (8, 6) if words.startswith("relaxed") else OLDEST_VERSION


def _write(space: str) -> frozenset[str]:
    return frozenset({f"write:{space}", f"read:{space}"})


def _fence() -> Iterator[Row]:
    """Fences of memory order and between proxies (PTX ISA 9.0 §9.7.13.4)."""
    for semantics, scope in product(("acq_rel", "sc"), ("cta", "cluster", "gpu", "sys")):
        since = _SM90 if scope == "cluster" else {}
        args = {"semantics": semantics, "scope": scope}
        yield make_row(f"fence.{semantics}.{scope}", "", "fence", args, "fence", _SYNC, **since)
    for space in ("", "shared::cta", "shared::cluster", "global"):
        opcode = _spell("fence.proxy.async", space)
        yield make_row(opcode, "", "fence_proxy_async", {"space": space}, "fence", _SYNC, **_SM90)
    yield make_row("fence.mbarrier_init.release.cluster", "", "fence_mbarrier_init", {}, "fence", _SYNC, **_SM90)
    for semantics, scope in product(("acquire", "release"), ("cta", "cluster", "gpu", "sys")):
        form = "addr:generic imm" if semantics == "acquire" else ""
        args = {"semantics": semantics, "scope": scope}
        opcode = f"fence.proxy.tensormap::generic.{semantics}.{scope}"
        yield make_row(opcode, form, "fence_proxy_tensormap", args, "fence", _SYNC, "sm_90", (8, 3))


def _membar() -> Iterator[Row]:
    for scope, word in (("cta", "cta"), ("gpu", "gl"), ("sys", "sys")):
        yield make_row(f"membar.{word}", "", "fence", {"semantics": "sc", "scope": scope}, "fence", _SYNC)


def _bar() -> Iterator[Row]:
    """Named barriers 0 to 15 with a thread count, and the warp's barrier (PTX ISA 9.0 §9.7.13.1 and .2)."""
    yield make_row("bar.sync", "s:b32; s:b32 s:b32", "bar_sync", {}, "barrier", _CONVERGENT_SYNC)
    yield make_row("bar.arrive", "s:b32 s:b32", "bar_arrive", {}, "barrier", _CONVERGENT_SYNC)
    yield make_row("bar.warp.sync", "s:b32", "bar_warp_sync", {}, "barrier", _CONVERGENT_SYNC, latency=15)
    for operation in ("and", "or"):
        form = "d:pred s:b32 r:pred; d:pred s:b32 s:b32 r:pred"
        yield make_row(f"bar.red.{operation}.pred", form, "bar_red", {"op": operation}, "barrier", _CONVERGENT_SYNC)
    form = "d:b32 s:b32 r:pred; d:b32 s:b32 s:b32 r:pred"
    yield make_row("bar.red.popc.u32", form, "bar_red", {"op": "popc"}, "barrier", _CONVERGENT_SYNC)


def _barrier() -> Iterator[Row]:
    """Unaligned named barriers and cluster barriers (PTX ISA 9.0 §9.7.13.3)."""
    yield make_row("barrier.sync", "s:b32; s:b32 s:b32", "bar_sync", {}, "barrier", _SYNC)
    yield make_row("barrier.arrive", "s:b32 s:b32", "bar_arrive", {}, "barrier", _SYNC)
    for kind, aligned in product(("arrive", "wait"), (False, True)):
        orders = ("", "relaxed") if kind == "arrive" else ("",)
        for order in orders:
            opcode = _spell("barrier.cluster", kind, order, "aligned" if aligned else "")
            args = {"semantics": order or ("release" if kind == "arrive" else "acquire")}
            effects = _CONVERGENT_SYNC if aligned else _SYNC
            yield make_row(opcode, "", f"cluster_{kind}", args, "barrier", effects, **_SM90)


def _mma() -> Iterator[Row]:
    """Warp-level m16n8k multiplications; fragments as in PTX ISA 9.0 §9.7.15.5. Clocks of a quarter SM: m·n·k over
    512 f16 (256 tf32, 1024 8-bit) multiply-adds."""
    rate = {"f16": 512, "bf16": 512, "tf32": 256, "s8": 1024, "u8": 1024, "e4m3": 512, "e5m2": 512}
    element_bits = {"f16": 16, "bf16": 16, "tf32": 32, "s8": 8, "u8": 8, "e4m3": 8, "e5m2": 8}
    shapes: list[tuple[int, str, str, str, str]] = []
    for k in (8, 16):
        shapes += [(k, "f32", t, t, "f32") for t in ("f16", "bf16")]
        shapes += [(k, "f16", "f16", "f16", "f16")]
    shapes += [(k, "f32", "tf32", "tf32", "f32") for k in (4, 8)]
    shapes += [(k, "s32", a, b, "s32") for k, a, b in product((16, 32), ("s8", "u8"), ("s8", "u8"))]
    shapes += [(32, "f32", a, b, "f32") for a, b in product(("e4m3", "e5m2"), repeat=2)]
    for k, d, a, b, c in shapes:
        bits = element_bits[a]
        registers_a, registers_b = 16 * k * bits // 1024, 8 * k * bits // 1024
        registers_d = 2 if d == "f16" else 4
        vector_b = f"r{registers_b}:b32"
        form = f"d{registers_d}:b32 r{registers_a}:b32 {vector_b} r{registers_d}:b32"
        args = {"shape": (16, 8, k), "d": d, "a": a, "b": b, "c": c}
        since = {"since": "sm_90", "version": (8, 4)} if a[0] == "e" else {}
        issue = 16 * 8 * k // rate[a] // 2
        for sat in ("", "satfinite") if d == "s32" else ("",):
            opcode = _spell(f"mma.sync.aligned.m16n8k{k}.row.col", sat, d, a, b, c)
            effects = frozenset({"convergent"})
            sat_args = args | ({"satfinite": True} if sat else {})
            yield make_row(opcode, form, "mma", sat_args, "mma", effects, issue=max(1, issue), **since)


_WGMMA_N = tuple(range(8, 257, 8))
_WGMMA_N_INT = (8, 16, 24, 32, *range(48, 257, 16))


def _wgmma() -> Iterator[Row]:
    """Warpgroup multiplications m64nNkK. First form: A and B in shared memory by descriptor; second: A in 4
    registers. Immediates: scale of A and B (floats), transpose of A (descriptor only) and B (16-bit only) (PTX ISA
    9.0 §9.7.16.5)."""
    kinds: list[tuple[int, str, str, str]] = [(16, "f32", t, t) for t in ("f16", "bf16")] + [(16, "f16", "f16", "f16")]
    kinds += [(8, "f32", "tf32", "tf32")]
    kinds += [(32, d, a, b) for d, a, b in product(("f32", "f16"), ("e4m3", "e5m2"), ("e4m3", "e5m2"))]
    effects = frozenset({"read:shared", "async", "convergent"})
    for k, d, a, b in kinds:
        immediates = {16: (" imm imm imm imm", " imm imm imm"), 8: (" imm imm",) * 2, 32: (" imm imm",) * 2}[k]
        for n in _WGMMA_N:
            args = {"shape": (64, n, k), "d": d, "a": a, "b": b}
            forms = _wgmma_forms(n // (4 if d == "f16" else 2), immediates)
            opcode = f"wgmma.mma_async.sync.aligned.m64n{n}k{k}.{d}.{a}.{b}"
            yield make_row(opcode, forms, "wgmma", args, "wgmma", effects, **_wgmma_cost(n), **_SM90A)
    for a, b, n, sat in product(("s8", "u8"), ("s8", "u8"), _WGMMA_N_INT, ("", "satfinite")):
        args = {"shape": (64, n, 32), "d": "s32", "a": a, "b": b} | ({"satfinite": True} if sat else {})
        opcode = _spell(f"wgmma.mma_async.sync.aligned.m64n{n}k32.s32.{a}.{b}", sat)
        forms = _wgmma_forms(n // 2, ("", ""))
        since = dict(_SM90A, version=(8, 4)) if a != b else _SM90A
        yield make_row(opcode, forms, "wgmma", args, "wgmma", effects, **_wgmma_cost(n), **since)
    control = frozenset({"sync", "convergent"})
    yield make_row("wgmma.fence.sync.aligned", "", "wgmma_fence", {}, "control", control, **_SM90A)
    yield make_row("wgmma.commit_group.sync.aligned", "", "wgmma_commit", {}, "control", control | {"async"}, **_SM90A)
    yield make_row("wgmma.wait_group.sync.aligned", "imm", "wgmma_wait", {}, "control", control, **_SM90A)


def _wgmma_forms(registers: int, immediates: tuple[str, str]) -> str:
    accumulator = f"io{registers}:b32"
    descriptor = f"{accumulator} r:b64 r:b64 s:pred{immediates[0]}"
    return f"{descriptor}; {accumulator} r4:b32 r:b64 s:pred{immediates[1]}"


def _wgmma_cost(n: int) -> dict[str, Any]:
    """Measured on an H200: n/2 clocks each at a steady rate, and 55 more until the last of a batch completes."""
    return {"issue": n // 2, "latency": n // 2 + 55}


def _setmaxnreg() -> Iterator[Row]:
    effects = frozenset({"convergent", "volatile"})
    for direction in ("inc", "dec"):
        opcode = f"setmaxnreg.{direction}.sync.aligned.u32"
        yield make_row(opcode, "imm", "setmaxnreg", {"direction": direction}, "control", effects, **_SM90A)


def _griddepcontrol() -> Iterator[Row]:
    for kind in ("wait", "launch_dependents"):
        opcode = f"griddepcontrol.{kind}"
        yield make_row(opcode, "", "griddepcontrol", {"kind": kind}, "control", _SYNC, "sm_90")


FAMILIES: Mapping[str, Family] = {
    "cp": _copies,
    "tensormap": _tensormap,
    "mbarrier": _mbarrier,
    "fence": _fence,
    "membar": _membar,
    "bar": _bar,
    "barrier": _barrier,
    "mma": _mma,
    "wgmma": _wgmma,
    "setmaxnreg": _setmaxnreg,
    "griddepcontrol": _griddepcontrol,
}
