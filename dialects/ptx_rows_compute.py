"""Rows of the instruction table that compute: arithmetic, comparison, logic, conversion and moves between registers.

One function per family yields its rows; `FAMILIES` maps the family's name (the opcode up to its first dot) to it.
Sections of the PTX ISA 9.0: 9.7.1 integer, 9.7.3 floating point, 9.7.4 half precision, 9.7.6 comparison, 9.7.8 logic
and shift, 9.7.9 data movement and conversion.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any

from .ptx_isa import CLASS_OF_TYPE, Family, Row, make_row

_INTS = ("s16", "u16", "s32", "u32", "s64", "u64")
_HALVES = ("f16", "bf16", "f16x2", "bf16x2")
_ROUNDINGS = ("", "rn", "rz", "rm", "rp")

# bf16 arithmetic other than fma, min, max, abs and neg came with sm_90 (PTX 7.8).
_SM90: Mapping[str, Any] = {"since": "sm_90"}
_ANY: Mapping[str, Any] = {}


def _spell(*words: str) -> str:
    return ".".join(word for word in words if word)


def _same(type_: str, sources: int) -> str:
    """The form `d, s, s …` in which all operands have one type. Packed and half types take no immediates."""
    cls = CLASS_OF_TYPE[type_]
    return f"d:{cls}" + (f" r:{cls}" if type_ in _HALVES else f" s:{cls}") * sources


def _unit(type_: str) -> str:
    return "fp64" if type_ == "f64" else "fma" if "f" in type_ else "alu"


def _float(name: str, type_: str, sources: int, rounding: str = "", ftz: bool = False, **more: Any) -> Row:
    """A float instruction `name[.rnd][.ftz][.word].type`; `more` may hold a `word` (sat, relu) and where it came."""
    word = more.pop("word", "")
    opcode = _spell(name, rounding, "ftz" if ftz else "", word, type_)
    args = {"type": type_, "round": rounding or "rn", "ftz": ftz} | ({word: True} if word else {})
    unit = more.pop("unit", _unit(type_))
    return make_row(opcode, _same(type_, sources), name, args, unit, **more)


def _add_sub_mul(name: str) -> Iterator[Row]:
    """f32 with every rounding (without one, ptxas may contract it to fma), halves to nearest even, integers modulo
    2^n."""
    for rounding, ftz, word in product(_ROUNDINGS, (False, True), ("", "sat")):
        yield _float(name, "f32", 2, rounding, ftz, word=word)
    for rounding in _ROUNDINGS:
        yield _float(name, "f64", 2, rounding)
    for type_, rounding in product(("f16", "f16x2"), ("", "rn")):
        yield from (_float(name, type_, 2, rounding, ftz, word=w) for ftz in (False, True) for w in ("", "sat"))
    for type_, rounding in product(("bf16", "bf16x2"), ("", "rn")):
        yield _float(name, type_, 2, rounding, **_SM90)
    if name == "mul":
        yield from _products()
        return
    for type_ in _INTS:
        yield make_row(f"{name}.{type_}", _same(type_, 2), name, {"type": type_})
    yield make_row(f"{name}.sat.s32", _same("s32", 2), name, {"type": "s32", "sat": True})


def _products() -> Iterator[Row]:
    for type_ in _INTS:
        args = {"type": type_}
        unit, issue = ("fma", 2) if not type_.endswith("64") else ("fma", 8)
        yield make_row(f"mul.lo.{type_}", _same(type_, 2), "mul_lo", args, unit, issue=issue)
        yield make_row(f"mul.hi.{type_}", _same(type_, 2), "mul_hi", args, unit, issue=issue)
    for type_ in ("s16", "u16", "s32", "u32"):
        cls = CLASS_OF_TYPE[type_]
        wide = "b32" if cls == "b16" else "b64"
        yield make_row(f"mul.wide.{type_}", f"d:{wide} s:{cls} s:{cls}", "mul_wide", {"type": type_}, "fma", issue=2)


def _mad() -> Iterator[Row]:
    for half, type_ in product(("lo", "hi"), _INTS):
        issue = 8 if type_.endswith("64") else 2
        yield make_row(f"mad.{half}.{type_}", _same(type_, 3), f"mad_{half}", {"type": type_}, "fma", issue=issue)
    for type_ in ("s16", "u16", "s32", "u32"):
        cls = CLASS_OF_TYPE[type_]
        wide = "b32" if cls == "b16" else "b64"
        form = f"d:{wide} s:{cls} s:{cls} s:{wide}"
        yield make_row(f"mad.wide.{type_}", form, "mad_wide", {"type": type_}, "fma", issue=2)


def _fma() -> Iterator[Row]:
    for rounding, ftz, word in product(_ROUNDINGS[1:], (False, True), ("", "sat")):
        yield _float("fma", "f32", 3, rounding, ftz, word=word)
    for rounding in _ROUNDINGS[1:]:
        yield _float("fma", "f64", 3, rounding)
    for type_, ftz, word in product(("f16", "f16x2"), (False, True), ("", "sat", "relu")):
        yield _float("fma", type_, 3, "rn", ftz, word=word)
    for type_, word in product(("bf16", "bf16x2"), ("", "relu")):
        yield _float("fma", type_, 3, "rn", word=word)


def _div() -> Iterator[Row]:
    """Integer division is a subroutine of tens of instructions, correctly rounded f32 division of about ten."""
    for type_ in _INTS:
        yield make_row(f"div.{type_}", _same(type_, 2), "div", {"type": type_}, "alu", latency=60, issue=40)
    for rounding, ftz in product((*_ROUNDINGS[1:], "approx", "full"), (False, True)):
        cost = {"latency": 40, "issue": 10} if rounding in _ROUNDINGS else {"latency": 26, "issue": 10}
        yield _float("div", "f32", 2, rounding, ftz, unit="mufu", **cost)
    for rounding in _ROUNDINGS[1:]:
        yield _float("div", "f64", 2, rounding, latency=80, issue=40)


def _rem() -> Iterator[Row]:
    for type_ in _INTS:
        yield make_row(f"rem.{type_}", _same(type_, 2), "rem", {"type": type_}, "alu", latency=60, issue=40)


def _min_max(name: str) -> Iterator[Row]:
    """Without `.NaN` the operand that is a number wins; with it NaN wins (PTX ISA 9.0 §9.7.3.12)."""
    for type_ in _INTS:
        yield make_row(f"{name}.{type_}", _same(type_, 2), name, {"type": type_})
    for type_ in ("f32", *_HALVES):
        for ftz, nan, xorsign in product((False, True), (False, True), (False, True)):
            if ftz and "bf16" in type_:
                continue
            words = ("ftz" if ftz else "", "NaN" if nan else "", "xorsign.abs" if xorsign else "")
            args = {"type": type_, "ftz": ftz, "nan": nan, "xorsign_abs": xorsign}
            # .xorsign.abs came with sm_86, which is no target here.
            more = _SM90 if xorsign else _ANY
            yield make_row(_spell(name, *words, type_), _same(type_, 2), name, args, **more)
    yield make_row(f"{name}.f64", _same("f64", 2), name, {"type": "f64", "nan": False}, "fp64")


def _abs_neg(name: str) -> Iterator[Row]:
    for type_ in ("s16", "s32", "s64"):
        yield make_row(f"{name}.{type_}", _same(type_, 1), name, {"type": type_})
    for type_ in ("f32", "f16", "f16x2"):
        yield from (_float(name, type_, 1, "", ftz, unit="alu") for ftz in (False, True))
    for type_ in ("bf16", "bf16x2", "f64"):
        yield _float(name, type_, 1, unit="alu")


def _copysign() -> Iterator[Row]:
    for type_ in ("f32", "f64"):
        yield make_row(f"copysign.{type_}", _same(type_, 2), "copysign", {"type": type_})


def _sqrt_rcp(name: str) -> Iterator[Row]:
    for rounding, ftz in product((*_ROUNDINGS[1:], "approx"), (False, True)):
        cost = {} if rounding == "approx" else {"latency": 40, "issue": 10}
        yield _float(name, "f32", 1, rounding, ftz, unit="mufu", **cost)
    for rounding in _ROUNDINGS[1:]:
        yield _float(name, "f64", 1, rounding, latency=80, issue=40)


def _approximate(name: str) -> Iterator[Row]:
    """rsqrt, ex2, lg2, sin, cos, tanh by the special function unit (PTX ISA 9.0 §9.7.3.17 to .22)."""
    for ftz in (False, True) if name != "tanh" else (False,):
        yield _float(name, "f32", 1, "approx", ftz, unit="mufu")
    if name == "rsqrt":
        yield _float(name, "f64", 1, "approx", unit="mufu", latency=40, issue=16)
    if name in ("ex2", "tanh"):
        for type_ in ("f16", "f16x2"):
            yield _float(name, type_, 1, "approx", unit="mufu", issue=16 if "x2" in type_ else 8)
        for type_ in ("bf16", "bf16x2"):
            cost = 16 if "x2" in type_ else 8
            yield _float(name, type_, 1, "approx", name == "ex2", unit="mufu", issue=cost, **_SM90)


def _logic(name: str) -> Iterator[Row]:
    sources = 1 if name == "not" else 2
    for type_ in ("pred", "b16", "b32", "b64"):
        form = f"d:{type_}" + f" {'r' if type_ == 'pred' else 's'}:{type_}" * sources
        yield make_row(f"{name}.{type_}", form, name, {"type": type_})


def _shift(name: str) -> Iterator[Row]:
    """Shift amounts are 32 bits wide and clamp at the width of the type."""
    kinds = ("b",) if name == "shl" else ("b", "s", "u")
    for kind, bits in product(kinds, (16, 32, 64)):
        cls = f"b{bits}"
        yield make_row(f"{name}.{kind}{bits}", f"d:{cls} s:{cls} s:b32", name, {"type": f"{kind}{bits}"})


def _funnel() -> Iterator[Row]:
    for direction, mode in product("lr", ("wrap", "clamp")):
        args = {"direction": direction, "mode": mode, "type": "b32"}
        yield make_row(f"shf.{direction}.{mode}.b32", "d:b32 s:b32 s:b32 s:b32", "shf", args)


def _lop3() -> Iterator[Row]:
    yield make_row("lop3.b32", "d:b32 s:b32 s:b32 s:b32 imm", "lop3", {"type": "b32"})


def _prmt() -> Iterator[Row]:
    for mode in ("", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16"):
        yield make_row(_spell("prmt.b32", mode), "d:b32 s:b32 s:b32 s:b32", "prmt", {"type": "b32", "mode": mode})


def _bitfield_extract() -> Iterator[Row]:
    for type_ in ("u32", "s32", "u64", "s64"):
        cls = CLASS_OF_TYPE[type_]
        yield make_row(f"bfe.{type_}", f"d:{cls} s:{cls} s:b32 s:b32", "bfe", {"type": type_})


def _bitfield_insert() -> Iterator[Row]:
    for type_ in ("b32", "b64"):
        yield make_row(f"bfi.{type_}", f"d:{type_} s:{type_} s:{type_} s:b32 s:b32", "bfi", {"type": type_})


def _bits(name: str) -> Iterator[Row]:
    for type_ in ("b32", "b64"):
        result = type_ if name == "brev" else "b32"
        yield make_row(f"{name}.{type_}", f"d:{result} s:{type_}", name, {"type": type_}, "alu", issue=4)


_ORDERED = ("eq", "ne", "lt", "le", "gt", "ge")
_FLOAT_COMPARISONS = (*_ORDERED, "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")


def _setp() -> Iterator[Row]:
    """Ordered comparisons are false, the `…u` ones true, when an operand is NaN (PTX ISA 9.0 §9.7.6)."""

    def one(comparison: str, type_: str, ftz: bool = False, **more: Any) -> Row:
        opcode = _spell("setp", comparison, "ftz" if ftz else "", type_)
        cls = CLASS_OF_TYPE[type_]
        source = "r" if type_ in _HALVES else "s"
        args = {"cmp": comparison, "type": type_, "ftz": ftz}
        return make_row(opcode, f"d:pred {source}:{cls} {source}:{cls}", "setp", args, **more)

    def combined(comparison: str, combine: str, type_: str, ftz: bool = False) -> Row:
        opcode = _spell("setp", comparison, combine, "ftz" if ftz else "", type_)
        cls = CLASS_OF_TYPE[type_]
        args = {"cmp": comparison, "type": type_, "ftz": ftz, "combine": combine}
        return make_row(opcode, f"d:pred s:{cls} s:{cls} r:pred", "setp", args)

    for type_ in ("b16", "b32", "b64"):
        yield from (one(comparison, type_) for comparison in ("eq", "ne"))
    for combine, comparison in product(("and", "or"), _ORDERED):
        yield from (combined(comparison, combine, type_) for type_ in ("s32", "u32", "s64", "u64", "f32"))
        yield combined(comparison, combine, "f32", True)
    for type_ in _INTS:
        unsigned = ("lo", "ls", "hi", "hs") if type_[0] == "u" else ()
        yield from (one(comparison, type_) for comparison in (*_ORDERED, *unsigned))
    for comparison in _FLOAT_COMPARISONS:
        yield one(comparison, "f64")
        yield one(comparison, "bf16", **_SM90)
        for type_, ftz in product(("f32", "f16"), (False, True)):
            yield one(comparison, type_, ftz)


def _selp() -> Iterator[Row]:
    for type_ in ("b16", "b32", "b64"):
        yield make_row(f"selp.{type_}", f"d:{type_} s:{type_} s:{type_} r:pred", "selp", {"type": type_})


def _mov() -> Iterator[Row]:
    """Moves, which also read special registers and addresses of variables, and pack and unpack pairs and quadruples."""
    yield make_row("mov.pred", "d:pred s:pred", "mov", {"type": "pred"})
    yield make_row("mov.b16", "d:b16 s:b16", "mov", {"type": "b16"})
    yield make_row(
        "mov.b32", "d:b32 s:b32; d:b32 special; d:b32 sym; d:b32 r2:b16; d2:b16 r:b32", "mov", {"type": "b32"}
    )
    wide = "d:b64 s:b64; d:b64 special; d:b64 sym; d:b64 r2:b32; d2:b32 r:b64; d:b64 r4:b16; d4:b16 r:b64"
    yield make_row("mov.b64", wide, "mov", {"type": "b64"})


_CVT_INTS = ("s8", "u8", *_INTS)


def _register_classes(type_: str) -> tuple[str, ...]:
    """cvt reads and writes registers wider than an 8-bit type; the compiler's canonical choice comes first."""
    return ("b16", "b32") if type_ in ("s8", "u8") else (CLASS_OF_TYPE[type_],)


