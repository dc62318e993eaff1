"""A kernel as an operator of torch, in one line, that torch.compile, autograd's tracing and fake tensors know.

    softmax = tesela.compile("examples/softmax.mlir").as_torch_op("mine::softmax")
    y = softmax(x)
    torch.compile(lambda x: softmax(x) * 2)(x)       # the operator stands in the graph; its output's shape follows from the contract

The operator takes what the kernel reads, and returns, as new tensors, the arrays that it only writes. Arrays that it reads and writes are
changed in place. The schema says all of that, so that torch does not have to look inside.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..dialects.diagnostics import TeselaError
from ..dialects.launch_plan import ArrayArg, ScalarArg
from .arrays import HOST, ArrayView, torch_dtypes
from .contract import Contract

if TYPE_CHECKING:
    from .kernel import Kernel

Typed = Callable[[Mapping[str, str]], "Kernel"]
"""(element types by argument's name) -> the kernel for them."""


def register(kernel: Kernel, name: str, typed: Typed | None = None) -> Any:
    """Register a kernel under 'namespace::name'; the operator. `typed`: of a kernel whose element types are those of its arrays, what gives the kernel for some
    (`kernel` says what is read and written in all of them). Raises TeselaError for a name of another form, and without torch."""
    namespace, colons, short = name.partition("::")
    if not (colons and namespace.isidentifier() and short.isidentifier()):
        raise kernel.contract.error(f"'{name}' is no name of an operator", "write namespace::name")
    try:
        import torch
    except ImportError:
        raise kernel.contract.error("torch is not installed, but an operator of torch is asked for", "pip install torch") from None
    contract = kernel.contract
    taken = [position for position, arg in enumerate(contract.args) if not _is_output(arg)]
    outputs = [position for position, arg in enumerate(contract.args) if _is_output(arg)]
    positions = {position: number for number, position in enumerate(taken)}

    def for_types(values: tuple[Any, ...]) -> Kernel:
        if typed is None:
            return kernel
        known = torch_dtypes()
        arrays = [(contract.args[position].name, value) for position, value in zip(taken, values) if isinstance(value, torch.Tensor)]
        return typed({array: known[value.dtype][0] for array, value in arrays if value.dtype in known})

    def run(*values: Any) -> Any:
        full = [values[positions[position]] if position in positions else None for position in range(len(contract.args))]
        return for_types(values)(*full)

    def fake(*values: Any) -> Any:
        contract = for_types(values).contract
        views: list[ArrayView | None] = [None] * len(contract.args)
        example = None
        for position, value in zip(taken, values):
            if isinstance(contract.args[position], ArrayArg):
                views[position] = _fake_view(contract, position, value)
                example = value if example is None else example
        dims = contract.solve(views)
        made = []
        for position in outputs:
            dtype = next(theirs for theirs, (ours, _) in torch_dtypes().items() if ours == contract.args[position].dtype)
            shape = contract.output_shape(position, dims)
            made.append(torch.empty(shape, dtype=dtype) if example is None else example.new_empty(shape, dtype=dtype))
        return None if not made else made[0] if len(made) == 1 else tuple(made)

    mutated = [arg.name for arg in contract.args if isinstance(arg, ArrayArg) and arg.access == "rw"]
    operator = torch.library.custom_op(name, run, mutates_args=mutated, schema=schema(contract))
    operator.register_fake(fake)
    return operator


def schema(contract: Contract) -> str:
    """The operator's schema: `(Tensor A, Tensor(a!) B, float alpha) -> (Tensor, Tensor)`."""
    taken = []
    aliases = iter("abcdefghijklmnopqrstuvwxyz")
    for arg in contract.args:
        if isinstance(arg, ScalarArg):
            taken.append(f"{_SCALARS.get(arg.dtype, 'int')} {arg.name}")
        elif arg.access == "rw":
            taken.append(f"Tensor({next(aliases)}!) {arg.name}")
        elif arg.access == "r":
            taken.append(f"Tensor {arg.name}")
    count = sum(map(_is_output, contract.args))
    results = "Tensor" if count == 1 else "(" + ", ".join(["Tensor"] * count) + ")"
    return f"({', '.join(taken)}) -> {results}"


_SCALARS = {"f16": "float", "bf16": "float", "f32": "float", "f64": "float", "f8E4M3FN": "float", "f8E5M2": "float", "i1": "bool"}


def _is_output(arg: ArrayArg | ScalarArg) -> bool:
    return isinstance(arg, ArrayArg) and arg.access == "w"


def _fake_view(contract: Contract, position: int, tensor: Any) -> ArrayView:
    """A tensor without memory as the contract's checks see arrays."""
    torch = sys.modules["torch"]
    if not isinstance(tensor, torch.Tensor):
        raise TeselaError.at(None, f"{contract.name}: {contract.args[position].name} is a {type(tensor).__name__}, but a tensor is required")
    dtype, itemsize = torch_dtypes().get(tensor.dtype, (str(tensor.dtype), tensor.element_size()))
    return ArrayView(0, tuple(tensor.shape), tensor.stride(), dtype, itemsize, HOST, False, None, tensor)
