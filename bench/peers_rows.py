"""Memory-bound kernels beside torch eager, torch.compile, Triton and a copy that moves as many bytes: the benchmark `rows` of peers.py.

Each maker gives, for a shape: the calls of ours, eager and compiled torch (each writes its own outputs), the outputs to check, the float64
result, and the bytes that must move, each array counted once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rounds import Case, System

import tesela
from tesela.kernels import elementwise, rows

if TYPE_CHECKING:
    from peers import Torch

TYPES = {"bfloat16": tesela.bf16, "float32": tesela.f32}
ROWS: tuple[tuple[str, str, int, int], ...] = (
    ("softmax", "bf16", 16384, 8192),
    ("softmax", "f32", 16384, 8192),
    ("softmax", "bf16", 16384, 4096),
    ("softmax", "bf16", 16384, 1024),
    ("layer_norm", "bf16", 16384, 8192),
    ("layer_norm", "bf16", 16384, 1024),
    ("rms_norm", "bf16", 16384, 8192),
    ("rms_norm", "bf16", 16384, 1024),
    ("swiglu", "bf16", 16384, 8192),
    ("rotary", "bf16", 8192, 32),
    ("transpose", "f32", 8192, 8192),
    ("transpose", "bf16", 8192, 8192),
    ("row_sum", "bf16", 16384, 8192),
    ("cumsum", "bf16", 16384, 8192),
    ("column_sum", "bf16", 16384, 8192),
)
"""(kernel, element type, rows, columns); of rotary: positions, heads of 128."""


Ours = Callable[[dict[str, int], dict[str, int]], Callable[[], object]]


@dataclass
class Contest:
    """`ours(pins, values)` gives what launches our kernel, with what is chosen for it; `eager(*inputs)` is what torch runs eagerly and compiled. `output`: ours."""

    ours: Ours
    eager: Callable[..., Any]
    inputs: tuple[Any, ...]
    output: Any
    expected: Any
    nbytes: int
    tolerance: float


def launch(kernel: Any, arrays: tuple[Any, ...], **fixed: Any) -> Ours:
    """What `Contest.ours` is for a kernel of ours on these arrays; its type variable T is the first array's element type."""

    def chosen(pins: dict[str, int], values: dict[str, int]) -> Callable[[], object]:
        compiled = kernel.compile(T=TYPES[str(arrays[0].dtype).removeprefix("torch.")], pins=pins, **fixed, **values)
        return lambda: compiled(*arrays)

    return chosen


def _softmax(torch: Torch, dtype: Any, m: int, n: int) -> Contest:
    x = torch.randn(m, n, dtype=dtype)
    y = torch.torch.empty_like(x)
    return Contest(
        launch(rows.softmax, (x, y)),
        lambda x: torch.torch.softmax(x, 1), (x,), y, torch.torch.softmax(x.double(), 1), 2 * x.nbytes, 1e-2,
    )  # fmt: skip


def _layer_norm(torch: Torch, dtype: Any, m: int, n: int) -> Contest:
    x, weight, bias = torch.randn(m, n, dtype=dtype), torch.randn(n, dtype=dtype), torch.randn(n, dtype=dtype)
    y = torch.torch.empty_like(x)
    norm = torch.torch.nn.functional.layer_norm
    return Contest(
        launch(rows.layer_norm, (x, weight, bias, y)),
        lambda x, weight, bias: norm(x, (n,), weight, bias, 1e-5),
        (x, weight, bias), y, norm(x.double(), (n,), weight.double(), bias.double(), 1e-5), 2 * x.nbytes, 1e-2,
    )  # fmt: skip


def _rms_norm(torch: Torch, dtype: Any, m: int, n: int) -> Contest:
    x, residual, weight = torch.randn(m, n, dtype=dtype), torch.randn(m, n, dtype=dtype), torch.randn(n, dtype=dtype)
    y, total = torch.torch.empty_like(x), torch.torch.empty_like(x)

    def eager(x: Any, residual: Any, weight: Any) -> Any:
        total = x + residual
        wide = total.float()
        return (wide * torch.torch.rsqrt((wide * wide).mean(1, keepdim=True) + 1e-6) * weight.float()).to(x.dtype), total

    wide = (x + residual).double()
    expected = wide * torch.torch.rsqrt((wide * wide).mean(1, keepdim=True) + 1e-6) * weight.double()
    ours = launch(rows.rms_norm, (x, residual, weight, y, total))
    return Contest(ours, eager, (x, residual, weight), y, expected, 4 * x.nbytes, 2e-2)


def _swiglu(torch: Torch, dtype: Any, m: int, n: int) -> Contest:
    gate, up = torch.randn(m, n, dtype=dtype), torch.randn(m, n, dtype=dtype)
    y = torch.torch.empty_like(gate)
    silu = torch.torch.nn.functional.silu
    return Contest(
        launch(elementwise.gated, (gate, up, y)),
        lambda gate, up: silu(gate) * up, (gate, up), y, silu(gate.double()) * up.double(), 3 * gate.nbytes, 2e-2,
    )  # fmt: skip


def _rotary(torch: Torch, dtype: Any, m: int, n: int) -> Contest:
    x = torch.randn(m, n, 2, 64, dtype=dtype)
    angles = torch.torch.arange(m, device="cuda")[:, None] * 10000.0 ** (-torch.torch.arange(64, device="cuda") / 64)
    cosine, sine = angles.cos().float(), angles.sin().float()
    y = torch.torch.empty_like(x)

    def eager(x: Any, cosine: Any, sine: Any) -> Any:
        a, b, c, s = x[:, :, 0].float(), x[:, :, 1].float(), cosine[:, None], sine[:, None]
        return torch.torch.stack([a * c - b * s, b * c + a * s], 2).to(x.dtype)

    expected = eager(x.double(), cosine.double(), sine.double()).double()
    return Contest(
        launch(elementwise.rotary, (x, cosine, sine, y)), eager, (x, cosine, sine), y, expected, 2 * (x.nbytes + cosine.nbytes), 2e-2
    )


