"""What is not in the kernel language: the exact message, at the very expression, with what to write instead.

Each kernel below is wrong in one place. The line after that place holds a caret under the first character of the expression, the message, and
(after ' -> ') the hint. `define` kernels are wrong in their signature, and fail when they are defined.
"""

# ruff: noqa
from __future__ import annotations

import math

import numpy as np
import pytest
from wrong_kernels import WrongKernels
import tesela
from tesela import Array, TeselaError, bf16, f16, f32, i8, i32, i64, index
from tesela.tools.sources import python_kernel

M, N, K = tesela.dims("M N K")
L = tesela.dims("L")
TABLE = np.zeros(4)
CASES = WrongKernels()
wrong, values = CASES.wrong, CASES.values


# --- Syntax that is not in the language ---


@wrong
def list_comprehension(x: Array[f32, N]):
    y = [i for i in (1, 2)]
    #   ^ a list comprehension is not in the kernel language -> write a loop over tesela.static_range, or operate on whole tiles


@wrong
def a_lambda(x: Array[f32, N]):
    f = lambda v: v + 1
    #   ^ a lambda is not in the kernel language -> define a function outside the kernel and call it


@wrong
def nested_function(x: Array[f32, N]):
    def helper(v):
#   ^ a nested function is not in the kernel language -> define it outside the kernel: functions that a kernel calls are inlined
        return v


@wrong
def a_try(x: Array[f32, N]):
    if N > 4:
        try:
    #   ^ try is not in the kernel language -> a kernel raises no exceptions; test with if
            x[0] = 1.0
        except ValueError:
            pass


@wrong
def a_with(x: Array[f32, N]):
    if N > 4:
        with open("f") as f:
        #    ^ Python's open is not in the kernel language -> pass arrays as arguments
            pass


@wrong
def a_break(x: Array[f32, N]):
    for i in tesela.range(N):
        if i > 3:
            break
    #       ^ break is not in the kernel language -> loop with while, with the condition in its head


@wrong
def a_class(x: Array[f32, N]):
    if True:
        class C:
    #   ^ a class is not in the kernel language -> use tuples
            pass


@wrong
def a_dict(x: Array[f32, N]):
    y = {"a": 1}
    #   ^ a dict is not in the kernel language -> use variables or a tuple


@wrong
def early_return(x: Array[f32, N]):
    i = tesela.grid(N)
    if i > 3:
        return
    #   ^ return inside a run-time conditional or loop -> assign to a variable there, and return it at the end of the function
    x[i] = 0.0


@wrong
def returned_value(x: Array[f32, N]):
    if True:
        return x[0:4]
    #   ^ a kernel returns nothing -> store results to an array argument: tesela.store(C, starts, value)


@wrong
def loop_else(x: Array[f32, N]):
    for i in tesela.range(N):
        x[i] = 0.0
    else:
        x[0] = 1.0
    #   ^ else after a loop is not in the kernel language -> write it after the loop


# --- Names ---


@wrong
def unknown_name(x: Array[f32, N]):
    block = x[0:4]
    y = blok + 1
    #   ^ the name blok is not defined -> did you mean block?


@wrong
def unknown_word(x: Array[f32, N]):
    y = tesela.lod(x, 0, 4)
    #   ^ the module tesela has no lod -> did you mean load or log?


@wrong
def word_not_imported(x: Array[f32, N]):
    y = zeros((4,), f32)
    #   ^ the name zeros is not defined -> write tesela.zeros, or import it


@wrong
def captured_array(x: Array[f32, N]):
    y = x[0:4] + TABLE
    #            ^ TABLE is of type ndarray, which a kernel cannot capture -> pass it as an argument of the kernel


@wrong
def undefined_after_if(x: Array[f32, N]):
    i = tesela.grid(N)
    if x[i] > 0:
        y = 1.0
    x[i] = y
    #      ^ y has no value where the condition of line {line - 2} does not hold -> assign it before the if, or in both branches


