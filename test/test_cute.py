"""CuTe's layout algebra against its definitions, on random nested layouts."""

from __future__ import annotations

from itertools import product
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tesela.dialects.cute import IntTuple, flatten
from tesela.dialects.layout import (
    CuteLayout,
    LayoutError,
    SharedLayout,
    Swizzle,
    TVLayout,
    registers_from_cute,
    registers_to_cute,
    shared_from_cute,
    shared_to_cute,
)

check = settings(deadline=None, max_examples=150)


@st.composite
def layouts(draw: st.DrawFn, depth: int = 2) -> CuteLayout:
    if depth == 0 or draw(st.booleans()):
        return CuteLayout(draw(st.sampled_from([1, 2, 3, 4, 6])), draw(st.sampled_from([0, 1, 2, 3, 4, 6, 8, 12, 24])))
    return CuteLayout.of_modes(*draw(st.lists(layouts(depth - 1), min_size=1, max_size=2)))


@st.composite
def injective(draw: st.DrawFn) -> CuteLayout:
    """Digits dealt from a compact layout, perhaps with gaps: injective, with strides that divide."""
    extents = draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4))
    stride, digits = draw(st.sampled_from([1, 1, 2])), []
    for extent in extents:
        digits.append((extent, stride))
        stride *= extent * draw(st.sampled_from([1, 1, 3]))
    return CuteLayout.of_digits(draw(st.permutations(digits)))


def table(layout: CuteLayout) -> list[int]:
    """By the definition: digits of the index, leftmost fastest."""
    extents, strides = flatten(layout.shape), flatten(layout.stride)
    rows = product(*[range(extent) for extent in reversed(extents)])
    return [sum(c * d for c, d in zip(reversed(row), strides, strict=True)) for row in rows]


def coordinates(shape: IntTuple) -> list[IntTuple]:
    """All coordinates of a shape, leftmost fastest."""
    if isinstance(shape, int):
        return list(range(shape))
    return [tuple(reversed(row)) for row in product(*[coordinates(mode) for mode in reversed(shape)])]


@check
@given(layouts())
def test_function_text_and_coalesce(layout: CuteLayout) -> None:
    expected = table(layout)
    assert list(layout) == expected == [layout(at) for at in coordinates(layout.shape)]
    assert CuteLayout.parse(str(layout)) == layout
    assert (layout.size(), layout.cosize()) == (len(expected), 1 + max(expected))
    assert table(layout.flatten()) == table(layout.coalesce()) == expected
    with pytest.raises(LayoutError, match="out of range"):
        layout(layout.size())
    compact = CuteLayout.compact(layout.shape)
    assert list(compact) == list(range(layout.size()))


@check
@given(layouts(), layouts())
def test_coalesce_is_canonical(a: CuteLayout, b: CuteLayout) -> None:
    assert (table(a) == table(b)) == (a.coalesce() == b.coalesce())


def test_compose_is_composition() -> None:
    found = 0

    @settings(deadline=None, max_examples=300, derandomize=True)
    @given(layouts(), layouts())
    def property_(outer: CuteLayout, inner: CuteLayout) -> None:
        nonlocal found
        try:
            both = outer.compose(inner)
        except LayoutError:
            return
        found += 1
        assert both.size() == inner.size()
        if inner.cosize() <= outer.size():
            assert table(both) == [outer(at) for at in table(inner)]
        assert len(both.modes()) == len(inner.modes()) or isinstance(inner.shape, int)

    property_()
    assert found > 50


