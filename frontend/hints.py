"""Hints for mistakes in kernels: names that look alike, words that other languages have and this one spells otherwise, conversions that lose nothing."""

from __future__ import annotations

from collections.abc import Iterable

from .types import DTYPES, DType

CLOSE = 0.65
"""How alike two names must be (difflib's ratio) for one to be taken for a slip of the other: 'lod' is 'log', but 'softmax' is not 'max'."""

ABSENT = {
    "mean": "write x.sum(axis) / n, with the number of elements that are inside of the array",
    "average": "write x.sum(axis) / n",
    "var": "sum the squares of what is off the mean: ((x - mean) * (x - mean)).sum(axis) / n",
    "std": "take tesela.sqrt of the variance: ((x - mean) * (x - mean)).sum(axis) / n",
    "sigmoid": "write 1 / (1 + tesela.exp(-x))",
    "silu": "write x / (1 + tesela.exp(-x))",
    "relu": "write tesela.maximum(x, 0)",
    "gelu": "write it with tesela.tanh: 0.5 * x * (1 + tesela.tanh(0.79788456 * (x + 0.044715 * x * x * x)))",
    "erf": "there is none: approximate it with tesela.exp or tesela.tanh, or call an instruction with tesela.inline_ptx",
    "softmax": "write e = tesela.exp(x - x.max(axis)) and e / e.sum(axis), with the reduced dimension put back by keepdims or [:, None]",
    "square": "write x * x",
    "pow": "write x ** n, or tesela.exp2(y * tesela.log2(x))",
    "clamp": "write tesela.minimum(tesela.maximum(x, low), high)",
    "clip": "write tesela.minimum(tesela.maximum(x, low), high)",
    "zeros_like": "write tesela.zeros(x.shape, x.dtype)",
    "ones_like": "write tesela.full(x.shape, 1, x.dtype)",
    "empty": "write tesela.zeros(shape, dtype)",
    "matmul": "write a @ b",
    "einsum": "write a @ b, with transposed operands",
    "trans": "write x.T, or x.transpose(…)",
    "permute": "write x.transpose(…)",
    "view": "write x.reshape(…)",
    "cdiv": "write tesela.ceildiv(a, b)",
    "program_id": "coordinates of blocks come from the grid: i, j = tesela.grid(extent, extent)",
    "num_programs": "coordinates of blocks come from the grid, and its extents are those given to tesela.grid",
    "concatenate": "tiles are joined by tesela.join, or stored next to one another",
    "cat": "tiles are joined by tesela.join, or stored next to one another",
    "mask": "past the edge of the array a load reads fill=… and a store writes nothing; other elements choose with tesela.where",
    "other": "write fill=…",
    "num_warps": "write variants=[{'warps': 8}]",
    "num_stages": "write variants=[{'stages': 3}]",
}
"""What readers of other languages look for -> what to write here."""

_PRECISION = {"f8E4M3FN": (4, 8), "f8E5M2": (3, 15), "f16": (11, 15), "bf16": (8, 127), "f32": (24, 127), "f64": (53, 1023)}
"""Significand bits, and the largest exponent, of floats."""
_LEAST = {"f8E4M3FN": 9, "f8E5M2": 16, "f16": 24, "bf16": 133, "f32": 149, "f64": 1074}
"""The exponent of the least positive number, negated."""


def similar(name: str, known: Iterable[str], count: int = 1) -> str | None:
    """A hint for a name that is not known: what else is written instead, or the names that look most like it."""
    from difflib import get_close_matches  # for errors only: a warm start does without

    if name in ABSENT:
        return ABSENT[name]
    near = get_close_matches(name, list(known), count, CLOSE)
    return f"did you mean {' or '.join(near)}?" if near else None


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether every number of one type is a number of the other."""
    if wide is narrow:
        return True
    if narrow.kind not in ("float", "int") or wide.kind not in ("float", "int"):
        return False
    if narrow.kind == "float":
        if wide.kind == "int":
            return False
        (bits, top), (less, least) = _PRECISION[wide.name], _PRECISION[narrow.name]
        return bits >= less and top >= least and _LEAST[wide.name] >= _LEAST[narrow.name]
    magnitude = narrow.bits - (narrow.name != "ui8")
    if wide.kind == "int":
        return wide.name != "ui8" and wide.bits - 1 >= magnitude
    precision, top = _PRECISION[wide.name]
    return precision >= magnitude and top >= magnitude


def conversion(a: DType, b: DType, of: Iterable[DType] = DTYPES.values()) -> str:
    """How two operands come to have one type, of those in `of`, if possible without loss."""
    allowed = list(of)
    for wide in (a, b):
        if wide in allowed and _holds(wide, a) and _holds(wide, b):
            return f"convert one operand, as in x.to({wide.name})"
    both = [dtype for dtype in allowed if dtype.bits <= 32 and _holds(dtype, a) and _holds(dtype, b)]
    if both:
        return f"convert both operands, as in x.to({min(both, key=lambda dtype: dtype.bits).name})"
    kinds = {dtype.kind for dtype in (a, b)}
    wide = max((dtype for dtype in (a, b) if dtype.kind == "float" or "float" not in kinds), key=lambda dtype: dtype.bits)
    return f"convert one operand, as in x.to({wide.name}), which may round" if "float" in kinds else f"convert one operand, as in x.to({wide.name})"
