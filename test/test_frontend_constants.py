"""Constants that no type, place or variable of a kernel can take: long integers, places before an array, scalars for tiles that a loop carries.

As in test_frontend_errors.py, the line after the wrong one holds a caret, the message and the hint.
"""

# ruff: noqa
from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from wrong_kernels import WrongKernels
import tesela
from tesela import Array, f32, f64
from tesela.frontend.types import DTYPES

M, N = tesela.dims("M N")
LONG = 10**6000  # of more digits than Python spells
CASES = WrongKernels()
wrong = CASES.wrong


# --- Long integers ---


@wrong
def an_integer_past_all_floats(x: Array[f32, N]):
    x[0:4] = x[0:4] + 10**400
    #        ^ the number of 1329 bits is past the largest finite f32, 3.40282e+38


@wrong
def an_integer_past_f64(x: Array[f64, N]):
    x[0:4] = -(10**400)
    #        ^ the number of 1329 bits is past the largest finite f64, 1.79769e+308


@wrong
def an_integer_too_long_to_spell(x: Array[f32, N]):
    x[0] = x[LONG]
    #        ^ the number of 19932 bits does not fit index (-9223372036854775808 … 9223372036854775807)


@wrong
def a_quotient_of_long_integers(x: Array[f32, N]):
    x[0] = LONG / 3
    #      ^ '/' of the Python numbers of 19932 bits and 3: integer division result too large for a float


@wrong
def an_extent_too_long_to_spell(x: Array[f32, N]):
    x[0:4] = tesela.zeros((LONG,), f32)
    #                     ^ a tile has at most 1048576 elements, found 2^63 or more -> a block holds its tiles in registers, 256 KiB in all: take a smaller tile, in a loop


@wrong
def an_arange_too_long_to_spell(x: Array[f32, N]):
    x[0:4] = tesela.arange(LONG).to(f32)
    #        ^ a tile has at most 1048576 elements, found 2^63 or more -> a block holds its tiles in registers, 256 KiB in all: take a smaller tile, in a loop


# --- Places before an array ---


@wrong
def an_index_from_the_end(x: Array[f32, N], y: Array[f32, M, 4]):
    x[0] = y[0, -1]
    #           ^ the index -1 lies before the array: indices do not count from its end -> write 3


@wrong
def a_place_from_the_end(x: Array[f32, N]):
    x[-2] = 0.0
    # ^ the index -2 lies before the array: indices do not count from its end -> write N - 2


@wrong
def a_slice_from_the_end(x: Array[f32, N]):
    x[0:4] = x[-4:]
    #          ^ the slice -4: of x starts before the array: indices do not count from its end -> write N - 4; tesela.load and tesela.store take such a start: they read zeros, and write nothing, there


@wrong
def a_stored_slice_from_the_end(x: Array[f32, N], y: Array[f32, M, 2]):
    y[0, -4:60] = x[0:64]
    #    ^ the slice -4:60 of y starts before the array: indices do not count from its end -> tesela.load and tesela.store take such a start: they read zeros, and write nothing, there


@wrong
def an_updated_place_from_the_end(x: Array[f32, N]):
    tesela.atomic_add(x[-64:0], 1.0)
    #                   ^ the slice -64:0 of x starts before the array: indices do not count from its end -> write N - 64; tesela.load and tesela.store take such a start: they read zeros, and write nothing, there


# --- Scalars for tiles ---


@wrong
def loop_makes_a_scalar_of_a_tile(x: Array[f32, N]):
    v = x[0:4]
    for i in tesela.range(0, N, 4):
        v = (v + x[i : i + 4]).sum()
    #   ^ v is the tile f32[4] before the loop and the scalar f32 after a trip; a variable that a loop carries keeps its type and shape -> give the scalar a name of its own, or fill the tile with it: tesela.broadcast_to(x, (4,))
    x[0:4] = v


@wrong
def while_makes_a_scalar_of_a_tile(x: Array[f32, N]):
    v = x[0:4]
    while x[0] > 0.0:
        v = x[1]
    #   ^ v is the tile f32[4] before the loop and the scalar f32 after a trip; a variable that a loop carries keeps its type and shape -> give the scalar a name of its own, or fill the tile with it: tesela.broadcast_to(x, (4,))
    x[0:4] = v


@pytest.mark.parametrize("function", CASES.kernels, ids=lambda function: function.__name__)
def test_wrong_kernel(function):
    CASES.check(function)


# --- What stays right ---


@tesela.kernel
def padded(x: Array[f32, N], y: Array[f32, N]):
    y[0:64] = tesela.load(x, (-4,), (64,))


@tesela.kernel
def counted(x: Array[f32, N], y: Array[f32, N]):
    total = tesela.zeros((64,), f32)
    for i in tesela.range(0, N, 64):
        total = total + x[i : i + 64]
        if i == 64:
            total = 0.0
    y[0:64] = total


def test_explicit_loads_take_starts_before_the_array():
    x = np.arange(1, 65, dtype=np.float32)
    y = padded(x, device="sim")
    assert (y == np.concatenate([np.zeros(4), x[:60]])).all()


def test_a_number_fills_a_carried_tile():
    x = np.arange(192, dtype=np.float32)
    y = np.zeros(192, np.float32)
    counted(x, y, device="sim")
    assert (y[:64] == x[128:]).all()


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_a_copy_of_an_element_type_is_the_type(dtype):
    """What a pool of processes is given has been pickled; a second f32 would be cast to the first."""
    assert pickle.loads(pickle.dumps(dtype)) is copy.deepcopy(dtype) is copy.copy(dtype) is dtype