@wrong
def undefined_after_loop(x: Array[f32, N]):
    for i in tesela.range(N):
        y = x[i]
    x[0] = y
    #      ^ y gets its value inside the loop of line {line - 2}, which may run zero times -> assign it before the loop


@wrong
def loop_variable_after_loop(x: Array[f32, N]):
    for i in tesela.range(N):
        x[i] = 0.0
    x[i] = 1.0
    # ^ i is the variable of the loop of line {line - 2}, which may run zero times -> assign it before the loop


@wrong
def read_before_assigned(x: Array[f32, N]):
    x[0] = y
    #      ^ y is read before it is assigned
    y = 1.0


@wrong
def foreign_dimension(x: Array[f32, N]):
    i = tesela.grid(L)
    #   ^ the dimension L is the extent of no argument of the kernel -> the signature has N


# --- Types ---


@wrong
def mixed_floats(x: Array[bf16, N], y: Array[f32, N]):
    z = x[0:4] + y[0:4]
    #   ^ '+' of bf16[4] and f32[4]: the element types differ -> convert one operand, as in x.to(f32)


@wrong
def mixed_integers(x: Array[i32, N], y: Array[i64, N]):
    z = 1 + x[0:4] * y[0:4]
    #       ^ '*' of i32[4] and i64[4]: the element types differ -> convert one operand, as in x.to(i64)


@wrong
def float_meets_integer(x: Array[i32, N]):
    y = x[0:4] * 0.5
    #   ^ the Python number 0.5, a float, meets i32 -> convert the integer operand: x.to(f32)


@wrong
def dimension_meets_i32(x: Array[i32, N]):
    x[0] = N
    #      ^ i32 is required, found the dimension N, an index -> convert it, where it fits: tesela.i32(N)


@wrong
def tile_of_index(x: Array[f32, N]):
    y = tesela.zeros((4,), index)
    #                      ^ a tile of index is not in the language -> use i64


@wrong
def compared_tuples(x: Array[f32, N]):
    y = (x[0], 1) == (x[1], 1)
    #   ^ a comparison of values known only at run time -> compare the items of tuples one by one


@wrong
def numpy_function(x: Array[f32, N]):
    y = np.exp(x[0])
    #   ^ np.exp is of type ufunc, which a kernel cannot capture -> write tesela.exp


@wrong
def numpy_element_type(x: Array[f32, N]):
    y = x[0:4].to(np.float32)
    #             ^ np.float32 is of type type, which a kernel cannot capture -> write tesela.f32


@wrong
def captured_class(x: Array[f32, N]):
    y = x[0:4] + np.generic
    #            ^ np.generic is of type type, which a kernel cannot capture -> numbers, strings, dtypes and tuples can be captured


@wrong
def no_word(x: Array[f32, N]):
    y = tesela.relu(x[0:4])
    #   ^ the module tesela has no relu -> write tesela.maximum(x, 0)


@wrong
def integer_division(x: Array[i32, N]):
    y = x[0:4] / 2
    #   ^ '/' is not defined on i32 -> write x // y, or convert to a float: x.to(f32) / y


@wrong
def float_remainder(x: Array[f32, N]):
    y = x[0:4] % 2
    #   ^ '%' is not defined on f32 -> write x - tesela.floor(x / y) * y


@wrong
def boolean_arithmetic(x: Array[f32, N]):
    y = (x[0:4] > 0) + (x[0:4] > 1)
    #   ^ '+' is not defined on i1 -> convert first: x.to(i32); for logic use & | ^ ~


@wrong
def number_too_large(x: Array[i8, N]):
    y = x[0:4] + 300
    #   ^ the number 300 does not fit i8 (-128 … 127)


@wrong
def float_too_large(x: Array[f16, N]):
    y = tesela.full((4,), 1e6, f16)
    #   ^ the number 1000000.0 is past the largest finite f16, 65504


