"""Arrays of torch and JAX as they are, on the host: what passes without a copy, what is written, and what has no memory; needs either library."""

from __future__ import annotations

import numpy as np
import pytest

import tesela
from tesela import Array, TeselaError, f32

N = tesela.dims("N")


@tesela.kernel
def add(x: Array[f32, N], y: Array[f32, N], z: Array[f32, N]):
    i = tesela.grid(tesela.ceildiv(N, 64)) * 64
    z[i : i + 64] = x[i : i + 64] + y[i : i + 64]


@tesela.kernel
def double(x: Array[f32, N]):
    i = tesela.grid(tesela.ceildiv(N, 64)) * 64
    x[i : i + 64] = x[i : i + 64] * 2.0


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def jax():
    return pytest.importorskip("jax")


def test_jax_arrays_are_read_in_place_and_outputs_go_back(jax):
    x = jax.numpy.arange(100, dtype="float32")
    z = add(x, x, device="sim")
    assert float(jax.numpy.asarray(z)[99]) == 198
    view = tesela.runtime.arrays.view(x)
    assert view.address == x.unsafe_buffer_pointer() and view.readonly


def test_jax_arrays_are_not_written(jax):
    with pytest.raises(TeselaError, match="double: x is read-only, but the kernel writes it"):
        double(jax.numpy.ones(10), device="sim")


@pytest.mark.parametrize("transform", ["jit", "vmap", "grad"])
def test_what_jax_traces_has_no_memory(jax, transform):
    functions = {
        "jit": lambda: jax.jit(lambda a: add(a, a, device="sim"))(jax.numpy.ones(10)),
        "vmap": lambda: jax.vmap(lambda a: add(a, a, device="sim"))(jax.numpy.ones((3, 10))),
        "grad": lambda: jax.grad(lambda a: add(a, a, device="sim")[0])(jax.numpy.ones(10)),
    }
    with pytest.raises(TeselaError, match="add: x is a value that JAX is tracing, and has no memory yet\n  hint: call kernels outside of jax.jit, grad and vmap"):
        functions[transform]()


def test_torch_tensors_are_read_and_written_in_place(torch):
    x, z = torch.ones(100), torch.zeros(100)
    add(x, x, z, device="sim")
    assert z[99] == 2 and tesela.runtime.arrays.view(x).address == x.data_ptr()
    double(torch.nn.Parameter(x), device="sim")
    assert x[0] == 2
    assert isinstance(add(x, x, device="sim"), torch.Tensor)


def test_what_torch_traces_or_transforms_has_no_memory(torch):
    with torch._subclasses.FakeTensorMode(), pytest.raises(TeselaError, match="add: x is a tensor that stands for another.*\n  hint: .*as_torch_op"):
        add(torch.empty(10), torch.empty(10), device="sim")
    with pytest.raises(TeselaError, match="x is a tensor that stands for another"):
        torch.func.vmap(lambda a: add(a, a, device="sim"))(torch.ones(3, 10))


def test_an_operator_under_torch_compile(torch):
    """In one line; the graph has it in one piece, for sizes that torch leaves open, too."""
    op = add.compile().as_torch_op("tesela_test::interoperability_add")
    compiled = torch.compile(lambda a: op(a, a) * 2, backend="eager", fullgraph=True, dynamic=True)
    for n in (10, 33):
        np.testing.assert_array_equal(compiled(torch.ones(n)).numpy(), np.full(n, 4, np.float32))
    exported = torch.export.export(Doubled(torch, op), (torch.ones(8),))
    assert "interoperability_add" in str(exported.graph)


def Doubled(torch, op):
    class Module(torch.nn.Module):
        def forward(self, x):
            return op(x, x)

    return Module()


T = tesela.dtype("T")


@tesela.kernel
def scaled(x: Array[T, N], factor: f32, y: Array[T, N], BLOCK: tesela.constexpr = 64):
    i = tesela.grid(tesela.ceildiv(N, BLOCK)) * BLOCK
    y[i : i + BLOCK] = (x[i : i + BLOCK].to(f32) * factor).to(T)


def test_one_operator_for_all_element_types(torch):
    """Of a kernel function, in one line; each call takes the program for its tensors' types, in graphs too."""
    op = scaled.as_torch_op("tesela_test::scaled", BLOCK=32)
    compiled = torch.compile(lambda x: op(x, 3.0) + 1, backend="eager", fullgraph=True)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        x = torch.arange(40, dtype=dtype)
        assert op(x, 2.0).dtype is dtype and (op(x, 2.0) == x * 2).all()
        assert (compiled(x) == x * 3 + 1).all()
    torch.library.opcheck(op, (torch.ones(8), 2.0))
    with pytest.raises(TeselaError, match="'scaled' is no name of an operator"):
        scaled.as_torch_op("scaled")