def _cvt_row(to: str, source: str, *words: str, unit: str = "cvt", sources: int = 1, **more: Any) -> Row:
    forms = [
        f"d:{d}" + f" {'r' if source in _HALVES or to in _HALVES else 's'}:{s}" * sources
        for d, s in product(_register_classes(to), _register_classes(source))
    ]
    args: dict[str, Any] = {"to": to, "from": source}
    for word in words:
        if word:
            args["round" if word[0] == "r" and word != "relu" else word] = (
                True if word[0] != "r" or word == "relu" else word
            )
    return make_row(_spell("cvt", *words, to, source), ";".join(forms), "cvt", args, unit, **more)


def _cvt() -> Iterator[Row]:
    """Conversions (PTX ISA 9.0 §9.7.9.21). Float to integer clamps and turns NaN into 0 (or, of 64 bits, into 2^63)."""
    for to, source in product(_CVT_INTS, _CVT_INTS):
        if to != source:
            yield _cvt_row(to, source, unit="alu")
            if not _holds_all(to, source):
                yield _cvt_row(to, source, "sat", unit="alu")
    since = {"f16": _ANY, "bf16": _SM90, "f32": _ANY, "f64": _ANY}
    for rounding, to, source in product(("rni", "rzi", "rmi", "rpi"), _CVT_INTS, since):
        if source == "bf16" and to in ("s8", "u8"):
            continue
        yield _cvt_row(to, source, rounding, **_wide(to, source), **since[source])
        if source == "f32":
            yield _cvt_row(to, source, rounding, "ftz", **_wide(to, source))
    for rounding, to, source in product(("rn", "rz", "rm", "rp"), since, _CVT_INTS):
        if to == "bf16" and source in ("s8", "u8"):
            continue
        yield _cvt_row(to, source, rounding, **_wide(to, source), **since[to])
    for source in ("f16", "bf16"):
        yield _cvt_row("f32", source, **(_SM90 if source == "bf16" else {}))
    yield _cvt_row("f32", "f16", "ftz")
    yield _cvt_row("f64", "f16", **_wide("f64", "f16"))
    yield _cvt_row("f64", "bf16", **_wide("f64", "f16"), **_SM90)
    yield _cvt_row("f64", "f32", **_wide("f64", "f32"))
    yield _cvt_row("f64", "f32", "ftz", **_wide("f64", "f32"))
    for rounding in ("rn", "rz", "rm", "rp"):
        yield _cvt_row("f32", "f64", rounding, **_wide("f32", "f64"))
        yield _cvt_row("f32", "f64", rounding, "ftz", **_wide("f32", "f64"))
        yield _cvt_row("f16", "f64", rounding, **_wide("f16", "f64"))
        yield _cvt_row("f16", "f32", rounding)
        yield _cvt_row("f16", "f32", rounding, "ftz")
        yield _cvt_row("bf16", "f64", rounding, **_wide("f16", "f64"), **_SM90)
        yield _cvt_row("bf16", "f16", rounding, **_SM90)
    yield _cvt_row("bf16", "f32", "rm", **_SM90)
    yield _cvt_row("bf16", "f32", "rp", **_SM90)
    for rounding, word in product(("rn", "rz"), ("", "relu")):
        yield _cvt_row("bf16", "f32", rounding, word)
        yield _cvt_row("f16x2", "f32", rounding, word, sources=2)
        yield _cvt_row("bf16x2", "f32", rounding, word, sources=2)
    for rounding in ("rni", "rzi", "rmi", "rpi"):
        for type_ in ("f16", "f32", "f64"):
            yield _cvt_row(type_, type_, rounding, **_wide(type_, type_))
        yield _cvt_row("f32", "f32", rounding, "ftz")
        yield _cvt_row("bf16", "bf16", rounding, **_SM90)
    yield _cvt_row("tf32", "f32", "rna")
    for rounding, word in product(("rn", "rz"), ("", "relu")):
        yield _cvt_row("tf32", "f32", rounding, word, **_SM90)
    fp8: Mapping[str, Any] = {"since": "sm_90", "version": (8, 1)}
    for type_, word in product(("e4m3x2", "e5m2x2"), ("", "relu")):
        yield _cvt_row(type_, "f32", "rn", "satfinite", word, sources=2, **fp8)
        yield _cvt_row(type_, "f16x2", "rn", "satfinite", word, **fp8)
        yield _cvt_row("f16x2", type_, "rn", word, **fp8)