@wrong
def integer_exponential(x: Array[i32, N]):
    y = tesela.exp(x[0:4])
    #   ^ 'exp' is not defined on i32 -> convert first: x.to(f32)


@wrong
def run_time_power(x: Array[f32, N]):
    y = x[0:4] ** x[0:4]
    #   ^ '**' with the tile f32[4] as exponent -> an exponent is an integer from 0 to 16, 0.5 or -0.5, known when compiling; use tesela.exp2(y * tesela.log2(x))


@wrong
def stored_type(x: Array[f32, N], y: Array[bf16, N]):
    y[0:4] = x[0:4]
    #        ^ the array y holds bf16, the value is the tile f32[4] -> convert it: x.to(bf16)


@wrong
def stored_type_by_word(x: Array[f32, N], y: Array[bf16, N]):
    tesela.store(y, 0, x[0:4])
    #                  ^ the array y holds bf16, the value is the tile f32[4] -> convert it: x.to(bf16)


@wrong
def full_without_dtype(x: Array[f32, N]):
    y = tesela.full((4,), 1.0)
    #   ^ tesela.full needs the element type of the Python number 1.0 -> write tesela.full(shape, value, f32)


@wrong
def branch_types(x: Array[f32, N], y: Array[i32, N]):
    i = tesela.grid(N)
    if i > 2:
#   ^ v is the scalar f32 where the condition holds (line {line + 2}), and the scalar i32 where it does not (line {line + 4}) -> both branches must leave one type and shape: convert with x.to(…) or tesela.broadcast_to
        v = x[i]
    else:
        v = y[i]
    x[i] = v


@wrong
def ternary_types(x: Array[f32, N]):
    i = tesela.grid(N)
    v = x[i] if i > 2 else x[0:4]
    #   ^ the conditional expression is the scalar f32 or the tile f32[4] -> both must have one type and shape: convert with x.to(…) or tesela.broadcast_to


@wrong
def loop_changes_type(x: Array[f32, N]):
    v = x[0:4]
    for i in tesela.range(N):
        v = v.to(bf16)
    #   ^ v is the tile f32[4] before the loop and the tile bf16[4] after a trip; a variable that a loop carries keeps its type and shape -> convert with x.to(…) where it is assigned, or start with a value of the type it gets
    x[0:4] = v.to(f32)


@wrong
def loop_grows_a_tile(x: Array[f32, N]):
    v = 0.0
    for i in tesela.range(0, N, 4):
        v = v + x[i : i + 4]
    #   ^ v is the Python number 0.0 before the loop and the tile f32[4] after a trip; a variable that a loop carries keeps its type and shape -> start with tesela.full((4,), 0.0, tesela.f32)
    x[0:4] = v


# --- Conditions ---


@wrong
def tile_as_condition(x: Array[f32, N]):
    if x[0:4] > 0:
    #  ^ a condition must be a scalar, found the tile i1[4] -> choose elementwise with tesela.where(condition, x, y); combine with & | ~
        x[0] = 1.0


@wrong
def float_as_condition(x: Array[f32, N]):
    while x[0]:
    #     ^ a condition must be i1, found the scalar f32 -> compare it: x != 0
        x[0] = 0.0


@wrong
def tile_in_and(x: Array[f32, N]):
    y = N > 2 and x[0:4] > 0
    #             ^ a condition must be a scalar, found the tile i1[4] -> choose elementwise with tesela.where(condition, x, y); combine with & | ~


@wrong
def endless_loop(x: Array[f32, N]):
    while 1 < 2:
    #     ^ the condition always holds: the loop never ends -> compare something that the body changes
        x[0] = 0.0


@wrong
def chained_tiles(x: Array[f32, N]):
    y = 0 < x[0:4] < 1
    #   ^ a chain of comparisons of tiles -> write (a < b) & (b < c)


