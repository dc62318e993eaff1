"""Pictures of layouts: threads and registers over the elements of a tile, banks over the addresses of a buffer; as text or as SVG.

A tile in registers is a grid of its elements, each with `thread:value`; in the SVG the colour is the thread's lane (its hue) and warp (its lightness), so that what one
thread holds is seen at once. A buffer has two views. *Elements*: the grid of the tile, each element with its offset, coloured by bank. *Addresses*: a row for
each 128 bytes, a column for each 4-byte bank, each with the coordinates of the element that starts there: what lies in one column
cannot be read at once.

>>> from tesela.dialects.layout import SharedLayout
>>> print(banks_text(SharedLayout.parse("[2:8], [8:1], swizzle<1, 2, 1>"), 4, (2, 8), 8))
bank      0   1   2   3   4   5   6   7
0         0,0 0,1 0,2 0,3 0,4 0,5 0,6 0,7
32        1,4 1,5 1,6 1,7 1,0 1,1 1,2 1,3
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import product

from .layout import WARP, LayoutError, SharedLayout, TVLayout
from .linear_layout import BANKS, WORD

CELL_WIDTH, CELL_HEIGHT, MARGIN = 44, 22, 30
MOST_CELLS = 4096
"""Cells of a picture, at most: more cannot be read."""


def check_size(shape: Sequence[int], rank: int) -> tuple[int, ...]:
    """The shape, of at most MOST_CELLS elements and of the layout's rank. Raises LayoutError otherwise."""
    cells = 1
    for extent in shape:
        cells *= extent
    if len(shape) != rank or any(extent < 1 for extent in shape):
        raise LayoutError(f"shape {'x'.join(map(str, shape))} has {len(shape)} dimensions, the layout has {rank}; extents are at least 1")
    if cells > MOST_CELLS:
        raise LayoutError(f"a picture of {cells} elements cannot be read: at most {MOST_CELLS} are drawn, so name a corner of the tile")
    return tuple(shape)


# ---- text -----------------------------------------------------------------------------------------------------------


