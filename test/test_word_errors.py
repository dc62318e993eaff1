"""Wrong uses of single words: tiles of indices, atomic updates, pairs, packed elements, counts. As test_frontend_errors.py."""

# ruff: noqa
from __future__ import annotations

import pytest
import tesela
from tesela import Array, bf16, f16, f32, i8, i32, i64
from wrong_kernels import WrongKernels

M, N, K = tesela.dims("M N K")
CASES = WrongKernels()
wrong, values = CASES.wrong, CASES.values


# --- Tiles of indices ---


@wrong
def gathered_by_floats(x: Array[f32, N]):
    y = x[tesela.zeros((4,), f32)]
    #     ^ an index must be an integer, found the tile f32[4] -> convert it: x.to(tesela.i32)


@wrong
def gathered_by_a_mask(x: Array[f32, N]):
    y = x[x[0:16] > 0]
    #     ^ the tile i1[16] is no index -> load all, and choose with tesela.where(condition, x, y)


@wrong
def gathered_from_a_tile_of_starts(x: Array[f32, N]):
    t = tesela.arange(4)
    y = x[t : t + 4]
    #     ^ the start of a slice must be an index or an integer, found the tile i32[4] -> index by a tile of places: x[start + tesela.arange(16)]


@wrong
def indices_of_two_shapes(x: Array[f32, M, N]):
    y = x[tesela.arange(4), tesela.arange(8)]
    #   ^ indices: the shapes (4,) and (8,) do not broadcast -> aligned at the last dimension, extents must be equal or 1; x[:, None] adds a dimension


@wrong
def scattered_shape(x: Array[f32, N]):
    x[tesela.arange(4)] = tesela.zeros((3,), f32)
    #                     ^ a value of shape (3,) does not broadcast to the slice's shape (4,)


# --- Combining by a function ---


def plus(a, b):
    return a + b


def widens(a, b):
    return a.to(f32) + b.to(f32)


def of_three(a, b, c):
    return a


def branches(a, b):
    if a > b:
        return_value = a
    else:
        return_value = b
    return return_value


def of_pairs(left, right):
    return left[0] + right[0], left[1] + right[1]


def half_of_pairs(left, right):
    return left[0] + right[0]


@wrong
def combined_by_a_number(x: Array[f32, N]):
    y = tesela.reduce(3, x[0:16])
    #                 ^ tesela.reduce combines by a function of two elements, found the Python number 3 -> define one outside the kernel: def f(a, b): return …


@wrong
def combined_array(x: Array[f32, N]):
    y = tesela.reduce(plus, x)
    #                       ^ tesela.reduce takes a tile, found the array x -> load a tile of it first


@wrong
def combined_shapes(x: Array[f32, N]):
    y = tesela.associative_scan(of_pairs, (x[0:16], x[0:8]), 0)
    #   ^ tesela.associative_scan: the shapes (16,) and (8,) do not broadcast -> aligned at the last dimension, extents must be equal or 1; x[:, None] adds a dimension


@wrong
def combining_changes_the_type(x: Array[bf16, N]):
    y = tesela.associative_scan(widens, x[0:16], 0)
    #                           ^ widens gives f32 for the tile, which has elements of bf16 -> a combining function keeps the element types: convert with x.to(tesela.bf16) in it


@wrong
def combining_changes_a_type_of_several(x: Array[f32, N]):
    y = tesela.reduce(of_pairs_as_floats, (x[0:16], tesela.arange(16)))
    #                 ^ of_pairs_as_floats gives f32 for tile 1, which has elements of i32 -> a combining function keeps the element types: convert with x.to(tesela.i32) in it


def of_pairs_as_floats(left, right):
    return left[0], right[1].to(f32)


@wrong
def combining_gives_one_of_two(x: Array[f32, N]):
    y = tesela.reduce(half_of_pairs, (x[0:16], x[0:16]))
    #                 ^ half_of_pairs gives the scalar f32, tesela.reduce combines 2 tiles -> it takes two tuples of 2, and returns one: return a, b