@wrong
@values(BLOCK=24)
def failed_assert(x: Array[f32, N], BLOCK: tesela.constexpr):
    assert BLOCK % 16 == 0, "BLOCK must be a multiple of 16"
    #      ^ assertion failed: BLOCK must be a multiple of 16


# --- Shapes ---


@wrong
def broadcast_mismatch(x: Array[f32, M, N]):
    y = 2 * (x[0:4, 0:8] + x[0:8, 0:4])
    #        ^ '+': the shapes (4, 8) and (8, 4) do not broadcast -> aligned at the last dimension, extents must be equal or 1; x[:, None] adds a dimension


@wrong
def stored_shape(x: Array[f32, M, N]):
    x[0:4, 0:8] = x[0:8, 0:8]
    #             ^ a value of shape (8, 8) does not broadcast to the slice's shape (4, 8)


@wrong
def run_time_extent(x: Array[f32, N]):
    y = tesela.zeros((4, N), f32)
    #                ^ a tile's extents must be known when compiling, found the dimension N -> use an integer or a tesela.constexpr parameter; a load past the edge of an array reads zeros


@wrong
def whole_dynamic_array(x: Array[f32, M, N]):
    y = x[0:4, :]
    #          ^ the extent of the slice : of x is not known when compiling -> write start : start + SIZE with a constant SIZE; past the edge of the array a load reads zeros


@wrong
def slice_of_a_narrowed_index(x: Array[f32, N], at: index):
    y = x[i32(at) : i32(at + 8)]
    #     ^ the extent of the slice i32(at):i32(at + 8) of x is not known when compiling -> write start : start + SIZE with a constant SIZE; past the edge of the array a load reads zeros


@wrong
def slice_with_step(x: Array[f32, N]):
    y = x[0:8:2]
    #         ^ a slice of an array has no step -> load the whole range, or state strides in the signature


@wrong
def empty_slice(x: Array[f32, N]):
    y = x[8:8]
    #       ^ the slice 8:8 of x has the extent 0


@wrong
def too_few_indices(x: Array[f32, M, N]):
    y = x[0:4]
    #   ^ the array x has 2 dimensions, found 1 index -> give an index or a slice for each dimension


@wrong
def too_few_starts(x: Array[f32, M, N]):
    y = tesela.load(x, (0,), (4, 4))
    #                  ^ the array x has 2 dimensions, found 1 start -> give the element index where the tile starts for each dimension of the array


@wrong
def sliced_tile(x: Array[f32, N]):
    t = x[0:16]
    y = t[0:4]
    #     ^ a tile can be indexed by ':' and None only -> slice the array when loading: A[i : i + 16, j : j + 16]


@wrong
def assigned_tile(x: Array[f32, N]):
    t = x[0:16]
    if True:
        t[0:4] = 1.0
    #   ^ the tile f32[16] cannot be assigned to by slices -> a tile is a value: make a new one with tesela.where


@wrong
def bad_reshape(x: Array[f32, N]):
    y = tesela.reshape(x[0:16], (3, 5))
    #                           ^ a tile of shape (16,) has 16 elements, (3, 5) has 15


@wrong
def axis_out_of_range(x: Array[f32, N]):
    y = x[0:16].sum(axis=1)
    #                    ^ axis 1 is outside the 1 dimension of the tile


@wrong
def reduced_array(x: Array[f32, N]):
    y = tesela.max(x)
    #              ^ tesela.max takes a tile, found the array x -> load a tile of it first


@wrong
def dot_not_transposed(x: Array[bf16, M, K]):
    y = x[0:16, 0:32] @ x[0:16, 0:32]
    #   ^ a dot of shapes (16, 32) and (16, 32): M×K and K×N are required -> the columns of the left operand and the rows of the right one must be equal; transpose the right one: b.T


@wrong
def dot_accumulator(x: Array[bf16, M, K]):
    acc = tesela.zeros((16, 16), bf16)
    acc = tesela.dot(x[0:16, 0:32], x[0:16, 0:32].T, acc)
    #                                                ^ the accumulator must be f32[16, 16], found the tile bf16[16, 16] -> start with tesela.zeros((16, 16), tesela.f32)


