"""Matrices over F2 and bank conflicts, against tables: every answer of elimination is also found by listing."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tesela.dialects.layout import (
    LayoutError,
    LinearLayout,
    Mode,
    SharedLayout,
    Swizzle,
    TVLayout,
    bank_conflicts,
    best_swizzle,
    common_vector,
    lanes_per_wavefront,
)
from tesela.dialects.linear_layout import rank, reduced_basis

check = settings(deadline=None, max_examples=80)


@st.composite
def matrices(draw: st.DrawFn, out_bits: int | None = None) -> LinearLayout:
    bits = draw(st.integers(1, 5)) if out_bits is None else out_bits
    return LinearLayout(tuple(draw(st.lists(st.integers(0, 2**bits - 1), min_size=1, max_size=6))), bits)


@check
@given(matrices())
def test_rank_kernel_and_solve_match_the_table(a: LinearLayout) -> None:
    table = [a.apply(x) for x in range(2**a.in_bits)]
    assert len(set(table)) == 2**a.rank
    kernel = {0}
    for k in a.kernel():
        assert k not in kernel
        kernel |= {x ^ k for x in kernel}
    assert kernel == {x for x, y in enumerate(table) if y == 0}
    for y in range(2**a.out_bits):
        x = a.solve(y)
        assert (x is not None) == (y in table) and (x is None or table[x] == y)
    assert all(table[x ^ y] == table[x] ^ table[y] for x, y in product(range(len(table)), range(min(8, len(table)))))


@check
@given(st.data())
def test_compose_and_inverses(data: st.DataObject) -> None:
    inner = data.draw(matrices())
    columns = data.draw(st.lists(st.integers(0, 15), min_size=inner.out_bits, max_size=inner.out_bits))
    outer = LinearLayout(tuple(columns), 4)
    both = outer.compose(inner)
    assert all(both.apply(x) == outer.apply(inner.apply(x)) for x in range(2**inner.in_bits))
    if inner.rank == inner.out_bits:
        right = inner.right_inverse()
        assert all(inner.apply(right.apply(y)) == y for y in range(2**inner.out_bits))
    else:
        with pytest.raises(LayoutError, match="does not reach"):
            inner.right_inverse()
    if inner.rank == inner.out_bits == inner.in_bits:
        assert inner.invert() == inner.right_inverse() and inner.invert().invert() == inner
    else:
        with pytest.raises(LayoutError, match="not invertible"):
            inner.invert()


@check
@given(st.lists(st.integers(0, 255), max_size=6))
def test_reduced_basis_spans_the_same(vectors: list[int]) -> None:
    def span(of: list[int]) -> set[int]:
        out = {0}
        for v in of:
            out |= {x ^ v for x in out}
        return out

    basis = reduced_basis(vectors)
    assert span(basis) == span(vectors) and len(span(basis)) == 2 ** len(basis) == 2 ** rank(vectors)
    assert len({v.bit_length() for v in basis}) == len(basis)


def deal(draw: st.DrawFn, shape: tuple[int, ...], primes: tuple[int, ...] = (2,)) -> list[Mode]:
    """The digits of a tile, in a random order: 2s (and 3s) of each extent."""
    digits: list[Mode] = []
    for d, n in enumerate(shape):
        stride = 1
        for p in primes:
            while n % p == 0:
                digits.append(Mode(p, tuple(stride * (i == d) for i in range(len(shape)))))
                stride, n = stride * p, n // p
    return draw(st.permutations(digits))


@st.composite
def copies(draw: st.DrawFn, linear: bool) -> tuple[TVLayout, SharedLayout, int, int]:
    """A register tile, a buffer that holds it, the element's bytes and a vector's bytes that both sides allow."""
    element = draw(st.sampled_from([1, 2, 4, 8]))
    extents = [4, 8, 16, 32] if linear else [4, 6, 12, 24, 32]
    shape = draw(st.tuples(st.sampled_from(extents), st.sampled_from(extents)))
    digits = deal(draw, shape, (2,) if linear else (2, 3))
    if draw(st.booleans()):  # make a vector likely: the fastest digits of a row become the first values
        vector = [m for m in sorted(digits, key=lambda m: m.stride) if m.stride[0] == 0][: draw(st.integers(1, 3))]
        digits = vector + [m for m in digits if m not in vector]
    copies_ = draw(st.sampled_from([1, 1, 2]))
    values = draw(st.integers(0, len(digits)))
    tail = digits[values:]
    thread = (*tail[:2], Mode(copies_, (0, 0)), *tail[2:])
    registers = TVLayout(thread, tuple(digits[:values])).normalized()
    order = draw(st.sampled_from([(1, 0), (0, 1)]))
    if draw(st.booleans()):
        shared = SharedLayout.row_major(shape, 0 if linear else draw(st.sampled_from([0, 1, 4, 8])), order)
    else:  # rows cut into spans that follow one another, as TMA boxes do
        inner, outer = shape[order[0]], shape[order[1]]
        span = draw(st.sampled_from([n for n in (2, 3, 4, 8) if inner % n == 0]))
        dims = [((span, 1), (inner // span, span * outer)), ((outer, span),)]
        shared = SharedLayout((dims[order.index(0)], dims[order.index(1)]))
    swizzle = draw(st.none() | st.builds(Swizzle, st.integers(1, 3), st.integers(0, 4), st.integers(3, 5)))
    shared = SharedLayout(shared.modes, swizzle).normalized()
    _, widest = common_vector(registers, shared)
    widths = [w for w in (1, 2, 4, 8, 16) if widest % w == 0 and w * element <= 16]
    return registers, shared, element, draw(st.sampled_from(widths)) * element


def wavefronts_by_definition(registers: TVLayout, shared: SharedLayout, element: int, vector: int) -> int:
    """List every warp-wide access: in each group of lanes, the most different words that one bank has to serve."""
    per_vector = vector // element
    group = {1: 32, 2: 32, 4: 32, 8: 16, 16: 8}[vector]
    worst = 0
    for v0 in range(0, registers.num_values, per_vector):
        for warp in range(0, registers.num_threads, 32):
            total = 0
            lanes = range(warp, min(warp + 32, registers.num_threads))
            for start in range(0, len(lanes), group):
                in_bank: dict[int, set[int]] = {}
                for t in lanes[start : start + group]:
                    for v in range(v0, v0 + per_vector):
                        byte = shared.offset(registers.coords(t, v)) * element
                        for b in range(byte, byte + element):
                            in_bank.setdefault(b // 4 % 32, set()).add(b // 4)
                total += max(map(len, in_bank.values()))
            worst = max(worst, total)
    return worst


@pytest.mark.parametrize("linear", [True, False])
def test_bank_conflicts_match_the_definition(linear: bool) -> None:
    seen: set[int] = set()

    @settings(deadline=None, max_examples=200, derandomize=True)
    @given(copies(linear))
    def property_(case: tuple[TVLayout, SharedLayout, int, int]) -> None:
        registers, shared, element, vector = case
        if linear:
            LinearLayout.of_registers(registers, shared.shape())  # must not raise: this is the path by rank
            LinearLayout.of_shared(shared)
        expected = wavefronts_by_definition(*case)
        seen.add(expected)
        assert bank_conflicts(registers, shared, element, vector) == expected

    property_()
    wide = TVLayout.parse("thread [8:(1,0), 4:(0,8), 4:(8,0)], value [8:(0,1), 6:(0,32), 2:(32,0)]")
    for shared in (SharedLayout.tma((64, 192), 2, 128, (1, 0)), SharedLayout.row_major((64, 192), pad=8)):
        assert bank_conflicts(wide, shared, 2, 16) == wavefronts_by_definition(wide, shared, 2, 16) == 4
    assert len(seen) > 3  # the examples do conflict in different ways


def test_bank_conflicts_of_known_accesses() -> None:
    rows = TVLayout.parse("thread [32:(1,0)], value [8:(0,1)]")
    flat = SharedLayout.row_major((32, 64))
    swizzled = SharedLayout.tma((32, 64), 2, 128, (1, 0))
    assert bank_conflicts(rows, flat, 2, 16) == 32  # a 16-byte column of 128-byte rows: 8 ways, 4 wavefronts
    assert bank_conflicts(rows, swizzled, 2, 16) == 4
    # A padded pitch of 72 is no power of two: no matrix, still an exact answer.
    padded = SharedLayout.row_major((32, 64), pad=8)
    with pytest.raises(LayoutError, match="power of two|carry"):
        LinearLayout.of_shared(SharedLayout.row_major((3, 64)))
    assert bank_conflicts(rows, padded, 2, 16) == 4
    same = TVLayout.parse("thread [32:(0,0)], value [2:(0,1)]")
    assert bank_conflicts(same, flat, 2, 4) == 1  # all lanes want one word
    wide = TVLayout.parse("thread [32:(0,1)], value [4:(1,0)]")  # twice as wide as the buffer: half the lanes idle
    assert bank_conflicts(wide, SharedLayout.row_major((4, 16)), 4, 4) == 1
    with pytest.raises(LayoutError, match="consecutive and aligned"):
        bank_conflicts(wide, flat, 2, 8)
    with pytest.raises(LayoutError, match="32 bytes wide"):
        lanes_per_wavefront(32)
    with pytest.raises(LayoutError, match="2 dimensions and the buffer 1"):
        bank_conflicts(rows, SharedLayout.row_major((32,)), 2, 2)


@pytest.mark.parametrize(
    ("registers", "shared", "element", "expected"),
    [
        # Pitch 72 under a swizzle: rows are no XOR images of row 0, which alone has no conflict.
        ("thread [8:(0,8), 4:(1,0)], value [8:(0,1), 8:(4,0)]", "[32:72], [64:1], swizzle<3, 3, 3>", 2, 8),
        # Threads that hold copies one element apart: their coordinates carry from one digit of the buffer to the next.
        ("thread [4:(0,1), 4:(0,2)], value [2:(0,1)]", "[1:8], [8:1, 2:64]", 4, 2),
        ("thread [2:(2,0), 8:(0,3), 2:(1,0)], value []", "[4:4], [4:1, 6:33]", 2, 3),
        # Rows that start inside a word: the pairs that share a word differ from row to row.
        ("thread [2:(16,0), 8:(0,2)], value [8:(2,0)]", "[31:23], [15:1]", 1, 2),
        ("thread [16:(1,0)], value [8:(1,0)]", "[23:9], [1:1]", 1, 2),
        # The buffer ends within the first wavefront: lanes past its end idle.
        ("thread [2:(16,0), 16:(0,2)], value [2:(0,0), 2:(4,0)]", "[13:24], [22:1]", 4, 1),
    ],
)
def test_wavefronts_that_differ_from_the_first(registers: str, shared: str, element: int, expected: int) -> None:
    tv, buffer = TVLayout.parse(registers), SharedLayout.parse(shared)
    width = common_vector(tv, buffer)[1] if "8:(0,8)" in registers else 1
    assert bank_conflicts(tv, buffer, element, width * element) == expected
    if buffer.covers(tv.shape()):
        assert wavefronts_by_definition(tv, buffer, element, width * element) == expected


@pytest.mark.parametrize(
    ("registers", "message"),
    [
        ("thread [3:(1)], value []", "power of two"),
        ("thread [4:(1)], value [4:(2)]", "carry|power of two"),
        ("thread [4:(1), 2:(1)], value [2:(4)]", "carry|power of two"),
    ],
)
def test_what_has_no_matrix_is_refused(registers: str, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        LinearLayout.of_registers(TVLayout.parse(registers))
    with pytest.raises(LayoutError, match="beyond"):
        LinearLayout.of_registers(TVLayout.parse("thread [4:(1)], value []"), (2,))


@check
@given(st.data())
def test_matrices_are_the_layouts_functions(data: st.DataObject) -> None:
    registers, shared, _, _ = data.draw(copies(True))
    matrix, offsets = LinearLayout.of_registers(registers, shared.shape()), LinearLayout.of_shared(shared)
    columns = shared.shape()[1]
    for t, v, (r, c) in registers:
        packed = matrix.apply(t + registers.num_threads * v)
        assert packed == r * columns + c
        assert offsets.apply(packed) == shared.offset((r, c))


@check
@given(st.data())
def test_best_swizzle_is_the_best_of_all(data: st.DataObject) -> None:
    registers, shared, element, vector = data.draw(copies(True))
    assume(registers.num_values * element >= vector)
    plain = SharedLayout(shared.modes)
    accesses = [(registers, vector)]
    found, cost = best_swizzle(plain, accesses, element)
    vectors = registers.num_values * element // vector
    assert cost == vectors * wavefronts_by_definition(registers, found, element, vector)
    base = (vector // element).bit_length() - 1
    for bits, shift in product(range(1, 4), range(1, 7)):
        if shift >= bits:
            other = SharedLayout(plain.modes, Swizzle(bits, base, shift))
            assert cost <= vectors * wavefronts_by_definition(registers, other, element, vector)


def test_best_swizzle_serves_reader_and_writer_together() -> None:
    writer = TVLayout.parse("thread [8:(0,8), 4:(1,0)], value [8:(0,1)]")
    reader = TVLayout.parse("thread [8:(1,0), 4:(0,8)], value [8:(0,1)]")
    buffer, cost = best_swizzle(SharedLayout.row_major((64, 64)), [(writer, 16), (reader, 16)], 2)
    assert cost == 8 and buffer == SharedLayout.tma((64, 64), 2, 128, (1, 0))