def _transpose(torch: Torch, dtype: Any, m: int, n: int) -> Contest:
    x = torch.randn(m, n, dtype=dtype)
    y = torch.torch.empty(n, m, device="cuda", dtype=dtype)
    return Contest(
        launch(elementwise.transpose, (x, y)), lambda x: x.T.contiguous(), (x,), y, x.double().T, 2 * x.nbytes, 0.0
    )


def _cumsum(torch: Torch, dtype: Any, m: int, n: int) -> Contest:
    x = torch.randn(m, n, dtype=dtype)
    y = torch.torch.empty_like(x)
    return Contest(
        launch(rows.cumsum, (x, y)), lambda x: torch.torch.cumsum(x, 1, dtype=torch.torch.float32).to(dtype), (x,), y, x.double().cumsum(1), 2 * x.nbytes, 1e-2
    )


def _row_sum(torch: Torch, dtype: Any, m: int, n: int) -> Contest:
    x = torch.randn(m, n, dtype=dtype)
    y = torch.torch.empty(m, device="cuda")
    return Contest(
        launch(rows.row_sum, (x, y)),
        lambda x: x.sum(1, dtype=torch.torch.float32), (x,), y, x.double().sum(1), x.nbytes, 1e-4,
    )  # fmt: skip


def _column_sum(torch: Torch, dtype: Any, m: int, n: int) -> Contest:
    x = torch.randn(m, n, dtype=dtype)
    y = torch.torch.empty(1, n, device="cuda")

    def ours(pins: dict[str, int], values: dict[str, int]) -> Callable[[], object]:
        """P of the values: the number of parts."""
        parts = torch.torch.empty(values.get("P", 16), n, device="cuda")
        first = launch(rows.column_sum, (x, parts))(pins, {name: value for name, value in values.items() if name != "P"})
        second = launch(rows.column_sum, (parts, y), BM=16)({name: pin for name, pin in pins.items() if name == "pdl"}, {})
        return lambda: (first(), second())

    return Contest(ours, lambda x: x.sum(0, keepdim=True, dtype=torch.torch.float32), (x,), y, x.double().sum(0, keepdim=True), x.nbytes, 1e-4)


MAKERS: dict[str, Callable[..., Contest]] = {
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "swiglu": _swiglu,
    "rotary": _rotary,
    "transpose": _transpose,
    "row_sum": _row_sum,
    "cumsum": _cumsum,
    "column_sum": _column_sum,
}


EPSILONS = {"softmax": None, "layer_norm": 1e-5, "rms_norm": 1e-6, "row_sum": None, "cumsum": None}
"""What is measured in Triton too (triton_rows.py), with the constant that it takes."""


def contest(torch: Torch, kernel: str, dtype: str, m: int, n: int) -> Contest:
    return MAKERS[kernel](torch, {"bf16": torch.torch.bfloat16, "f32": torch.torch.float32}[dtype], m, n)


def ours(torch: Torch, contest: Contest, text: str) -> System:
    """Our kernel with what `text` chooses for it, such as 'warps=8,BLOCK=4096': pins are written small."""
    chosen = {name: int(value) for name, _, value in (part.partition("=") for part in text.split(",") if part)}
    pins = {name: value for name, value in chosen.items() if name.islower()}
    launches: list[Callable[[], object]] = []

    def run() -> None:
        if not launches:  # here, so that what raises belongs to this contestant alone
            launches.append(contest.ours(pins, {name: value for name, value in chosen.items() if name not in pins}))
        launches[0]()

    return torch.checked(torch.system(f"tesela {text}".strip(), run), contest.output, contest.expected, contest.tolerance)


def make_case(torch: Torch, kernel: str, dtype: str, m: int, n: int, tried: Sequence[str] = ()) -> Case:
    """One row of the benchmark; ours also with each of `tried`."""
    case = contest(torch, kernel, dtype, m, n)
    systems = [ours(torch, case, text) for text in ("", *tried)]
    for name, function in (("torch", case.eager), ("torch.compile", torch.torch.compile(case.eager, dynamic=False))):
        results: list[Any] = [None]

        def eager(function: Callable[..., Any] = function, results: list[Any] = results) -> None:
            results[0] = function(*case.inputs)

        systems.append(torch.checked_result(torch.system(name, eager), results, case.expected, max(case.tolerance, 1e-4)))
    if kernel in EPSILONS:
        third = torch.torch.empty_like(case.output)
        more = (torch.torch.empty_like(case.output),) if kernel == "rms_norm" else ()

        def triton() -> Any:
            import triton_rows as programs

            arrays = (*case.inputs, third, *more)
            return programs.configurations(n), lambda config: programs.launcher(kernel, arrays, EPSILONS[kernel], config)

        systems.append(torch.tuned("Triton", triton, third, case.expected, max(case.tolerance, 1e-4)))
    systems.append(copy(torch, case.nbytes))
    # Through a graph all of them: torch.compile's launches take the host 80 µs and more.
    return Case(title(kernel, dtype, m, n), systems, nbytes=case.nbytes, graph=True)


def copy(torch: Torch, nbytes: int) -> System:
    """A device copy that reads and writes so many bytes, half and half."""
    source = torch.torch.empty(nbytes // 2, device="cuda", dtype=torch.torch.uint8)
    target = torch.torch.empty_like(source)
    return torch.system("copy", lambda: target.copy_(source))


def title(kernel: str, dtype: str, m: int, n: int) -> str:
    return f"{kernel} {dtype} {m}×{n}"
