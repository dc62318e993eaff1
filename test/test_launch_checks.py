"""runtime/contract.py: the checks of a call, each with its exact message, and what follows from a right one."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tesela.dialects.diagnostics import TeselaError
from tesela.dialects.launch_plan import ArrayArg, LaunchPlan, Requirement, ScalarArg
from tesela.runtime.arrays import HOST, ArrayView, view
from tesela.runtime.contract import Contract, overlapping

BF16 = ml_dtypes.bfloat16
GEMM = Contract(
    "gemm",
    (
        ArrayArg("A", "bf16", ("M", "K"), (None, 1), "r"),
        ArrayArg("B", "bf16", ("N", "K"), (None, 1), "r"),
        ArrayArg("C", "f32", ("M", "N"), (None, 1), "w"),
    ),
    ("M ceildiv 128", "N ceildiv 128"),
)
SIGNATURE = "it is gemm(A: bf16[M, K], B: bf16[N, K], C: f32[M, N])"
SCALE = Contract(
    "scale",
    (
        ArrayArg("x", "f32", ("N",), (None,), "r"),
        ArrayArg("y", "f32", ("N + 1", "4"), (None, None), "rw", noalias=True),
        ScalarArg("alpha", "f32"),
        ScalarArg("count", "i32"),
        ScalarArg("flag", "i1"),
        ScalarArg("at", "index"),
    ),
    ("N ceildiv 4 - 1",),
    align={"x": 32},
    divisors={"N": 4},
)


def text(call) -> str:
    with pytest.raises(TeselaError) as caught:
        call()
    return str(caught.value)


def solve(contract: Contract, *arrays):
    return contract.solve([None if array is None else view(array) for array in arrays])


def test_dimensions_grid_and_outputs_of_a_right_call():
    dims = solve(GEMM, np.zeros((300, 64), BF16), np.zeros((129, 64), BF16), None)
    assert dims == {"M": 300, "K": 64, "N": 129}
    assert GEMM.blocks(dims) == (3, 2, 1)
    assert GEMM.output_shape(2, dims) == (300, 129)
    assert GEMM.blocks({"M": 0, "N": 129}) == (0, 2, 1)


def test_contradicting_extents():
    found = text(lambda: solve(GEMM, np.zeros((8, 64), BF16), np.zeros((8, 63), BF16), None))
    assert found == "error: gemm: B has K = 63, but A has K = 64\n  hint: A[M, K] is (8, 64); B[N, K] is (8, 63)"


def test_contradicting_extents_of_one_array():
    square = Contract("k", (ArrayArg("x", "f32", ("N", "N"), (None, 1), "r"),), ("N",))
    found = text(lambda: solve(square, np.zeros((3, 4), np.float32)))
    assert found == "error: k: x has N = 3 and N = 4 (dimension 1), but they must be equal\n  hint: x[N, N] is (3, 4)"


def test_an_extent_that_is_an_expression():
    x = np.zeros(8, np.float32)
    found = text(lambda: solve(SCALE, x, np.zeros((8, 4), np.float32)))
    assert found == (
        "error: scale: y has extent 8 in dimension 0, but N + 1 = 9 is required\n  hint: x[N] is (8,); y[N + 1, 4] is (8, 4)"
    )
    found = text(lambda: solve(SCALE, x, np.zeros((9, 5), np.float32)))
    assert found.startswith("error: scale: y has extent 5 in dimension 1, but 4 is required\n")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((8, 64), np.float32), "A has element type f32, but bf16 is required\n  hint: convert it to bfloat16"),
        (np.zeros((8, 64), np.uint16), "A has element type uint16, but bf16 is required\n  hint: convert it to bfloat16"),
        (np.zeros(8, BF16), "A has 1 dimension (8,), but 2 [M, K] are required"),
        (np.zeros((1, 8, 8), BF16), "A has 3 dimensions (1, 8, 8), but 2 [M, K] are required"),
        (
            np.zeros((64, 8), BF16).T,
            "A has stride 8 in dimension 1, but 1 is required (in elements)\n"
            "  hint: pass a contiguous copy, or leave that stride open in the signature: None in strides(…), in IR '?'",
        ),
    ],
)
def test_a_wrong_array(array, message):
    assert text(lambda: solve(GEMM, array, np.zeros((8, 64), BF16), None)) == f"error: gemm: {message}"


def test_strides_of_extents_of_one_and_of_empty_arrays_do_not_matter():
    assert solve(GEMM, np.zeros((1, 64), BF16).T, np.zeros((8, 1), BF16), None)["M"] == 64
    assert solve(GEMM, np.zeros((0, 64), BF16).T[:, :0], np.zeros((8, 0), BF16), None)["K"] == 0


def test_written_arrays():
    a, b, c = np.zeros((8, 64), BF16), np.zeros((8, 64), BF16), np.zeros((8, 8), np.float32)
    c.flags.writeable = False
    assert text(lambda: solve(GEMM, a, b, c)) == "error: gemm: C is read-only, but the kernel writes it\n  hint: pass a writable copy"
    row = np.lib.stride_tricks.as_strided(np.zeros(8, np.float32), (8, 8), (0, 4))
    assert text(lambda: solve(GEMM, a, b, row)) == (
        "error: gemm: C has stride 0 in dimension 0 of extent 8: its elements share memory, but the kernel writes them\n"
        "  hint: pass an array of its own memory"
    )


@pytest.mark.parametrize(("strides", "overlap"), [((16, 4), True), ((4, 4), True), ((32, 4), False), ((-32, 4), False), ((4, 32), False), ((8, 20), True), ((12, 32), False), ((8, 68), False)])
def test_written_arrays_whose_elements_share_memory(strides, overlap):
    """(bytes of an element: 4). Where the strides do not tell, places are counted."""
    contract = Contract("fill", (ArrayArg("y", "f32", ("M", "N"), (None, None), "w"),), ("M", "N"))
    memory = np.zeros(1000, np.float32)
    places = {i * strides[0] + j * strides[1] for i in range(8) for j in range(8)}
    assert (len(places) < 64) == overlap
    y = np.lib.stride_tricks.as_strided(memory[500:], (8, 8), strides)
    if overlap:
        assert "elements share memory, but the kernel writes them" in text(lambda: solve(contract, y))
    else:
        solve(contract, y)


def test_stated_divisibility():
    assert text(lambda: solve(SCALE, np.zeros(6, np.float32), None)) == (
        "error: scale: N = 6 (of x), but a multiple of 4 is required\n  hint: the program states it; pad the array, or take the statement out"
    )


def test_stated_alignment():
    def at(address, stride=1):
        return [ArrayView(address, (8,), (stride,), "f32", 4, HOST, False, None, None), None]

    SCALE.check_alignment(at(64, 8))
    SCALE.check_alignment(at(64, -8))
    assert text(lambda: SCALE.check_alignment(at(66))) == (
        "error: scale: x starts at an address that is 2 modulo 4, but its elements have 4 bytes\n"
        "  hint: a GPU reads elements at multiples of their size only; pass a copy"
    )
    assert text(lambda: SCALE.check_alignment(at(48, 8))) == (
        "error: scale: x starts at an address that is 16 modulo 32, but a multiple of 32 is required\n"
        "  hint: the program states it (align); pass a copy, or take the statement out (`tesela compile` states it, unless told `--assume nothing`)"
    )
    assert text(lambda: SCALE.check_alignment(at(64, 3))) == (
        "error: scale: x has a stride of 12 bytes in dimension 0, but a multiple of 32 is required\n"
        "  hint: the program states it (align); pad the rows, or take the statement out (`tesela compile` states it, unless told `--assume nothing`)"
    )


def test_binding():
    assert GEMM.bind((1, 2), {}) == [1, 2, None]
    assert GEMM.bind((1,), {"C": 3, "B": 2}) == [1, 2, 3]
    assert text(lambda: GEMM.bind((1, 2, 3, 4), {})) == f"error: gemm: 4 arguments were given, but it takes 3\n  hint: {SIGNATURE}"
    assert text(lambda: GEMM.bind((1,), {"D": 2})) == f"error: gemm: there is no argument 'D'\n  hint: {SIGNATURE}"
    assert text(lambda: GEMM.bind((1,), {"A": 2})) == "error: gemm: argument 'A' was given twice, by position and by name"
    assert text(lambda: GEMM.bind((1,), {})) == (
        f"error: gemm: argument 'B' is missing\n  hint: {SIGNATURE}; only arrays that the kernel writes and does not read may be left out"
    )
    assert "argument 'y' is missing" in text(lambda: SCALE.bind((1,), {"alpha": 1.0, "count": 1, "flag": 1, "at": 1}))


def test_an_output_whose_shape_does_not_follow():
    fill = Contract("fill", (ArrayArg("y", "f32", ("N",), (1,), "w"),), ("N",))
    assert text(lambda: fill.output_shape(0, {})) == (
        "error: fill: argument 'y' cannot be left out: N is the extent of no array that was given\n  hint: it is fill(y: f32[N])"
    )


def test_bytes_without_a_sign():
    fill = Contract("fill", (ScalarArg("value", "ui8"),), ("1",))
    assert fill.check_scalar(0, 255) == 255 and fill.check_scalar(0, np.uint8(3)) == 3
    for value in (256, -1):
        assert text(lambda value=value: fill.check_scalar(0, value)) == f"error: fill: value = {value} does not fit ui8, which holds 0 to 255"


def test_scalars():
    assert SCALE.check_scalar(2, 3) == 3.0 and isinstance(SCALE.check_scalar(2, 3), float)
    assert SCALE.check_scalar(2, np.float64(0.5)) == 0.5
    assert SCALE.check_scalar(3, np.int8(-5)) == -5
    assert SCALE.check_scalar(4, True) == 1
    assert SCALE.check_scalar(5, 2**40) == 2**40
    assert text(lambda: SCALE.check_scalar(2, "3")) == "error: scale: alpha is a str, but a number is required (f32)"
    assert text(lambda: SCALE.check_scalar(3, 1.5)) == "error: scale: count = 1.5 is a float, but an integer is required (i32)"
    assert text(lambda: SCALE.check_scalar(3, 2**31)) == (
        "error: scale: count = 2147483648 does not fit i32, which holds -2147483648 to 2147483647"
    )
    assert text(lambda: SCALE.check_scalar(2, 2**2000)) == "error: scale: alpha is an integer of 2001 bits, which no float holds (f32)"
    assert text(lambda: SCALE.check_scalar(4, 2)) == "error: scale: flag = 2 does not fit i1, which holds 0 to 1"


def test_grids_that_cannot_be_launched():
    assert text(lambda: SCALE.blocks({"N": 0})) == (
        "error: scale: the grid's coordinate 0 is N ceildiv 4 - 1 = -1, but 0 to 2147483647 is required\n  hint: with N = 0"
    )
    tall = Contract("tall", (ArrayArg("x", "f32", ("M", "N"), (None, 1), "r"),), ("M", "N"))
    assert text(lambda: tall.blocks({"M": 1, "N": 65536})) == (
        "error: tall: the grid's coordinate 1 is N = 65536, but 0 to 65535 is required\n  hint: with M = 1, N = 65536"
    )


def test_overlaps_count_where_one_is_written():
    spans = [(0, 100), (50, 150), (149, 200)]
    assert overlapping(GEMM, spans) == [(1, 2)]
    assert overlapping(GEMM, [(0, 100), None, (100, 200)]) == []
    assert overlapping(GEMM, [(0, 100), (300, 300), (10, 10)]) == []


def test_a_promise_of_noalias_is_checked():
    assert text(lambda: SCALE.check_noalias([(0, 1)])) == (
        "error: scale: y overlaps x in memory, but the program states that it is noalias\n  hint: pass a copy, or take the statement out"
    )
    GEMM.check_noalias([(0, 2)])


def test_the_contract_of_a_stored_plan():
    plan = LaunchPlan(
        "scale", "sm_80", SCALE.args, ("N",), SCALE.grid, (), 128, 0,
        requirements=(Requirement("align", "x", 32), Requirement("divisible", "N", 4), Requirement("max_dim", "N", 9)),
    )  # fmt: skip
    assert Contract.of_plan(LaunchPlan.from_json(plan.to_json())) == SCALE
