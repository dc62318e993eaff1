"""The layout algebra against its definition: every operation on random digits, powers of two or not."""

from __future__ import annotations

import doctest
import importlib
from itertools import product
from math import prod
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tesela.dialects.layout import (
    LayoutError,
    Mode,
    SharedLayout,
    Swizzle,
    TVLayout,
    common_vector,
    conversion_scope,
    draw_text,
    split_modes,
    sumset,
)

check = settings(deadline=None, max_examples=60)
thorough = settings(deadline=None, max_examples=300)

EXTENTS = st.sampled_from([1, 2, 2, 3, 4, 5, 8])
MODULES = ["layout", "tv_layout", "shared_layout", "linear_layout", "cute"]


@pytest.mark.parametrize("name", MODULES)
def test_every_example_in_the_documentation_runs(name: str) -> None:
    results = doctest.testmod(importlib.import_module(f"tesela.dialects.{name}"))
    assert results.failed == 0 and results.attempted > 0


def test_the_examples_of_the_page_run() -> None:
    page = Path(__file__).parents[1] / "docs" / "layouts.md"
    results = doctest.testfile(str(page), module_relative=False)
    assert results.failed == 0 and results.attempted > 20


def modes(rank: int, max_size: int = 3) -> st.SearchStrategy[tuple[Mode, ...]]:
    stride = st.tuples(*[st.sampled_from([0, 0, 1, 2, 3, 4, 6, 8, 16])] * rank)
    return st.lists(st.builds(Mode, EXTENTS, stride), max_size=max_size).map(tuple).map(_at_most_40)


def _at_most_40(digits: tuple[Mode, ...]) -> tuple[Mode, ...]:
    """The leading digits that count to at most 40: the tables below list every index."""
    return next(digits[:n] for n in range(len(digits), -1, -1) if prod(m.extent for m in digits[:n]) <= 40)


@st.composite
def layouts(draw: st.DrawFn, rank: int | None = None) -> TVLayout:
    """Any layout with at least one mode, overlapping and skew ones included."""
    rank = draw(st.integers(1, 3)) if rank is None else rank
    layout = TVLayout(draw(modes(rank)), draw(modes(rank)))
    return layout if layout.thread or layout.value else TVLayout((Mode(1, (0,) * rank),), ())


@st.composite
def tilings(draw: st.DrawFn, max_rank: int = 3) -> tuple[TVLayout, tuple[int, ...]]:
    """A bijective layout of a tile, as kernels use them, and the tile's shape: digits of each dimension, dealt out."""
    rank = draw(st.integers(1, max_rank))
    digits: list[Mode] = []
    shape: list[int] = []
    for d in range(rank):
        stride = 1
        for extent in draw(st.lists(EXTENTS, max_size=2)):
            digits.append(Mode(extent, tuple(stride if i == d else 0 for i in range(rank))))
            stride *= extent
        shape.append(stride)
    digits = draw(st.permutations(digits))
    cut = draw(st.integers(0, len(digits)))
    layout = TVLayout(tuple(digits[:cut]), tuple(digits[cut:]))
    assume(layout.num_threads * layout.num_values <= 400)
    return (layout if digits else TVLayout((Mode(1, (0,) * rank),), ())), tuple(shape)


def table(layout: TVLayout) -> dict[tuple[int, int], tuple[int, ...]]:
    """The function from its definition: digits of the two indices, times strides."""
    out: dict[tuple[int, int], tuple[int, ...]] = {}
    for t in range(layout.num_threads):
        for v in range(layout.num_values):
            at = [0] * layout.rank
            for index, digits in ((t, layout.thread), (v, layout.value)):
                weight = 1
                for mode in digits:
                    digit = index // weight % mode.extent
                    weight *= mode.extent
                    at = [a + digit * s for a, s in zip(at, mode.stride, strict=True)]
            out[t, v] = tuple(at)
    return out


# ---- thread-value layouts ----------------------------------------------------------------------------------------


@check
@given(layouts())
def test_coords_shape_and_iteration_follow_the_definition(layout: TVLayout) -> None:
    expected = table(layout)
    assert {(t, v): at for t, v, at in layout} == expected
    assert all(layout.coords(t, v) == at for (t, v), at in expected.items())
    assert layout.shape() == tuple(1 + max(at[d] for at in expected.values()) for d in range(layout.rank))
    for t, v in [(layout.num_threads, 0), (0, layout.num_values), (-1, 0)]:
        with pytest.raises(LayoutError, match="out of range"):
            layout.coords(t, v)