def banks_text(shared: SharedLayout, element_bytes: int, shape: Sequence[int], banks: int = BANKS) -> str:
    """The addresses of a buffer: a line for each pass over the banks (as if there were `banks` of them), with the coordinates of the element that each word starts with."""
    found = _by_word(shared, element_bytes, check_size(shape, shared.rank))
    cells = {word: ",".join(map(str, at)) for word, at in found.items()}
    last = max(found)
    width = max(map(len, cells.values()))
    lines = ["bank".ljust(10) + " ".join(str(bank).ljust(width) for bank in range(banks)).rstrip()]
    for row in range(last // banks + 1):
        line = " ".join(cells.get(row * banks + bank, "-").ljust(width) for bank in range(banks))
        lines.append(str(row * banks * WORD).ljust(10) + line.rstrip())
    return "\n".join(lines)


def _by_word(shared: SharedLayout, element_bytes: int, shape: tuple[int, ...]) -> dict[int, tuple[int, ...]]:
    """The first element of each 4-byte word that one lies in."""
    found: dict[int, tuple[int, tuple[int, ...]]] = {}
    for at in product(*map(range, shape)):
        byte = shared.offset(at) * element_bytes
        word = byte // WORD
        found[word] = min(found.get(word, (byte, at)), (byte, at))
    return {word: at for word, (_, at) in found.items()}


# ---- SVG ------------------------------------------------------------------------------------------------------------


def registers_svg(layout: TVLayout, shape: Sequence[int]) -> str:
    """The elements of a tile with `thread:value`, and `*` where other threads hold copies."""
    shape = check_size(shape, layout.rank)

    def cell(at: tuple[int, ...]) -> tuple[str, str]:
        if not layout.holds(at):
            return "-", "#ffffff"
        thread, value = layout.owner(at)
        return f"{thread}:{value}{'*' if layout.is_replicated else ''}", _thread_colour(thread)

    return _grid(shape, cell, f"{layout}: thread:value of each element")


def elements_svg(shared: SharedLayout, element_bytes: int, shape: Sequence[int]) -> str:
    """The elements of a buffer with their offsets, coloured by bank."""

    def cell(at: tuple[int, ...]) -> tuple[str, str]:
        offset = shared.offset(at)
        return str(offset), _bank_colour(offset * element_bytes // WORD % BANKS)

    return _grid(check_size(shape, shared.rank), cell, f"{shared}: offset of each element; colours are banks")


def banks_svg(shared: SharedLayout, element_bytes: int, shape: Sequence[int]) -> str:
    """The addresses of a buffer, a row for each 128 bytes, with the coordinates of the element that each word starts with; colours are rows of the tile."""
    found = _by_word(shared, element_bytes, check_size(shape, shared.rank))
    rows = max(found) // BANKS + 1

    def cell(at: tuple[int, ...]) -> tuple[str, str]:
        element = found.get(at[0] * BANKS + at[1])
        if element is None:
            return "", "#ffffff"
        return ",".join(map(str, element)), _thread_colour(element[0] if element else 0)

    return _grid((rows, BANKS), cell, f"{shared}: the element at each address; a row is 128 bytes, a column one bank", "bank")


def _grid(shape: tuple[int, ...], cell: Callable[[tuple[int, ...]], tuple[str, str]], title: str, columns: str = "") -> str:
    """A table of cells; planes of further dimensions below one another."""
    *planes, height, width = [1, 1, *shape][-max(len(shape), 2) :]
    body = list(_cells(shape, planes, height, width, cell, columns))
    many = 1
    for extent in planes:
        many *= extent
    total_height = MARGIN + many * (height * CELL_HEIGHT + MARGIN)
    total_width = 2 * MARGIN + width * CELL_WIDTH
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total_width} {total_height}" width="{total_width}" height="{total_height}" '
        'font-family="monospace" font-size="11" text-anchor="middle">'
    )
    return "\n".join([head, f"<title>{escape(title)}</title>", *body, "</svg>", ""])


def _cells(
    shape: tuple[int, ...], planes: Sequence[int], height: int, width: int, cell: Callable[[tuple[int, ...]], tuple[str, str]], columns: str
) -> Iterator[str]:
    for number, plane in enumerate(product(*map(range, planes))):
        top = MARGIN + number * (height * CELL_HEIGHT + MARGIN)
        label = f"[{', '.join(map(str, plane))}]" if len(shape) > 2 else columns
        if label:
            yield f'<text x="{MARGIN}" y="{top - 14}" fill="#555">{escape(label)}</text>'
        for c in range(width):
            yield f'<text x="{MARGIN + c * CELL_WIDTH + CELL_WIDTH // 2}" y="{top - 4}" fill="#555">{c}</text>'
        for r in range(height):
            y = top + r * CELL_HEIGHT
            yield f'<text x="{MARGIN - 12}" y="{y + 15}" fill="#555">{r}</text>'
            for c in range(width):
                at = (*plane, r, c)
                text, colour = cell(at[len(at) - len(shape) :])
                x = MARGIN + c * CELL_WIDTH
                yield f'<rect x="{x}" y="{y}" width="{CELL_WIDTH}" height="{CELL_HEIGHT}" fill="{colour}" stroke="#999"/>'
                if text:
                    yield f'<text x="{x + CELL_WIDTH // 2}" y="{y + 15}">{escape(text)}</text>'


def _thread_colour(thread: int) -> str:
    return _colour(thread % WARP * 11 % WARP * 360 // WARP, 88 - 6 * (thread // WARP % 4))


def _bank_colour(bank: int) -> str:
    return _colour(bank * 360 // BANKS, 82)


def _colour(hue: int, lightness: int) -> str:
    """#rrggbb of a hue in degrees, a lightness in percent, and 70 % of saturation."""
    from colorsys import hls_to_rgb

    return "#" + "".join(f"{round(255 * part):02x}" for part in hls_to_rgb(hue / 360, lightness / 100, 0.7))