@wrong
def combining_axis(x: Array[f32, N]):
    y = tesela.associative_scan(plus, x[0:16], 1)
    #                                          ^ axis 1 is outside the 1 dimension of the tile


@wrong
def exclusive_without_identity(x: Array[f32, N]):
    y = tesela.associative_scan(plus, x[0:16], 0, exclusive=True)
    #   ^ an exclusive scan needs the identity of its function, one -> give what changes nothing when it is combined: identity=0.0 of a sum, (1.0, 0.0) of (a, b) in a·h + b


@wrong
def identity_of_another_type(x: Array[i32, N]):
    y = tesela.associative_scan(plus, x[0:16], 0, exclusive=True, identity=0.5)
    #                                                                      ^ the Python number 0.5, a float, meets i32 -> convert the integer operand: x.to(f32)


@wrong
def identity_without_exclusive(x: Array[f32, N]):
    y = tesela.associative_scan(plus, x[0:16], 0, identity=0.0)
    #                                                      ^ identity is for exclusive scans -> write exclusive=True, or leave it out


@wrong
def reverse_at_run_time(x: Array[f32, N]):
    y = tesela.cumsum(x[0:16], 0, reverse=x[0] > 0)
    #                                     ^ reverse must be True or False, found the scalar i1


def test_a_combining_function_that_branches_is_shown_where_it_does():
    @tesela.kernel
    def combining_by_branches(x: Array[f32, N], y: Array[f32, 1]):
        y[0] = tesela.reduce(branches, x[0:16])

    with pytest.raises(tesela.TeselaError) as caught:
        combining_by_branches.trace()
    (found,) = caught.value.diagnostics
    assert (found.message, found.hint) == ("a conditional on elements in branches, which combines elements", "choose with tesela.where(condition, x, y)")
    assert found.location.line == branches.__code__.co_firstlineno + 1


def test_a_combining_function_takes_two():
    @tesela.kernel
    def combining_by_three(x: Array[f32, N], y: Array[f32, 1]):
        y[0] = tesela.reduce(of_three, x[0:16])

    with pytest.raises(tesela.TeselaError, match="of_three: missing a required argument: 'c'"):
        combining_by_three.trace()


# --- Prints and assertions ---


@wrong
def printed_array(x: Array[f32, N]):
    print("x", x)
#   ^ tesela.print takes texts, numbers, scalars and tiles, found the array x
    x[0] = 1.0


@wrong
def printed_with_options(x: Array[f32, N]):
    print(x[0], end="")
#   ^ tesela.print takes no keyword arguments
    x[0] = 1.0


@wrong
def asserted_float(x: Array[f32, N]):
    assert x[0]
    #      ^ a condition must be i1, found the scalar f32 -> compare it: x != 0


@wrong
def asserted_dimension(x: Array[f32, N]):
    assert N
    #      ^ the dimension N as a condition -> compare it: N > 0


@wrong
def asserted_value_as_message(x: Array[f32, N]):
    assert x[0] > 0, x[0]
    #                ^ the message of an assert must be a text known when compiling, found the scalar f32 -> print values with tesela.print


# --- Assumptions ---


@wrong
def assumed_range_of_a_dimension(x: Array[f32, N]):
    if True:
        tesela.assume(N <= 4096)
    #                 ^ of the dimension N a divisor can be assumed, and nothing else -> for a range write assert, or an if


@wrong
def assumed_expression(x: Array[f32, N], n: i32):
    tesela.assume((n + 1) % 8 == 0)
    #              ^ an assumption is about a variable or a dimension -> assign the value to a variable first


@wrong
def assumed_float(x: Array[f32, N]):
    v = x[0]
    tesela.assume(v >= 0)
    #             ^ an assumption is about a dimension or an integer scalar, found the scalar f32


@wrong
def assumed_relation(x: Array[f32, N], n: i32, m: i32):
    tesela.assume(n < m)