@wrong
def dot_of_integers(x: Array[i32, M, K]):
    y = x[0:16, 0:16] @ x[0:16, 0:16]
    #   ^ a dot of i32 is not in the language -> convert to one of f16, bf16, f8E4M3FN, f8E5M2, i8, ui8, f32, f64


# --- Calls ---


@wrong
def unknown_keyword(x: Array[f32, N]):
    y = tesela.load(x, 0, 4, fil=1.0)
    #                            ^ tesela.load(array, starts, shape=(), *, fill=None, dims=None) has no argument fil -> did you mean fill?


@wrong
def missing_argument(x: Array[f32, N]):
    y = tesela.where(x[0:4] > 0, x[0:4])
    #   ^ tesela.where(condition, x, y): the argument y is missing


@wrong
def unknown_attribute(x: Array[f32, N]):
    y = x[0:4].shap
    #   ^ the tile f32[4] has no attribute shap -> did you mean shape?


@wrong
def no_method(x: Array[f32, N]):
    y = x[0:4].mean()
    #   ^ the tile f32[4] has no attribute mean -> write x.sum(axis) / n, with the number of elements that are inside of the array


@wrong
def unlike_any_method(x: Array[f32, N]):
    y = x[0:4].quux()
    #   ^ the tile f32[4] has no attribute quux -> it has shape, dtype, ndim, T, to, astype, sum, prod, max, min, argmax, argmin, reshape, transpose


@wrong
def softmax_is_no_slip_of_max(x: Array[f32, N]):
    y = tesela.softmax(x[0:4])
    #   ^ the module tesela has no softmax -> write e = tesela.exp(x - x.max(axis)) and e / e.sum(axis), with the reduced dimension put back by keepdims or [:, None]


@wrong
def a_mask(x: Array[f32, N]):
    y = tesela.load(x, 0, 4, mask=True)
    #                             ^ tesela.load(array, starts, shape=(), *, fill=None, dims=None) has no argument mask -> past the edge of the array a load reads fill=… and a store writes nothing; other elements choose with tesela.where


@wrong
def break_of_an_endless_loop(x: Array[f32, N]):
    k = 0
    while True:
        if k > N:
            break
    #       ^ break is not in the kernel language -> loop with while, with the condition in its head
        k += 1


@wrong
def lossless_conversion_for_a_dot(x: Array[i8, M, N], y: Array[bf16, M, N]):
    z = x[0:16, 0:16] @ y[0:16, 0:16]
    #   ^ the operands of a dot must have one element type, found i8 and bf16 -> convert one operand, as in x.to(bf16)


@wrong
def both_operands_must_be_converted(x: Array[f16, N], y: Array[bf16, N]):
    z = x[0:4] + y[0:4]
    #   ^ '+' of f16[4] and bf16[4]: the element types differ -> convert both operands, as in x.to(f32)


@wrong
def newaxis_in_a_store(x: Array[f32, N]):
    x[0:4, None] = 1.0
#   ^ None adds a dimension to a tile that is loaded, not to a place in an array -> reshape the value that is stored
    y = x[0:4]


@wrong
def word_as_method(x: Array[f32, N]):
    y = x[0:4].exp()
    #   ^ the tile f32[4] has no attribute exp -> write tesela.exp


@wrong
def math_at_run_time(x: Array[f32, N]):
    y = math.exp(x[0])
    #   ^ math.exp takes compile-time values, found the scalar f32 -> write tesela.exp


@wrong
def python_float(x: Array[i32, N]):
    y = float(x[0])
    #   ^ Python's float takes compile-time values, found the scalar i32 -> use x.to(…) to convert