def _holds_all(to: str, source: str) -> bool:
    """Whether every value of integer type `source` is one of type `to`, so that there is nothing to saturate."""
    to_bits, source_bits = int(to[1:]), int(source[1:])
    if to[0] == source[0]:
        return to_bits >= source_bits
    return to[0] == "s" and to_bits > source_bits


def _wide(to: str, source: str) -> dict[str, Any]:
    """Conversions that touch 64-bit values run at a quarter of the rate."""
    return {"latency": 12, "issue": 8} if CLASS_OF_TYPE[to] == "b64" or CLASS_OF_TYPE[source] == "b64" else {}


def _named(make: Any, *names: str) -> Iterable[tuple[str, Family]]:
    return ((name, lambda name=name: make(name)) for name in names)


FAMILIES: Mapping[str, Family] = dict(
    [
        *_named(_add_sub_mul, "add", "sub", "mul"),
        *_named(_min_max, "min", "max"),
        *_named(_abs_neg, "abs", "neg"),
        *_named(_sqrt_rcp, "sqrt", "rcp"),
        *_named(_approximate, "rsqrt", "ex2", "lg2", "tanh", "sin", "cos"),
        *_named(_logic, "and", "or", "xor", "not"),
        *_named(_shift, "shl", "shr"),
        *_named(_bits, "popc", "clz", "brev"),
        ("mad", _mad),
        ("fma", _fma),
        ("div", _div),
        ("rem", _rem),
        ("copysign", _copysign),
        ("shf", _funnel),
        ("lop3", _lop3),
        ("prmt", _prmt),
        ("bfe", _bitfield_extract),
        ("bfi", _bitfield_insert),
        ("setp", _setp),
        ("selp", _selp),
        ("cvt", _cvt),
        ("mov", _mov),
    ]
)
