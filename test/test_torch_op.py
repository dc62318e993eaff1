"""runtime/torch_op.py: kernels as operators of torch, with fake tensors and under torch.compile; needs torch (without a GPU)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tesela
from tesela import TeselaError
from tesela.dialects.launch_plan import ArrayArg, ScalarArg
from tesela.runtime.contract import Contract
from tesela.runtime.torch_op import schema

EXAMPLES = Path(__file__).parent.parent / "examples"
F32, M, N = tesela.f32, *tesela.dims("M N")


def test_the_schema_says_what_is_read_written_and_returned():
    args = (
        ArrayArg("A", "bf16", ("M",), (None,), "r"),
        ArrayArg("B", "f32", ("M",), (None,), "rw"),
        ArrayArg("C", "f32", ("M",), (None,), "w"),
        ScalarArg("alpha", "bf16"),
        ScalarArg("n", "index"),
        ScalarArg("flag", "i1"),
        ArrayArg("D", "f32", ("M",), (None,), "rw"),
    )
    assert schema(Contract("k", args, ("1",))) == (
        "(Tensor A, Tensor(a!) B, float alpha, int n, bool flag, Tensor(b!) D) -> Tensor"
    )
    assert schema(Contract("k", args[2:3] * 2, ("1",))) == "() -> (Tensor, Tensor)"
    assert schema(Contract("k", args[:1], ("1",))) == "(Tensor A) -> ()"


def test_wrong_names():
    kernel = tesela.compile(EXAMPLES / "add.mlir")
    for name in ("add", "mine:add", "mine::add::two", "mine::"):
        with pytest.raises(TeselaError, match=f"add: '{name}' is no name of an operator\n  hint: write namespace::name"):
            kernel.as_torch_op(name)


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@tesela.kernel
def transposed(x: tesela.Array[F32, M, N], factor: F32, y: tesela.Array[F32, N, M, tesela.strides(None, None)]):
    i = tesela.grid(M)
    tesela.store(y, (0, i), (x[i, 0:16] * factor).reshape(16, 1))


@tesela.kernel
def doubled(x: tesela.Array[F32, N]):
    i = tesela.grid(tesela.ceildiv(N, 32)) * 32
    x[i : i + 32] = x[i : i + 32] * 2.0


def test_an_operator_runs_and_has_fake_tensors(torch):
    op = transposed.compile().as_torch_op("tesela_test::transposed")
    x = torch.arange(48.0).reshape(3, 16)
    y = op(x, 2.0)
    np.testing.assert_array_equal(y.numpy(), 2 * x.numpy().T)
    assert torch.ops.tesela_test.transposed(x, 1.0).shape == (16, 3)
    with torch._subclasses.FakeTensorMode():
        fake = op(torch.empty(7, 16), 2.0)
        assert (fake.shape, fake.dtype) == ((16, 7), torch.float32)
        with pytest.raises(TeselaError, match="transposed: x has 1 dimension"):
            op(torch.empty(7), 2.0)
    torch.library.opcheck(op, (x, 2.0))


def test_in_place_operators_say_so(torch):
    op = doubled.compile().as_torch_op("tesela_test::doubled")
    x = torch.ones(40)
    assert op(x) is None
    assert (x == 2).all()
    torch.library.opcheck(op, (x,))


def test_under_torch_compile_with_any_shape(torch):
    op = transposed.compile().as_torch_op("tesela_test::compiled")
    function = torch.compile(lambda x: op(x + 1, 3.0).sum(1), backend="eager", fullgraph=True, dynamic=True)
    for rows in (3, 5):
        x = torch.arange(16.0 * rows).reshape(rows, 16)
        np.testing.assert_allclose(function(x).numpy(), (3 * (x + 1)).sum(0).numpy())