@wrong
def tile_too_large(x: Array[f32, N]):
    y = tesela.zeros((1024, 1024), f32)
    z = tesela.zeros((1024, 1025), f32)
    #   ^ a tile has at most 1048576 elements, found 1049600 -> a block holds its tiles in registers, 256 KiB in all: take a smaller tile, in a loop


@wrong
def static_range_at_run_time(x: Array[f32, N]):
    for i in tesela.static_range(N):
    #        ^ the bounds of tesela.static_range must be known when compiling, found the dimension N -> use tesela.range
        x[i] = 0.0


@wrong
def a_shadow_of_the_module(x: Array[f32, N]):
    tesela = x[0:4]
    x[0:4] = tesela.zeros((4,), f32)
    #        ^ the tile f32[4] has no attribute zeros -> a variable is called tesela here: give it another name


@wrong
def text_with_values(x: Array[f32, N]):
    print(f"N = {N}")
    #     ^ an f-string is not in the kernel language -> print takes text and values as arguments: print('n =', n)


@wrong
def loop_over_tile(x: Array[f32, N]):
    for v in x[0:4]:
    #        ^ a loop runs over tesela.range, tesela.static_range or a tuple, found the tile f32[4]
        x[0] = v


@wrong
def negative_step(x: Array[f32, N]):
    for i in tesela.range(N, 0, -1):
    #        ^ the step of tesela.range must be positive, found -1 -> to count down, loop upward and use stop - 1 - i
        x[i] = 0.0


