"""Whether tensors are like earlier ones, in one call: torch's own guards on tensors, where they are to be had and do what is asked.

Comparing a tensor's type, element type, shape, strides, device and negation one by one takes a quarter of a microsecond. torch.compile, which
must know the same before each call of compiled code, has a function in C++ that compares all of it for all tensors at once, four times
as fast: `TensorGuards` of `torch._C._dynamo.guards`. It is no public interface. So it is tried before it is relied on: on tensors that
differ from one in each respect that matters here. Where it is missing, or does not tell one of them, `guard` accepts nothing, and launchers
compare by public functions. It also refuses tensors that differ in what does not matter here, such as the modes of torch that are on;
then launchers compare by public functions too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

Guard = Callable[..., bool]


def guard(tensors: Sequence[Any]) -> Guard:
    """A function that takes as many tensors and says whether they are surely of the same types, element types, shapes, strides and devices as
    these, with the same bit of negation; False means that they may be. It keeps no tensor alive."""
    torch = sys.modules.get("torch")
    if not tensors or torch is None or not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
        return accepts_nothing
    make = _tried(torch)
    return accepts_nothing if make is None else make(tensors)


def accepts_nothing(*tensors: Any) -> bool:
    """The guard where torch has none."""
    return False


@cache
def _tried(torch: Any) -> Callable[[Sequence[Any]], Guard] | None:
    """What makes a guard, if it tells all that it is relied on for."""
    try:
        made = torch._C._dynamo.guards.TensorGuards

        def make(tensors: Sequence[Any]) -> Guard:
            shapes = [list(tensor.shape) for tensor in tensors]
            strides = [list(tensor.stride()) for tensor in tensors]
            return made(*tensors, dynamic_dims_sizes=shapes, dynamic_dims_strides=strides).check

        zeros = partial(torch.zeros, device="cpu")
        one, other = zeros(2, 3), zeros(4)
        check = make([one, other])
        like = (zeros(2, 3), zeros(4, 4)[1]), (zeros(3, 3)[1:], other)
        unlike = (
            zeros(2, 2), zeros(6), zeros(2, 3, 1), zeros(3, 2).T, zeros(2, 4)[:, :3], zeros(1, 3).expand(2, 3),
            zeros(2, 3, dtype=torch.bfloat16), zeros(2, 3, dtype=torch.int32), torch._neg_view(one), torch.nn.Parameter(one),
            zeros(2, 3, device="meta"), one.to_sparse(), None, 1.0,
        )  # fmt: skip
        tells = all(check(*tensors) for tensors in like) and not any(check(tensor, other) for tensor in unlike)
        first, second = _on_two_gpus(torch)
        tells = tells and make([first])(first) and not make([first])(second)
    except (AttributeError, ImportError, TypeError, RuntimeError):
        return None
    return make if tells else None


def _on_two_gpus(torch: Any) -> tuple[Any, Any]:
    """Tensors without memory that say that they are on GPU 0 and on GPU 1, whether there are such or not."""

    class Placed(torch.Tensor):
        __torch_function__ = torch._C._disabled_torch_function_impl

        @staticmethod
        def __new__(cls, device: str) -> Any:
            return torch.Tensor._make_wrapper_subclass(cls, (2, 3), strides=(3, 1), dtype=torch.float32, device=device)

        @classmethod
        def __torch_dispatch__(cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise RuntimeError(f"{operation} of a tensor without memory")

    return Placed("cuda:0"), Placed("cuda:1")
