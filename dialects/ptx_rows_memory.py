"""Rows of the instruction table that touch memory synchronously, exchange values within a warp, or steer control.

Sections of the PTX ISA 9.0: 9.7.9 data movement, 9.7.12 control flow, 9.7.13 atomics and warp votes, 9.7.15
warp-level matrices (ldmatrix and stmatrix). `FAMILIES` maps a family's name to the function that makes its rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any

from .ptx_isa import CLASS_OF_TYPE, Family, Row, make_row

_NONE: frozenset[str] = frozenset()
_CONVERGENT = frozenset({"convergent"})
_SM90: Mapping[str, Any] = {"since": "sm_90"}

# The space as it is written, and as an address operand and an effect name it.
_SPACE_WORD = {"global": "global", "shared": "shared", "cluster": "shared::cluster", "param": "param", "generic": ""}
_BITS = {"b8": 8, "s8": 8, "b16": 16, "s16": 16, "b32": 32, "b64": 64}


def _spell(*words: str) -> str:
    return ".".join(word for word in words if word)


def _effect(kind: str, space: str, *more: str) -> frozenset[str]:
    spaces = ("global", "shared") if space == "generic" else (space,)
    return frozenset((*(f"{kind}:{name}" for name in spaces), *more))


def _vectors(type_: str) -> tuple[int, ...]:
    """Vector lengths up to 128 bits; sign-extending loads stay scalar here."""
    return (1,) if type_[0] == "s" else tuple(n for n in (1, 2, 4) if n * _BITS[type_] <= 128)


def _value(role: str, type_: str, count: int) -> list[str]:
    """Operand forms of the value loaded or stored. Types of 8 and 16 bits may use a wider register (PTX ISA 9.0
    §9.7.9.8)."""
    classes = {"b8": ("b16", "b32"), "s8": ("b32", "b16"), "b16": ("b16", "b32"), "s16": ("b32",)}.get(type_)
    return [f"{role}{count if count > 1 else ''}:{cls}" for cls in classes or (CLASS_OF_TYPE[type_],)]


def _access_cost(space: str, bits: int) -> dict[str, Any]:
    """Shared memory moves 128 bytes a clock: a warp's access of `bits` a lane takes bits/32 clocks at least."""
    return {"unit": "shared" if space in ("shared", "cluster", "param") else "global", "issue": max(1, bits // 32)}


def _ordering(words: str) -> dict[str, Any]:
    """Arguments of `relaxed.gpu`, `acquire.sys`, `volatile` …"""
    semantics, _, scope = words.partition(".")
    return {"semantics": semantics, "scope": scope} if semantics else {}


_LOAD_HINTS = (
    "",
    "ca",
    "cg",
    "cs",
    "lu",
    "cv",
    "L1::evict_last",
    "L1::evict_first",
    "L1::no_allocate",
    "L2::128B",
    "L2::256B",
)
_NC_HINTS = (
    "",
    "L1::no_allocate",
    "L1::evict_last",
    "L1::no_allocate.L2::128B",
    "L1::no_allocate.L2::256B",
    "L2::256B",
)
_STORE_HINTS = ("", "wb", "cg", "cs", "wt", "L1::no_allocate", "L1::evict_last")
_ORDERED_LOADS = ("volatile", "relaxed.cta", "relaxed.gpu", "relaxed.sys", "acquire.cta", "acquire.gpu", "acquire.sys")
_ORDERED_STORES = ("volatile", "relaxed.cta", "relaxed.gpu", "relaxed.sys", "release.cta", "release.gpu", "release.sys")


def _load(opcode: str, space: str, type_: str, count: int, args: dict[str, Any], extra: str = "", **more: Any) -> Row:
    base = {"type": type_, "space": space, "vector": count} | args
    forms = "; ".join(f"{value} addr:{space}{extra}" for value in _value("d", type_, count))
    effects = _effect("read", space, *more.pop("effects", ()))
    return make_row(opcode, forms, "ld", base, effects=effects, **_access_cost(space, _BITS[type_] * count), **more)


def _ld() -> Iterator[Row]:
    for type_ in _BITS:
        for count in _vectors(type_):
            vector = f"v{count}" if count > 1 else ""
            for hint in _LOAD_HINTS:
                yield _load(_spell("ld.global", hint, vector, type_), "global", type_, count, {"hint": hint})
            for hint in _NC_HINTS:
                opcode = _spell("ld.global.nc", hint, vector, type_)
                yield _load(opcode, "global", type_, count, {"hint": hint, "nc": True})
            opcode = _spell("ld.global.L2::cache_hint", vector, type_)
            yield _load(opcode, "global", type_, count, {"hint": "L2::cache_hint"}, " r:b64")
            opcode = _spell("ld.global.nc.L1::no_allocate.L2::cache_hint", vector, type_)
            yield _load(opcode, "global", type_, count, {"hint": "L2::cache_hint", "nc": True}, " r:b64")
            for space in ("shared", "cluster", "param", "generic"):
                more = _SM90 if space == "cluster" else {}
                yield _load(_spell("ld", _SPACE_WORD[space], vector, type_), space, type_, count, {}, **more)
            yield _load(_spell("ld.volatile.shared", vector, type_), "shared", type_, count, _ordering("volatile"))
            for order in _ORDERED_LOADS:
                opcode = _spell("ld", order, "global", vector, type_)
                effects = ("sync",) if order.startswith("acquire") else ("volatile",)
                yield _load(opcode, "global", type_, count, _ordering(order), effects=effects)


def _store(opcode: str, space: str, type_: str, count: int, args: dict[str, Any], extra: str = "", **more: Any) -> Row:
    base = {"type": type_, "space": space, "vector": count} | args
    forms = "; ".join(f"addr:{space} {value}{extra}" for value in _value("s" if count == 1 else "r", type_, count))
    effects = _effect("write", space, *more.pop("effects", ()))
    return make_row(opcode, forms, "st", base, effects=effects, **_access_cost(space, _BITS[type_] * count), **more)


def _st() -> Iterator[Row]:
    for type_ in ("b8", "b16", "b32", "b64"):
        for count in _vectors(type_):
            vector = f"v{count}" if count > 1 else ""
            for hint in _STORE_HINTS:
                yield _store(_spell("st.global", hint, vector, type_), "global", type_, count, {"hint": hint})
            opcode = _spell("st.global.L2::cache_hint", vector, type_)
            yield _store(opcode, "global", type_, count, {"hint": "L2::cache_hint"}, " r:b64")
            for space in ("shared", "cluster", "generic"):
                more = _SM90 if space == "cluster" else {}
                yield _store(_spell("st", _SPACE_WORD[space], vector, type_), space, type_, count, {}, **more)
            yield _store(_spell("st.volatile.shared", vector, type_), "shared", type_, count, _ordering("volatile"))
            for order in _ORDERED_STORES:
                opcode = _spell("st", order, "global", vector, type_)
                effects = ("sync",) if order.startswith("release") else ("volatile",)
                yield _store(opcode, "global", type_, count, _ordering(order), effects=effects)
    for type_, count in product(("b32", "b64"), (1, 2, 4)):
        if _BITS[type_] * count > 128:
            continue
        opcode = _spell(
            "st.async.shared::cluster.mbarrier::complete_tx::bytes", f"v{count}" if count > 1 else "", type_
        )
        value = _value("r", type_, count)[0]
        args = {"type": type_, "space": "cluster", "vector": count}
        effects = frozenset({"write:cluster", "async"})
        yield make_row(
            opcode, f"addr:cluster {value} addr:cluster", "st_async", args, "shared", effects, "sm_90", (8, 1)
        )


def _cvta() -> Iterator[Row]:
    """Between generic addresses and those of a space."""
    for space in ("global", "shared", "param"):
        args = {"space": space, "to": False}
        forms = "d:b64 r:b64" if space == "global" else "d:b64 r:b64; d:b64 sym"
        yield make_row(f"cvta.{space}.u64", forms, "cvta", args)
        yield make_row(f"cvta.to.{space}.u64", "d:b64 r:b64", "cvta", args | {"to": True})


def _mapa() -> Iterator[Row]:
    """The address, in the cluster window, of the same place in another CTA's shared memory."""
    yield make_row("mapa.shared::cluster.u32", "d:b32 r:b32 s:b32", "mapa", {"type": "u32"}, **_SM90)


_ATOMIC_TYPES: Mapping[str, tuple[str, ...]] = {
    "add": ("s32", "u32", "u64", "f32", "f64", "noftz.f16", "noftz.bf16", "noftz.f16x2", "noftz.bf16x2"),
    "min": ("s32", "u32", "s64", "u64"),
    "max": ("s32", "u32", "s64", "u64"),
    "and": ("b32", "b64"),
    "or": ("b32", "b64"),
    "xor": ("b32", "b64"),
    "inc": ("u32",),
    "dec": ("u32",),
    "exch": ("b32", "b64"),
    "cas": ("b32", "b64"),
}
_ORDERS = ("", "relaxed.cta", "relaxed.gpu", "relaxed.sys", "acquire.gpu", "release.gpu", "acq_rel.gpu")


def _atomic(name: str) -> Iterator[Row]:
    """`atom` returns the old value, `red` nothing. Halves round to nearest even and keep subnormals (`noftz`)."""
    for space, order, operation in product(("global", "shared", "generic"), _ORDERS, _ATOMIC_TYPES):
        if name == "red" and operation in ("exch", "cas"):
            continue
        for spelled in _ATOMIC_TYPES[operation]:
            type_ = spelled.removeprefix("noftz.")
            if order.startswith("acquire") and name == "red" or order == "acq_rel.gpu" and name == "red":
                continue
            cls = CLASS_OF_TYPE[type_]
            source = "r" if "f16" in type_ else "s"
            form = f"addr:{space} {source}:{cls}" + (f" {source}:{cls}" if operation == "cas" else "")
            args = {"op": operation, "type": type_, "space": space} | _ordering(order)
            effects = _effect("read", space) | _effect("write", space, "sync" if order else "volatile")
            more = _SM90 if type_ in ("bf16", "bf16x2") else {}
            unit = "shared" if space == "shared" else "global"
            opcode = _spell(name, order, _SPACE_WORD[space], operation, spelled)
            yield make_row(opcode, form if name == "red" else f"d:{cls} {form}", name, args, unit, effects, **more)
    for type_, count in (("f32", 2), ("f32", 4), *product(("f16x2", "bf16x2"), (2, 4))):
        args = {"op": "add", "type": type_, "space": "global", "vector": count}
        opcode = _spell(f"{name}.global.add", "noftz" if type_ != "f32" else "", f"v{count}", type_)
        effects = _effect("read", "global") | _effect("write", "global", "volatile")
        form = f"addr:global r{count}:b32"
        yield make_row(opcode, form if name == "red" else f"d{count}:b32 {form}", name, args, "global", effects, "sm_90", (8, 1))


def _prefetch() -> Iterator[Row]:
    yield make_row("prefetch.global.L1", "addr:global", "prefetch", {"space": "global"}, "global")
    yield make_row("prefetch.global.L2", "addr:global", "prefetch", {"space": "global"}, "global")
    yield make_row("prefetch.tensormap", "addr:generic", "prefetch", {"space": "tensormap"}, "tma", **_SM90)
    yield make_row("prefetch.param.tensormap", "addr:param", "prefetch", {"space": "tensormap"}, "tma", **_SM90)


def _createpolicy() -> Iterator[Row]:
    """An L2 cache policy word; the fraction of the accesses it takes is an f32."""
    for primary in ("evict_first", "evict_last", "evict_normal", "evict_unchanged"):
        args = {"primary": primary}
        opcode = f"createpolicy.fractional.L2::{primary}.b64"
        yield make_row(opcode, "d:b64; d:b64 s:b32", "createpolicy", args)
        opcode = f"createpolicy.fractional.L2::{primary}.L2::evict_unchanged.b64"
        if primary in ("evict_first", "evict_last"):
            yield make_row(opcode, "d:b64; d:b64 s:b32", "createpolicy", args)


def _shfl() -> Iterator[Row]:
    """Operands: value, lane or mask, clamp and segment mask, member mask (PTX ISA 9.0 §9.7.9.6)."""
    for mode in ("bfly", "idx", "up", "down"):
        form = "d:b32 r:b32 s:b32 s:b32 s:b32"
        yield make_row(f"shfl.sync.{mode}.b32", form, "shfl", {"mode": mode}, "shuffle", _CONVERGENT)


def _vote() -> Iterator[Row]:
    for mode in ("any", "all", "uni"):
        yield make_row(f"vote.sync.{mode}.pred", "d:pred r:pred s:b32", "vote", {"mode": mode}, "alu", _CONVERGENT)
    yield make_row("vote.sync.ballot.b32", "d:b32 r:pred s:b32", "vote", {"mode": "ballot"}, "alu", _CONVERGENT)


def _redux() -> Iterator[Row]:
    for type_, operation in (*product(("s32", "u32"), ("add", "min", "max")), *product(("b32",), ("and", "or", "xor"))):
        args = {"op": operation, "type": type_}
        opcode = f"redux.sync.{operation}.{type_}"
        yield make_row(opcode, "d:b32 r:b32 s:b32", "redux", args, "shuffle", _CONVERGENT)


def _activemask() -> Iterator[Row]:
    yield make_row("activemask.b32", "d:b32", "activemask", effects=frozenset({"convergent", "volatile"}))


def _match() -> Iterator[Row]:
    for bits in (32, 64):
        form = f"d:b32 s:b{bits} s:b32"
        yield make_row(f"match.any.sync.b{bits}", form, "match", {"mode": "any"}, "shuffle", _CONVERGENT)


def _elect() -> Iterator[Row]:
    yield make_row("elect.sync", "_|d:pred s:b32", "elect", {}, "alu", _CONVERGENT, "sm_90", (8, 0))


def _matrix(name: str) -> Iterator[Row]:
    """`count` 8x8 matrices of 16-bit elements; lanes 8j…8j+7 give the row addresses of matrix j (PTX ISA 9.0
    §9.7.15.5.15)."""
    for count, transposed in product((1, 2, 4), (False, True)):
        opcode = _spell(f"{name}.sync.aligned.m8n8.x{count}", "trans" if transposed else "", "shared.b16")
        args = {"count": count, "trans": transposed, "space": "shared"}
        if name == "ldmatrix":
            form, effects, more = f"d{count}:b32 addr:shared", {"read:shared", "convergent"}, {}
        else:
            form, effects, more = f"addr:shared r{count}:b32", {"write:shared", "convergent"}, _SM90
        yield make_row(opcode, form, name, args, "shared", frozenset(effects), issue=count, **more)


def _movmatrix() -> Iterator[Row]:
    opcode = "movmatrix.sync.aligned.m8n8.trans.b16"
    yield make_row(opcode, "d:b32 r:b32", "movmatrix", {}, "shuffle", _CONVERGENT)


def _control(name: str) -> Iterator[Row]:
    form = "label" if name == "bra" else "s:b32" if name == "nanosleep" else ""
    opcode = "nanosleep.u32" if name == "nanosleep" else name
    effect = "volatile" if name == "nanosleep" else "branch"
    yield make_row(opcode, form, name, {}, "branch" if name == "bra" else "control", frozenset({effect}))


def _named(make: Any, *names: str) -> Iterable[tuple[str, Family]]:
    return ((name, lambda name=name: make(name)) for name in names)


FAMILIES: Mapping[str, Family] = dict(
    [
        *_named(_atomic, "atom", "red"),
        *_named(_matrix, "ldmatrix", "stmatrix"),
        *_named(_control, "bra", "ret", "exit", "trap", "nanosleep"),
        ("ld", _ld),
        ("st", _st),
        ("cvta", _cvta),
        ("mapa", _mapa),
        ("prefetch", _prefetch),
        ("createpolicy", _createpolicy),
        ("shfl", _shfl),
        ("vote", _vote),
        ("redux", _redux),
        ("activemask", _activemask),
        ("match", _match),
        ("elect", _elect),
        ("movmatrix", _movmatrix),
    ]
)