@wrong
def run_time_grid(x: Array[f32, N], n: index):
    i = tesela.grid(n // 4)
    #   ^ an extent of the grid is an integer or an expression of dimensions, found the scalar index -> compute it from the dimensions of the signature: tesela.ceildiv(M, 128)


@wrong
def second_grid(x: Array[f32, N]):
    i = tesela.grid(N)
    j = tesela.grid(N)
    #   ^ the grid is declared a second time -> call tesela.grid once


@wrong
def unpacking(x: Array[f32, M, N]):
    if True:
        i, j, k = tesela.grid(M, N)
    #   ^ 2 values are unpacked into 3 variables


@tesela.kernel
def another(x: Array[f32, N]):
    x[0] = 0.0


@wrong
def kernel_in_kernel(x: Array[f32, N]):
    if True:
        another(x)
    #   ^ another is a kernel; a kernel cannot call one -> share code as a plain function


@pytest.mark.parametrize("function", CASES.kernels, ids=lambda function: function.__name__)
def test_wrong_kernel(function):
    CASES.check(function)


# --- Errors inside helpers ---


def halve(v):
    return v / 2


def inner(v):
    return halve(v) + 1


def forever(v):
    return forever(v)


@tesela.kernel
def helper_error(x: Array[i32, N]):
    x[0:4] = inner(x[0:4])


def test_an_error_in_a_helper_names_the_calls():
    with pytest.raises(TeselaError) as caught:
        helper_error.trace()
    (found,) = caught.value.diagnostics
    assert found.message == "'/' is not defined on i32"
    assert found.location.line == halve.__code__.co_firstlineno + 1
    assert [note.message for note in found.notes] == ["in halve, called here", "in inner, called here"]
    lines = [inner.__code__.co_firstlineno + 1, helper_error.function.__code__.co_firstlineno + 2]
    assert [note.location.line for note in found.notes] == lines


@tesela.kernel
def recursive(x: Array[f32, N]):
    x[0] = forever(x[0])


@pytest.mark.parametrize(("links", "error"), [(100, None), (101, "conditionals and loops are nested more than 100 deep")])
def test_long_chains_of_elif(tmp_path, links, error):
    path = tmp_path / "chain.py"
    branches = "".join(f"    {'elif' if i else 'if'} i == {i}:\n        y = {i}.0\n" for i in range(links))
    path.write_text("import tesela\nfrom tesela import Array, f32\n\n\n@tesela.kernel\ndef chain(x: Array[f32, 'N']):\n"
                    f"    i = tesela.grid(1)\n    y = -1.0\n{branches}    x[i] = y\n")
    kernel = python_kernel(path, "chain")
    if error is None:
        assert kernel.ir().count("scf.if") == links
        return
    with pytest.raises(TeselaError, match=error):
        kernel.trace()


def test_recursion_ends():
    with pytest.raises(TeselaError, match="forever calls itself, or calls are nested deeper than 50") as caught:
        recursive.trace()
    assert [note.message for note in caught.value.diagnostics[0].notes] == ["in forever, called here, 49 times", "in forever, called here"]


# --- Signatures ---


SIGNATURES = [
    ("x", "the parameter x has no type", 7),
    ("x: Array[f32, N], *rest", "a kernel has no * or ** parameters", 26),
    ("x: int", "the type of x must be an Array[…], an element type (f16, bf16, f32, f64, f8E4M3FN, f8E5M2, i1, i8, i16, i32, i64, ui8, index) or tesela.constexpr, found int", 7),
    ("x: Array[f32, Q]", "the type of x cannot be read: name 'Q' is not defined", 7),
    ("x: Array[N, f32]", "an array's annotation starts with its element type, found N", 7),
    ("x: Array[()]", "an array's annotation starts with its element type, found None", 7),
    ("x: Array[f32]", "an array's annotation states one extent for each dimension", 7),
    ("x: Array[f32, 1.5]", "an array's extent is an integer, a dimension or the text of one, found 1.5", 7),
    ("x: Array[f32, 'N +']", "dimension expression 'N +' ends too early", 7),
    ("x: Array[f32, M, N, tesela.strides(1)]", "strides(1) must state one stride, a number or None, for each of the 2 dimensions", 7),
    ("x: Array[f32, N, tesela.align(3)]", "align(3): the alignment must be a power of two from 1 to 256", 7),
    ("x: Array[f32, N] = None", "the array x cannot have a default", 7),
    ("x: Array[f32, N], N: i32", "N is a parameter and a dimension", 25),
    ("x: Array['T', N], T: f32", "T is a parameter and a type variable", 25),
]


@pytest.mark.parametrize(("parameters", "message", "column"), SIGNATURES, ids=[s[0] for s in SIGNATURES])
def test_wrong_signature(parameters, message, column, tmp_path):
    path = tmp_path / "kernels.py"
    path.write_text(f"def f({parameters}):\n    pass\n")
    scope = dict(globals())
    exec(compile("from __future__ import annotations\n" + path.read_text(), str(path), "exec"), scope)
    path.write_text("from __future__ import annotations\n" + path.read_text())
    with pytest.raises(TeselaError) as caught:
        tesela.kernel(scope["f"])
    (found,) = caught.value.diagnostics
    assert found.message == message
    assert (found.location.file, found.location.line, found.location.column) == (str(path), 2, column)


def test_an_annotation_that_is_no_text_is_placed_where_it_is_evaluated():
    with pytest.raises(TeselaError) as caught:
        Array[f32, N, tesela.align(5)]
    assert "tesela.align(5)]\n" in str(caught.value) and caught.value.diagnostics[0].location.file == __file__


@tesela.kernel
def stray_dimension(x: Array[f32, N + 1]):
    x[0] = 0.0


def test_a_dimension_must_be_the_extent_of_an_argument():
    with pytest.raises(TeselaError, match="the dimension N is the extent of no argument: its value cannot be known at launch"):
        stray_dimension.trace()


# --- Compile-time values, and words outside kernels ---


@tesela.kernel
def constants(x: Array["T", N], BLOCK: tesela.constexpr):
    x[0:BLOCK] = x[0:BLOCK]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"T": f32}, "constants: the compile-time parameter BLOCK has no value"),
        ({"BLOCK": 4}, "constants: the type variable T needs an element type, found no value"),
        ({"T": f32, "BLOK": 4}, "constants has no compile-time parameter BLOK"),
        ({"T": f32, "BLOCK": [4]}, "constants: BLOCK cannot be a compile-time value: [4]"),
    ],
)
def test_compile_time_values(values, message):
    with pytest.raises(TeselaError) as caught:
        constants.trace(**values)
    assert caught.value.diagnostics[0].message == message