@check
@given(st.data())
def test_compose_finds_every_tiling(data: st.DataObject) -> None:
    """A bijection composed with a compact layout of as many indices, whose extents divide: always expressible."""
    outer = data.draw(injective())
    half = data.draw(st.sampled_from([n for n in range(1, outer.size() + 1) if outer.size() % n == 0]))
    try:
        both = outer.compose(CuteLayout.compact((half, outer.size() // half)))
    except LayoutError:
        # Then some digit boundary of `outer` and `half` do not divide one another.
        bounds = [prod(e for e, _ in outer.coalesce().digits()[:i]) for i in range(1, 5)]
        assert any(half % b and b % half for b in bounds)
        return
    assert table(both) == table(outer)


@check
@given(injective(), st.integers(1, 300))
def test_complement_fills_what_the_layout_leaves(layout: CuteLayout, size: int) -> None:
    rest = layout.complement(size)
    sums = sorted(a + b for a in table(layout) for b in table(rest))
    assert sums == list(range(len(sums))) and len(sums) >= min(size, len(sums))
    assert layout.size() * rest.size() >= size
    assert table(rest) == sorted(table(rest))


def test_no_complement_for_repeats() -> None:
    for text in ("(2,2):(1,1)", "4:0", "(2,2):(2,3)", "(2,2):(1,3)"):
        with pytest.raises(LayoutError, match="no complement"):
            CuteLayout.parse(text).complement(16)


@check
@given(layouts())
def test_right_inverse(layout: CuteLayout) -> None:
    inverse = layout.right_inverse()
    assert [layout(at) for at in table(inverse)] == list(range(inverse.size()))


@check
@given(injective())
def test_inverses_of_injective_layouts(layout: CuteLayout) -> None:
    left = layout.left_inverse()
    assert [left(at) for at in table(layout)] == list(range(layout.size()))
    if layout.cosize() == layout.size():
        assert layout.right_inverse().size() == layout.size()
        assert layout.right_inverse().right_inverse() == layout.coalesce()


@check
@given(st.data())
def test_divide_and_product_follow_their_definitions(data: st.DataObject) -> None:
    layout, tile = data.draw(injective()), data.draw(injective())
    try:
        divided = layout.logical_divide(tile)
    except LayoutError:
        pass
    else:
        inside, _ = divided.modes()
        if tile.cosize() <= layout.size():
            assert table(inside) == [layout(at) for at in table(tile)]
            if divided.size() == layout.size():
                assert sorted(table(divided)) == sorted(table(layout))
    try:
        copies = layout.logical_product(tile)
    except LayoutError:
        return
    first, second = copies.modes()
    assert first == layout and second.size() == tile.size()
    assert len(set(table(copies))) == copies.size()  # no two copies share a result


def test_zipped_divide_tiles_a_matrix() -> None:
    matrix = CuteLayout.parse("(8,6):(6,1)")
    tiled = matrix.zipped_divide([CuteLayout(4, 1), CuteLayout(2, 1)])
    for i, j in product(range(8), range(6)):
        assert tiled(((i % 4, j % 2), (i // 4, j // 2))) == matrix((i, j))
    with pytest.raises(LayoutError, match="tiles for the 2 modes"):
        matrix.zipped_divide([CuteLayout(4, 1)])


@pytest.mark.parametrize(
    "text", ["", "4", "(4,2):(1)", "(4:1", "(4,):(1)", "4:1)", "x:1", "4:(1)", "0:1", "(4 2):(1,2"]
)
def test_bad_text_is_refused(text: str) -> None:
    with pytest.raises(LayoutError):
        CuteLayout.parse(text)


def test_published_layouts() -> None:
    """The m16n8 accumulator as CUTLASS prints it (include/cute/atom/mma_traits_sm80.hpp)."""
    mma = TVLayout.parse("thread [4:(0,2), 8:(1,0)], value [2:(0,1), 2:(8,0)]")
    assert str(registers_to_cute(mma, (16, 8))) == "((4,8),(2,2)):((32,1),(16,8))"


@check
@given(st.data())
def test_register_conversion_round_trips(data: st.DataObject) -> None:
    shape = data.draw(st.tuples(st.sampled_from([4, 6, 8]), st.sampled_from([4, 6, 8])))
    layout = TVLayout.blocked(
        shape, data.draw(st.sampled_from([4, 6, 8])), data.draw(st.permutations((0, 1)).map(tuple)), 2
    )
    bound = layout.shape()
    cute = registers_to_cute(layout, bound)
    assert registers_from_cute(cute, bound) == layout
    for t, v, (r, c) in layout:
        assert cute((t, v)) == r + bound[0] * c


def test_conversions_refuse_what_they_cannot_tell() -> None:
    layout = TVLayout.parse("thread [4:(0,2), 8:(1,0)], value [2:(0,1)]")
    with pytest.raises(LayoutError, match="beyond the tile"):
        registers_to_cute(layout, (8, 7))
    with pytest.raises(LayoutError, match="carry between dimensions"):
        registers_from_cute(CuteLayout.parse("(4,2):(3,12)"), (8, 8))
    with pytest.raises(LayoutError, match="thread and value"):
        registers_from_cute(CuteLayout.parse("(4,2,2):(1,4,8)"), (8, 8))


@pytest.mark.parametrize(
    "shared", [SharedLayout.tma((128, 128), 2, 128, (1, 0)), SharedLayout.row_major((6, 10), pad=2)]
)
def test_shared_conversion_round_trips(shared: SharedLayout) -> None:
    cute, swizzle = shared_to_cute(shared)
    assert shared_from_cute(cute, swizzle) == shared
    for at in [(0, 0), (5, 9), (3, 7)]:
        assert (swizzle or Swizzle(0, 0, 0)).apply(cute(at)) == shared.offset(at)
