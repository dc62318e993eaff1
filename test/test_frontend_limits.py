"""Programs that would be compiled without end: errors at the expression that goes past a limit. In the notation of test_frontend_errors.py."""

# ruff: noqa
from __future__ import annotations

import math

import pytest
from wrong_kernels import WrongKernels
import tesela
from tesela import Array, f32

N = tesela.dims("N")
CASES = WrongKernels()
wrong = CASES.wrong


@wrong
def static_range_without_end(x: Array[f32, N]):
    for i in tesela.static_range(10**9):
    #        ^ tesela.static_range of more than 10000 trips, each of which would be compiled for itself -> use tesela.range
        x[i] = 0.0


@wrong
def unrolled_loops_without_end(x: Array[f32, N]):
    for i in tesela.static_range(200):
        for j in tesela.static_range(i):
        #        ^ unrolled loops have more than 10000 trips together, each of which would be compiled for itself -> make one of them a tesela.range
            assert j < 200


@wrong
def a_power_of_powers(x: Array[f32, N]):
    x[0] = x[0] * 9**9**9
    #             ^ '**' of the Python numbers 9 and 387420489 has more than 4096 bits


@wrong
def a_square_of_squares(x: Array[f32, N]):
    n = 3
    for i in tesela.static_range(60):
        n = n * n
        #   ^ '*' of the Python numbers of 3247 bits and of 3247 bits has more than 4096 bits
    x[0] = 0.0


@wrong
def a_long_power_of_the_builtin(x: Array[f32, N]):
    x[0] = x[0] * pow(9, 9**9)
    #             ^ '**' of the Python numbers 9 and 387420489 has more than 4096 bits


@wrong
def a_long_shift(x: Array[f32, N]):
    x[0] = x[0] * (1 << (1 << 40))
    #              ^ '<<' of the Python numbers 1 and 1099511627776 has more than 4096 bits


@wrong
def a_long_factorial(x: Array[f32, N]):
    x[0] = x[0] * math.factorial(10**9)
    #             ^ math.factorial multiplies 1000000000 numbers, more than 4096


@wrong
def a_tuple_twice_itself(x: Array[f32, N]):
    t = (1, 2)
    for i in tesela.static_range(60):
        t = t + t
        #   ^ a tuple or text of 16384 parts, more than 10000
    x[0] = 0.0


@pytest.mark.parametrize("function", CASES.kernels, ids=lambda function: function.__name__)
def test_wrong_kernel(function):
    CASES.check(function)


@tesela.kernel
def within_the_limits(x: Array[f32, N], C: tesela.constexpr):
    tesela.grid(1)
    assert 1 ** (10**9) == 1 and (-1) ** (10**9 + 1) == -1 and 0 << (1 << 40) == 0 and 2**4095 > 0 and math.comb(10**9, 2) > 0
    for i in tesela.static_range(100):
        for j in tesela.static_range(99):
            assert i + j < C


def test_what_is_within_the_limits_is_compiled():
    within_the_limits.trace(C=200)