def test_a_word_is_no_compile_time_value():
    with pytest.raises(TeselaError) as caught:
        constants.trace(T=f32, BLOCK=tesela.exp)
    assert caught.value.diagnostics[0].message == "constants: BLOCK cannot be a compile-time value: tesela.exp"
    assert caught.value.diagnostics[0].hint == "wrap the word in a function: def exp(x): return tesela.exp(x)"


def test_words_have_no_meaning_outside_kernels():
    for call in (lambda: tesela.load(None, 0), lambda: f32(1.0), lambda: tesela.function(halve)(1)):
        with pytest.raises(TeselaError, match="has a meaning inside a kernel only") as caught:
            call()
        assert caught.value.diagnostics[0].location.file == __file__


def test_what_only_the_compiled_kernel_has():
    with pytest.raises(AttributeError, match=r"the kernel another has no attribute 'ptx'; the compiled kernel has it: another.compile\(\).ptx"):
        _ = another.ptx
    with pytest.raises(AttributeError, match="the kernel another has no attribute 'pxt'$"):
        _ = another.pxt


def test_a_decorator_with_parentheses():
    with pytest.raises(TeselaError, match="hint: write @tesela.kernel, without parentheses"):
        tesela.kernel()


def test_a_call_with_a_misspelt_name():
    with pytest.raises(TeselaError, match="has no parameter BLOK\n.*\n.*\n  hint: did you mean BLOCK?"):
        misspelt(BLOK=64)


@tesela.kernel
def misspelt(x: Array[f32, N], BLOCK: tesela.constexpr = 64):
    x[0:BLOCK] = 0.0


def test_a_function_without_source():
    scope = dict(globals())
    exec("def f(x: Array[f32, N]):\n    x[0] = 0.0\n", scope)
    with pytest.raises(TeselaError, match="the source of f cannot be read") as caught:
        tesela.kernel(scope["f"]).trace()
    assert caught.value.diagnostics[0].hint == "define it in a file or a notebook cell: a kernel is compiled from its source text"


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"variant": []}, "did you mean variants?"),
        ({"num_warps": 4}, r"write variants=\[\{'warps': 8\}\]"),
        ({"xyzzy": 4}, "it has flops, nbytes, variants"),
    ],
)
def test_an_argument_that_the_decorator_does_not_have(given, hint):
    with pytest.raises(TeselaError, match=f"test_frontend_errors.py:\\d+:\\d+: error: @tesela.kernel has no argument {next(iter(given))}\n(.*\n)*  hint: {hint}"):
        tesela.kernel(**given)


def test_hints_of_conversions_lose_nothing_where_they_can():
    """Of all pairs: what the hint names holds every number of both, or it says that it rounds; checked on random bits of both types."""
    from tesela.frontend.hints import conversion
    from tesela.frontend.types import DTYPES
    from tesela.simulator.tile_arithmetic import cast, dtype_named

    rng = np.random.default_rng(0)
    kinds = [dtype for dtype in DTYPES.values() if dtype.kind in ("float", "int")]
    for a in kinds:
        for b in kinds:
            if a is b:
                continue
            said = conversion(a, b)
            wide = dtype_named(said.partition("x.to(")[2].partition(")")[0])
            for narrow in (dtype_named(a.name), dtype_named(b.name)):
                bits = rng.integers(0, 256, (400, narrow.itemsize), np.uint8).view(narrow)[:, 0]
                with np.errstate(all="ignore"):
                    there = cast(bits, wide)
                    same = (there.astype(np.float64) == bits.astype(np.float64)) | (bits != bits)
                if "may round" not in said and {a.kind, b.kind} != {"int"}:
                    assert same.all(), (a.name, b.name, said)