#   ^ tesela.assume states what a dimension or a variable is a multiple of, or the range of a variable -> write tesela.assume(K % 64 == 0), or tesela.assume(0 <= start < 4096)
    x[0] = 1.0


# --- Inline PTX ---


@wrong
def inline_unknown(x: Array[f32, N]):
    y = tesela.inline_ptx("sqrt.aprox.f32 $0, $1;", x[0:4], result=f32)
    #                     ^ unknown PTX instruction 'sqrt.aprox.f32': the table has no such form of 'sqrt'; nearest: sqrt.approx.f32, sqrt.approx.ftz.f32, sqrt.rz.f32


@wrong
def inline_memory(x: Array[f32, N]):
    y = tesela.inline_ptx("ld.global.b32 $0, [$1];", x[0:4], result=f32)
    #                     ^ 'ld.global.b32' has effects (read:global) -> inline PTX computes values of single elements from others; memory is loads and stores of arrays


@wrong
def inline_classes(x: Array[f16, N]):
    y = tesela.inline_ptx("neg.f32 $0, $1;", x[0:4], result=f32)
    #                     ^ 'neg.f32 $0, $1': $1 is b16, s:b32 is required


@wrong
def inline_without_result(x: Array[f32, N]):
    x[0:4] = tesela.inline_ptx("neg.f32 $0, $1;", x[0:4])
    #        ^ tesela.inline_ptx(text, *operands, result): the argument result is missing


@wrong
def inline_result_type(x: Array[f32, N]):
    y = tesela.inline_ptx("neg.f32 $0, $1;", x[0:4], result="f32")
    #                                                       ^ result must be an element type, or a tuple of some, found the string 'f32' -> write result=tesela.f32


@wrong
def inline_shapes(x: Array[f32, N]):
    y = tesela.inline_ptx("add.rn.f32 $0, $1, $2;", x[0:4], x[0:8], result=f32)
    #   ^ tesela.inline_ptx: the shapes (4,) and (8,) do not broadcast -> aligned at the last dimension, extents must be equal or 1; x[:, None] adds a dimension


# --- Pairs, packed elements, counts ---


@wrong
def split_of_no_pairs(x: Array[f32, N]):
    a, b = tesela.split(x[0:16])
    #                   ^ tesela.split takes a tile whose last dimension is 2, found the tile f32[16] -> reshape it: x.reshape(-1, 2)


@wrong
def join_of_two_types(x: Array[f32, N]):
    y = tesela.join(x[0:16], tesela.arange(16))
    #   ^ tesela.join of f32[16] and i32[16]: the element types differ -> convert one operand, as in x.to(f32), which may round


@wrong
def unpacked_floats(x: Array[f32, N]):
    y = tesela.unpack(x[0:16], "i4")
    #                 ^ tesela.unpack takes bytes, a tile of i8, found the tile f32[16]


@wrong
def unpacked_kind(x: Array[i8, N]):
    y = tesela.unpack(x[0:16], "i3")
    #                          ^ the packed type must be 'i4', 'u4', 'e2m1', found the string 'i3'


@wrong
def unpacked_to_integers(x: Array[i8, N]):
    y = tesela.unpack(x[0:16], "e2m1", i32)
    #                                  ^ e2m1 does not unpack to i32 -> unpack to tesela.f16


@wrong
def packed_floats(x: Array[f32, N]):
    y = tesela.pack(x[0:16], "i4")
    #               ^ tesela.pack takes integers, found the tile f32[16] -> convert them: x.to(tesela.i8)


@wrong
def packed_odd(x: Array[i8, N]):
    y = tesela.pack(x[0:15], "i4")
    #               ^ tesela.pack takes an even number of elements along the last dimension, found the tile i8[15]


@wrong
def counted_floats(x: Array[f32, N]):
    y = tesela.histogram(x[0:16], 8)
    #                    ^ tesela.histogram takes a tile of i32, found the tile f32[16] -> convert it: x.to(tesela.i32)


@wrong
def counted_in_unknown_bins(x: Array[i32, N]):
    y = tesela.histogram(x[0:16], N)
    #                             ^ a tile's extents must be known when compiling, found the dimension N -> use an integer or a tesela.constexpr parameter; a load past the edge of an array reads zeros


