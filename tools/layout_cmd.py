"""tesela layout: draws a layout, as text or as SVG.

    tesela layout 'thread [4:(0,2), 8:(1,0)], value [2:(0,1)]'
    tesela layout '[8:64], [64:1], swizzle<3, 3, 3>' --bytes 2 --view banks --svg -o swizzle.svg

A layout of registers shows `thread:value` over the elements of its tile, one of a buffer the offset of each element (`--view elements`), or the
element at each address, 32 banks beside one another (`--view banks`). `docs/layouts.md` says how layouts are written.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TextIO

from ..dialects.diagnostics import TeselaError
from ..dialects.layout import LayoutError, SharedLayout, TVLayout, draw_text
from ..dialects.layout_pictures import banks_svg, banks_text, check_size, elements_svg, registers_svg
from .compile_cmd import write

REGISTERS = "thread:value, the thread that holds an element and which of its registers' values it is"
ELEMENTS = "the offset of each element in the buffer, in elements"
BANKS = "rows are byte addresses of 32 words of 4 bytes each; in each bank stand the coordinates of the first element of the word, '-' where there is none"
"""What stands in a cell, as the line below the picture says."""
VIEWS = ("elements", "banks")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("layout", help="the text of a layout: thread […], value […] of registers, […], […] of a buffer")
    parser.add_argument("--shape", metavar="8x8", help="the tile, or the corner of it that is drawn (default: all that the layout reaches)")
    parser.add_argument("--bytes", type=int, default=2, metavar="N", help="the size of an element in a buffer (default: 2)")
    parser.add_argument("--view", choices=VIEWS, default="elements", help="of a buffer: its elements, or its banks (default: elements)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--text", action="store_true", help="as text (the default)")
    form.add_argument("--svg", action="store_true", help="as SVG")
    parser.add_argument("-o", "--output", metavar="FILE", help="write there instead of to standard output")


def run(arguments: argparse.Namespace, stdout: TextIO, stderr: TextIO) -> int:
    del stderr
    try:
        picture = draw(arguments.layout, arguments.shape, arguments.bytes, arguments.view, arguments.svg)
    except LayoutError as error:
        raise TeselaError.at(None, str(error)) from None
    write(arguments.output, picture, stdout)
    return 0


def draw(text: str, shape_text: str | None = None, element_bytes: int = 2, view: str = "elements", svg: bool = False) -> str:
    """The picture. Raises LayoutError for a text that is no layout, and TeselaError for a shape that is none or an element without a size."""
    layout = TVLayout.parse(text) if text.lstrip().startswith("thread") else SharedLayout.parse(text)
    if element_bytes < 1:
        raise TeselaError.at(None, f"--bytes {element_bytes}: an element has at least one byte")
    shape = layout.shape()
    if shape_text is not None:
        try:
            shape = tuple(int(extent) for extent in shape_text.split("x"))
        except ValueError:
            raise TeselaError.at(None, f"--shape {shape_text}: extents joined by x are wanted, as 8x64") from None
    shape = check_size(shape, layout.rank)
    if isinstance(layout, TVLayout):
        return registers_svg(layout, shape) if svg else draw_text(layout, shape) + _legend(REGISTERS, shape)
    if view == "banks":
        return banks_svg(layout, element_bytes, shape) if svg else banks_text(layout, element_bytes, shape) + f"\n\n{BANKS}\n"
    return elements_svg(layout, element_bytes, shape) if svg else draw_text(layout, shape) + _legend(ELEMENTS, shape)


def _legend(cell: str, shape: Sequence[int]) -> str:
    """What stands where, below a picture of a tile."""
    places = {1: "columns are the tile's only dimension", 2: "rows are dimension 0 of the tile, columns dimension 1"}
    return f"\n\n{cell}; {places.get(len(shape), 'rows and columns are the last two dimensions of the tile, a picture for each place in the others')}\n"