@check
@given(layouts())
def test_text_round_trip(layout: TVLayout) -> None:
    assert TVLayout.parse(str(layout)) == layout


@pytest.mark.parametrize(
    "text", ["", "thread [4:(0,2)]", "thread [4:(0,2],value []", "thread [4:0], value []", "value [], thread []"]
)
def test_bad_text_is_refused(text: str) -> None:
    with pytest.raises(LayoutError, match="not a"):
        TVLayout.parse(text)


def test_strides_of_different_rank_are_refused() -> None:
    with pytest.raises(LayoutError, match="lengths differ"):
        TVLayout.parse("thread [4:(0,2)], value [2:(1)]")


@check
@given(st.data())
def test_equal_functions_are_equal_objects(data: st.DataObject) -> None:
    layout = data.draw(layouts())

    def rewrite(digits: tuple[Mode, ...]) -> tuple[Mode, ...]:
        out: list[Mode] = []
        for mode in digits:
            k = data.draw(st.sampled_from([n for n in range(1, mode.extent + 1) if mode.extent % n == 0]))
            out += [Mode(k, mode.stride), Mode(mode.extent // k, tuple(k * s for s in mode.stride))]
            out += [Mode(1, tuple(s + 7 for s in mode.stride))] * data.draw(st.integers(0, 1))
        return tuple(out)

    other = TVLayout(rewrite(layout.thread), rewrite(layout.value))
    if not other.thread and not other.value:
        other = layout
    assert table(other) == table(layout)
    assert other.normalized() == layout.normalized()
    assert layout.normalized().normalized() == layout.normalized()
    assert table(layout.normalized()) == table(layout)


@check
@given(layouts(rank=1), layouts(rank=1))
def test_different_functions_have_different_normal_forms(a: TVLayout, b: TVLayout) -> None:
    assert (table(a) == table(b)) == (a.normalized() == b.normalized())


@check
@given(layouts())
def test_injective_covers_and_replication(layout: TVLayout) -> None:
    holders: dict[tuple[int, ...], set[tuple[int, int]]] = {}
    for (t, v), at in table(layout).items():
        holders.setdefault(at, set()).add((t, v))
    copies = prod(m.extent for m in (*layout.thread, *layout.value) if m.is_broadcast)
    assert layout.is_injective() == all(len(who) == copies for who in holders.values())
    if layout.is_injective():
        assert all(len({t for t, _ in who}) == layout.replication for who in holders.values())
    for shape in product(*[(1, (n + 1) // 2, n) for n in layout.shape()]):
        assert layout.covers(shape) == all(at in holders for at in product(*map(range, shape)))
    assert not layout.covers(tuple(n + 1 for n in layout.shape()))


@check
@given(layouts())
def test_owner_is_the_first_holder(layout: TVLayout) -> None:
    first: dict[tuple[int, ...], tuple[int, int]] = {}
    for who, at in sorted(table(layout).items()):
        first.setdefault(at, who)
    for at in product(*[range(min(n, 12)) for n in layout.shape()]):
        if at in first:
            assert layout.owner(at) == first[at]
        else:
            with pytest.raises(LayoutError, match="no thread holds"):
                layout.owner(at)


@check
@given(layouts())
def test_contiguous_is_the_widest_aligned_vector(layout: TVLayout) -> None:
    expected = table(layout)
    for dim in range(layout.rank):

        def fits(width: int, dim: int = dim) -> bool:
            for (t, v), at in expected.items():
                start = expected[t, v - v % width]
                if start[dim] % width or at != tuple(c + (v % width) * (d == dim) for d, c in enumerate(start)):
                    return False
            return True

        widths = [w for w in range(1, layout.num_values + 1) if layout.num_values % w == 0 and fits(w)]
        assert layout.contiguous(dim) == max(widths)


@check
@given(layouts())
def test_project_and_flatten_send_each_value_where_they_say(layout: TVLayout) -> None:
    expected = table(layout)
    for dim in range(layout.rank):
        projected, flat = layout.project(dim), layout.flatten_dim(dim)
        assert projected.rank == layout.rank - 1 and flat.rank == layout.rank
        assert projected.num_threads == flat.num_threads == layout.num_threads
        assert projected.num_values == flat.num_values
        assert {layout.value_index(dim, v) for v in range(layout.num_values)} == set(range(flat.num_values))
        for (t, v), at in expected.items():
            index = layout.value_index(dim, v)
            assert projected.coords(t, index) == at[:dim] + at[dim + 1 :]
            assert flat.coords(t, index) == (*at[:dim], 0, *at[dim + 1 :])
        assert projected.insert(dim) == flat or projected.insert(dim).normalized() == flat.normalized()


@check
@given(st.data())
def test_insert_and_permute(data: st.DataObject) -> None:
    layout = data.draw(layouts())
    expected = table(layout)
    for dim in range(layout.rank + 1):
        assert table(layout.insert(dim)) == {who: (*at[:dim], 0, *at[dim:]) for who, at in expected.items()}
        assert (
            layout.insert(dim).project(dim)
            == TVLayout(
                layout.thread, tuple(m for m in layout.value if not m.is_broadcast) or (Mode(1, (0,) * layout.rank),)
            ).normalized()
        )
    perm = data.draw(st.permutations(range(layout.rank)))
    assert table(layout.permute(perm)) == {who: tuple(at[d] for d in perm) for who, at in expected.items()}
    with pytest.raises(LayoutError, match="permutation"):
        layout.permute([0] * (layout.rank + 1))


def unravel(at: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    out: list[int] = []
    for n in reversed(shape):
        at, c = divmod(at, n)
        out.append(c)
    return tuple(reversed(out))


def expressible(function: list[tuple[int, ...]]) -> bool:
    """Whether some digits give this function of an index: peel off the first digit, as its uniqueness proof does."""
    n = len(function)
    if n == 1:
        return not any(function[0])
    step = function[1]
    run = next((k for k in range(n) if function[k] != tuple(k * s for s in step)), n)
    if n % run:
        return False
    for i in range(n):
        base = function[i - i % run]
        if function[i] != tuple(b + (i % run) * s for b, s in zip(base, step, strict=True)):
            return False
    return expressible(function[::run])


@thorough
@given(st.data())
def test_reshape_is_found_exactly_when_modes_express_it(data: st.DataObject) -> None:
    layout, shape = data.draw(tilings())
    factors = [f for n in shape for f in _factors(n)]
    factors = data.draw(st.permutations(factors))
    new_shape: list[int] = []
    for f in factors:
        if new_shape and data.draw(st.booleans()):
            new_shape[-1] *= f
        else:
            new_shape.append(f)
    new = tuple(new_shape)

    def target(at: tuple[int, ...]) -> tuple[int, ...]:
        linear = 0
        for c, n in zip(at, shape, strict=True):
            linear = linear * n + c
        return unravel(linear, new)

    wanted = {who: target(at) for who, at in table(layout).items()}
    threads = [wanted[t, 0] for t in range(layout.num_threads)]
    values = [wanted[0, v] for v in range(layout.num_values)]
    possible = (
        expressible(threads)
        and expressible(values)
        and all(at == tuple(a + b for a, b in zip(threads[t], values[v], strict=True)) for (t, v), at in wanted.items())
    )
    result = layout.reshape(shape, new)
    assert (result is not None) == possible
    if result is not None:
        assert table(result) == wanted
        assert result.reshape(new, shape) == layout.normalized()


def _factors(n: int) -> list[int]:
    out: list[int] = []
    for p in (2, 3, 5):
        while n % p == 0:
            out.append(p)
            n //= p
    return out


def test_reshape_keeps_padding_outside_the_tile() -> None:
    rows = TVLayout.parse("thread [32:(1,0)], value [16:(0,1)]")
    assert rows.reshape((30, 16), (480,)) is not None  # rows 30 and 31 lie past the end before and after
    assert rows.reshape((32, 15), (480,)) is None  # column 15 would be column 0 of the next row
    with pytest.raises(LayoutError, match="cannot reshape"):
        rows.reshape((32, 16), (511,))


@check
@given(st.lists(st.sampled_from([1, 2, 3, 5, 8, 17, 64, 80]), min_size=1, max_size=3), st.data())
def test_blocked_covers_every_shape_once(shape: list[int], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(shape))))
    threads = data.draw(st.sampled_from([1, 32, 96, 128, 384]))
    vector = data.draw(st.sampled_from([1, 2, 8]))
    layout = TVLayout.blocked(tuple(shape), threads, tuple(order), vector)
    assert layout.num_threads == threads and layout.covers(shape) and layout.is_injective()
    width = layout.contiguous(order[0])
    assert width % vector == 0 or width >= shape[order[0]]
    # Threads neighbouring along order[0] hold neighbouring vectors: the first thread digit steps over one vector.
    along = [mode.stride[order[0]] for mode in layout.thread if mode.stride[order[0]]]
    assert all(step == width for step in along[:1])


def test_blocked_spreads_as_documented() -> None:
    assert str(TVLayout.blocked((64, 80), 128, (1, 0), 8)) == (
        "thread [4:(0,8), 32:(1,0)], value [8:(0,1), 3:(0,32), 2:(32,0)]"
    )
    with pytest.raises(LayoutError, match="must name each dimension"):
        TVLayout.blocked((4, 4), 32, (0, 0), 1)


@check
@given(layouts(), st.sampled_from([2, 3, 4, 6, 32]))
def test_splitting_at_a_boundary_keeps_the_function(layout: TVLayout, at: int) -> None:
    try:
        low, high = split_modes(layout.thread, at)
    except LayoutError:
        return
    assert table(TVLayout(low + high, layout.value)) == table(layout)
    assert at % prod(m.extent for m in low) == 0 and (not high or prod(m.extent for m in low) == at)


def test_thread_steps_are_the_threads_a_reduction_combines() -> None:
    layout = TVLayout.parse("thread [4:(0,2), 8:(1,0), 4:(0,8)], value [2:(0,1)]")
    assert layout.thread_steps(1) == ((1, 4), (32, 4)) and layout.thread_steps(0) == ((4, 8),)
    whole = TVLayout.parse("thread [128:(1)], value []")
    assert whole.thread_steps(0) == ((1, 32), (32, 4))
    for distance, extent in whole.thread_steps(0):
        assert {whole.thread_coords(k * distance) for k in range(extent)} == {(k * distance,) for k in range(extent)}
    with pytest.raises(LayoutError, match="another one at once"):
        TVLayout.parse("thread [4:(1,1)], value []").thread_steps(0)


@check
@given(st.data())
def test_conversion_scope_names_how_far_elements_travel(data: st.DataObject) -> None:
    source, shape = data.draw(tilings(max_rank=2))
    digits = data.draw(st.permutations([*source.thread, *source.value]))
    # A second layout of the same tile, with as many threads, out of the same digits.
    for cut in range(len(digits) + 1):
        target = TVLayout(tuple(digits[:cut]), tuple(digits[cut:]))
        if target.num_threads == source.num_threads:
            break
    else:
        target = source
    a, b = table(source), table(target)
    in_warp = {(t // 32, at) for (t, _), at in a.items()}
    by_renaming = all(
        any(all(a[t, u] == b[t, v] for t in range(source.num_threads)) for u in range(source.num_values))
        for v in range(target.num_values)
    )
    expected = "block"
    if a == b:
        expected = "same"
    elif by_renaming:
        expected = "registers"
        values = source.value_map(target)
        assert values is not None and all(a[t, values[v]] == at for (t, v), at in b.items())
    elif all((t // 32, at) in in_warp for (t, _), at in b.items()):
        expected = "warp"
    assert conversion_scope(source, target) == expected
    assert target.covers(shape)


def test_conversion_scope_of_each_kind() -> None:
    base = TVLayout.parse("thread [4:(0,2), 8:(1,0), 2:(8,0)], value [2:(0,1), 2:(16,0)]")
    for text, scope in [
        ("thread [4:(0,2), 8:(1,0), 2:(8,0)], value [2:(16,0), 2:(0,1)]", "registers"),
        ("thread [8:(1,0), 4:(0,2), 2:(8,0)], value [2:(0,1), 2:(16,0)]", "warp"),
        ("thread [4:(0,2), 8:(1,0), 2:(16,0)], value [2:(0,1), 2:(8,0)]", "block"),
    ]:
        assert conversion_scope(base, TVLayout.parse(text)) == scope


def test_conversion_between_different_thread_counts_is_refused() -> None:
    with pytest.raises(LayoutError, match="same number of threads"):
        conversion_scope(TVLayout.parse("thread [32:(1)], value []"), TVLayout.parse("thread [64:(1)], value []"))


@check
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), max_size=4))
def test_sumset(digits: list[tuple[int, int]]) -> None:
    sums = {
        sum(d * s for d, (_, s) in zip(way, digits, strict=True)) for way in product(*[range(e) for e, _ in digits])
    }
    assert {n for n in range(sumset(digits).bit_length()) if sumset(digits) >> n & 1} == sums


# ---- the hardware's own layouts ----------------------------------------------------------------------------------

ACCUMULATOR = TVLayout.parse("thread [4:(0,2), 8:(1,0), 4:(16,0), 2:(64,0)], value [2:(0,1), 2:(8,0), 8:(0,8)]")


def test_wgmma_accumulator_is_the_manuals_fragment() -> None:
    wide = TVLayout.parse("thread [4:(0,2), 8:(1,0), 4:(16,0), 2:(64,0)], value [2:(0,1), 2:(8,0), 32:(0,8)]")
    for t, i, at in wide:
        wg, w, g, q = t // 128, t % 128 // 32, t % 32 // 4, t % 4
        assert at == (64 * wg + 16 * w + g + 8 * (i // 2 % 2), 8 * (i // 4) + 2 * q + i % 2)
    assert wide.covers((128, 256)) and wide.is_injective() and wide.contiguous(1) == 2


def test_accumulator_64_wide_is_the_next_a_operand() -> None:
    operand = TVLayout.parse(
        "thread [4:(0,2), 8:(1,0), 4:(16,0), 2:(64,0)], value [2:(0,1), 2:(8,0), 2:(0,8), 4:(0,16)]"
    )
    assert operand.normalized() == ACCUMULATOR.normalized()
    assert conversion_scope(ACCUMULATOR, operand) == "same"


# ---- shared layouts ----------------------------------------------------------------------------------------------


@st.composite
def shared_layouts(draw: st.DrawFn, swizzled: bool = True) -> SharedLayout:
    digit = st.tuples(EXTENTS, st.sampled_from([0, 1, 2, 3, 4, 8, 16, 24, 64]))
    dims = draw(st.lists(st.lists(digit, max_size=2).map(tuple), min_size=1, max_size=3))
    swizzle = draw(st.none() | st.builds(Swizzle, st.integers(0, 3), st.integers(0, 4), st.sampled_from([-3, 3, 4])))
    return SharedLayout(tuple(dims), swizzle if swizzled else None)


@check
@given(shared_layouts())
def test_shared_offsets_follow_the_definition(layout: SharedLayout) -> None:
    assert SharedLayout.parse(str(layout)) == layout
    seen: set[int] = set()
    normal = layout.normalized()
    for at in product(*map(range, layout.shape())):
        linear = 0
        for c, digits in zip(at, layout.modes, strict=True):
            for extent, stride in digits:
                linear += c % extent * stride
                c //= extent
        s = layout.swizzle
        expected = linear
        if s:
            for bit in range(s.bits):
                low, high = s.base + bit + max(-s.shift, 0), s.base + bit + max(s.shift, 0)
                source, dest = (high, low) if s.shift > 0 else (s.base + bit, low)
                expected ^= (linear >> source & 1) << dest
        assert layout.offset(at) == normal.offset(at) == expected < layout.size()
        seen.add(expected)
    assert layout.is_injective() == (len(seen) == prod(layout.shape()))
    with pytest.raises(LayoutError, match="outside"):
        layout.offset(layout.shape())


@check
@given(shared_layouts())
def test_shared_vectors_are_consecutive_and_aligned(layout: SharedLayout) -> None:
    for dim in range(layout.rank):
        n = layout.shape()[dim]

        def fits(width: int, dim: int = dim) -> bool:
            for at in product(*map(range, layout.shape())):
                start = layout.offset((*at[:dim], at[dim] - at[dim] % width, *at[dim + 1 :]))
                if start % width or layout.offset(at) != start + at[dim] % width:
                    return False
            return True

        width = layout.contiguous(dim)
        assert n % width == 0 and fits(width)


@pytest.mark.parametrize("bytes_", [1, 2, 4, 8])
@pytest.mark.parametrize("mode", [128, 64, 32])
@pytest.mark.parametrize("order", [(1, 0), (0, 1)])
def test_tma_swizzle_moves_16_byte_chunks_as_the_manual_says(bytes_: int, mode: int, order: tuple[int, int]) -> None:
    span, rows, spans = mode // bytes_, 24, 3
    shape = (rows, span * spans) if order == (1, 0) else (span * spans, rows)
    layout = SharedLayout.tma(shape, bytes_, mode, order)
    for r in range(rows):
        for c in range(span * spans):
            # addr ^= ((addr >> 7) & m) << 4 on byte addresses, m = 7 / 3 / 1 (PTX ISA 9.0 §5.5.7)
            address = (c // span * rows * span + r * span + c % span) * bytes_
            address ^= ((address >> 7) & {128: 7, 64: 3, 32: 1}[mode]) << 4
            at = (r, c) if order == (1, 0) else (c, r)
            assert layout.offset(at) * bytes_ == address
            if mode == 128:
                chunk = c % span * bytes_ // 16
                assert address % 128 // 16 == chunk ^ (r % 8)
    assert layout.is_injective() and layout.size() == prod(shape)
    assert layout.alignment(bytes_) == 8 * mode
    form = layout.tma_form(bytes_)
    assert form is not None and form.swizzle_bytes == mode and form.order == order


def test_tma_form_lists_boxes_that_tile_the_buffer() -> None:
    layout = SharedLayout.tma((512, 128), 2, 128, (1, 0))
    form = layout.tma_form(2)
    assert form is not None and form.box == (256, 64)
    starts = sorted(layout.offset(at) for at in form.starts)
    assert starts == [i * prod(form.box) for i in range(4)]
    batch = SharedLayout.tma((2, 512, 64), 2, 128, (2, 1, 0))
    form = batch.tma_form(2)
    assert form is not None and form.box == (1, 256, 64)  # a box of both matrices would leave gaps
    assert sorted(batch.offset(at) for at in form.starts) == [i * prod(form.box) for i in range(4)]
    dense = SharedLayout.row_major((8, 3, 40)).tma_form(2)
    assert dense is not None and dense.box == (8, 3, 40) and dense.swizzle_bytes == 0
    assert SharedLayout.row_major((8, 3, 41)).tma_form(2) is None  # 82 bytes are no whole 16-byte units
    with pytest.raises(LayoutError, match="a multiple of 64 is needed"):
        SharedLayout.tma((64, 96), 2, 128, (1, 0))
    with pytest.raises(LayoutError, match="no TMA swizzle"):
        SharedLayout.tma((64, 96), 2, 96, (1, 0))


@pytest.mark.parametrize("text", ["[4:1", "4:1", "[4:1],", "[4:1], swizzle<1,2>", "[4:1] [2:1]"])
def test_bad_shared_text_is_refused(text: str) -> None:
    with pytest.raises(LayoutError, match="not a shared layout"):
        SharedLayout.parse(text)


def test_common_vector_respects_both_sides() -> None:
    registers = TVLayout.blocked((64, 64), 128, (1, 0), 8)
    assert common_vector(registers, SharedLayout.tma((64, 64), 2, 128, (1, 0))) == (1, 8)
    assert common_vector(registers, SharedLayout.row_major((64, 64), pad=4)) == (1, 4)
    assert common_vector(registers, SharedLayout.row_major((64, 64), order=(0, 1))) == (0, 1)


# ---- pictures ----------------------------------------------------------------------------------------------------


def test_draw_text_shows_holders_padding_and_planes() -> None:
    layout = TVLayout.parse("thread [2:(0,0,1), 2:(0,0,0)], value [2:(1,0,0)]")
    assert draw_text(layout, (2, 1, 3)).splitlines() == ["[0, :, :]", "0:0*  1:0*  -", "[1, :, :]", "0:1*  1:1*  -"]
    assert draw_text(TVLayout.parse("thread [32:()], value []"), ()) == "0:0*"
    with pytest.raises(LayoutError, match="2 dimensions, the layout has 3"):
        draw_text(layout, (2, 2))


def test_boxes_of_one_buffer_start_where_buffers_could():
    """Nine boxes of 16 bytes are no way to fill a column; two of 36 rows do not both begin where the swizzle's pattern does."""
    assert SharedLayout.parse("[36:1], []").tma_form(4).starts == ((0, 0),)
    assert SharedLayout.tma((36, 64), 4, 128, (1, 0)).tma_form(4) is None
    assert len(SharedLayout.tma((40, 64), 4, 128, (1, 0)).tma_form(4).starts) == 2