@wrong
def taken_by_floats(x: Array[f32, N]):
    y = tesela.take_along_axis(x[0:16], x[16:32], 0)
    #                                  ^ an index must be an integer, found the tile f32[16] -> convert it: x.to(tesela.i32)


@wrong
def taken_by_a_number(x: Array[f32, N]):
    y = tesela.take_along_axis(x[0:16], 3, 0)
    #                                   ^ tesela.take_along_axis takes a tile, found the Python number 3


@wrong
def taken_in_another_rank(x: Array[f32, M, N], i: Array[i32, N]):
    y = tesela.take_along_axis(x[0:4, 0:16], i[0:16], 1)
    #                                        ^ tesela.take_along_axis takes indices of as many dimensions as the tile, 2, found the tile i32[16] -> x[None] adds one


@wrong
def taken_along_no_axis(x: Array[f32, N], i: Array[i32, N]):
    y = tesela.take_along_axis(x[0:16], i[0:16], axis=1)
    #                                                 ^ axis 1 is outside the 1 dimension of the tile


@wrong
def taken_from_other_rows(x: Array[f32, M, N], i: Array[i32, M, N]):
    y = tesela.take_along_axis(x[0:4, 0:16], i[0:8, 0:16], 1)
    #                                        ^ tesela.take_along_axis: the shapes (4, 16) and (8, 16) do not broadcast but along axis 1


# --- Atomic updates ---


@wrong
def atomic_on_a_value(x: Array[f32, N]):
    t = x[0:16]
    tesela.atomic_add(t, 1.0)
    #                 ^ tesela.atomic_add takes a place in an array, found the tile f32[16] -> write tesela.atomic_add(x[i : i + 16], value)


@wrong
def atomic_on_an_array(x: Array[f32, N]):
    tesela.atomic_max(x, 1.0)
    #                 ^ tesela.atomic_max takes a place in an array, found the array x -> write tesela.atomic_max(x[i : i + 16], value)


@wrong
def atomic_on_new_dimensions(x: Array[f32, N]):
    t = x[0:16]
    tesela.atomic_max(t[:, None], 1.0)
    #                 ^ tesela.atomic_max takes a place in an array, found the tile f32[16, 1] -> write tesela.atomic_max(x[i : i + 16], value)


@wrong
def atomic_bits_of_floats(x: Array[f32, N]):
    tesela.atomic_or(x[0], 1.0)
    #                ^ tesela.atomic_or on the array x: 'or' is for integers, found f32


@wrong
def atomic_maximum_of_bf16(x: Array[bf16, N]):
    tesela.atomic_max(x[0:4], 1.0)
    #                 ^ tesela.atomic_max on the array x: 'max' of bf16 has no atomic form: f32 has, and for f16, bf16 and f64 only 'add'


@wrong
def atomic_on_bytes(x: Array[i8, N]):
    tesela.atomic_add(x[0:4], 1)
    #                 ^ tesela.atomic_add on the array x: 'add' of i8 has no atomic form: i32 and i64 have


@wrong
def atomic_of_another_type(x: Array[f32, N]):
    tesela.atomic_add(x[0:4], tesela.arange(4))
    #                         ^ the array x holds f32, the value is the tile i32[4] -> convert it: x.to(f32)


@wrong
def atomic_of_another_shape(x: Array[f32, N]):
    tesela.atomic_add(x[0:4], tesela.zeros((8,), f32))
    #                         ^ a value of shape (8,) does not broadcast to the slice's shape (4,)


@wrong
def atomic_without_a_value(x: Array[f32, N]):
    tesela.atomic_cas(x[0], 1.0)
#   ^ tesela.atomic_cas(place, expected, value): the argument value is missing
    x[0] = 1.0


@pytest.mark.parametrize("function", CASES.kernels, ids=lambda function: function.__name__)
def test_wrong_word(function):
    CASES.check(function)
