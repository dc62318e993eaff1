"""dialects/layout_pictures.py and `tesela layout`: pictures say what the layouts do."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET

import pytest

from tesela.dialects.layout import LayoutError, SharedLayout, TVLayout
from tesela.dialects.layout_pictures import banks_svg, banks_text, elements_svg, registers_svg
from tesela.tools import cli

NS = "{http://www.w3.org/2000/svg}"


def cells(svg: str) -> list[tuple[str, str]]:
    """(colour, text) of each cell in order."""
    found: list[tuple[str, str]] = []
    for element in ET.fromstring(svg):
        if element.tag == f"{NS}rect":
            found.append((element.attrib["fill"], ""))
        elif element.tag == f"{NS}text" and "fill" not in element.attrib:
            found[-1] = (found[-1][0], element.text or "")
    return found


def test_registers():
    layout = TVLayout.parse("thread [4:(0,2), 8:(1,0), 2:(0,0)], value [2:(0,1)]")
    drawn = cells(registers_svg(layout, (8, 9)))
    assert len(drawn) == 72
    for i, (colour, text) in enumerate(drawn):
        at = divmod(i, 9)
        if at[1] == 8:
            assert (colour, text) == ("#ffffff", "-")
        else:
            thread, value = layout.owner(at)
            assert text == f"{thread}:{value}*"
    colours = {text.split(":")[0]: colour for colour, text in drawn}
    assert len({colours[str(thread)] for thread in range(32)}) == 32, "lanes have colours of their own"


def test_elements_and_banks():
    layout = SharedLayout.parse("[8:64], [64:1], swizzle<3, 3, 3>")
    drawn = cells(elements_svg(layout, 2, (8, 64)))
    assert [int(text) for _, text in drawn] == [layout.offset(divmod(i, 64)) for i in range(512)]
    same = {}
    for colour, text in drawn:
        same.setdefault(int(text) * 2 // 4 % 32, set()).add(colour)
    assert all(len(found) == 1 for found in same.values()) and len({min(found) for found in same.values()}) == 32
    drawn = cells(banks_svg(layout, 2, (8, 64)))
    assert len(drawn) == 8 * 32
    for i, (_, text) in enumerate(drawn):
        assert layout.offset(tuple(map(int, text.split(",")))) * 2 == i * 4
    rows = banks_text(layout, 2, (8, 64)).splitlines()
    assert rows[2].split()[:2] == ["128", "1,8"] and len(rows) == 9


def test_three_dimensions_are_planes():
    layout = TVLayout.parse("thread [4:(0,0,1)], value [2:(1,0,0), 3:(0,1,0)]")
    svg = registers_svg(layout, (2, 3, 4))
    assert re.findall(r">\[(\d)\]<", svg) == ["0", "1"] and len(cells(svg)) == 24


@pytest.mark.parametrize(("shape", "message"), [((8,), "has 1 dimensions, the layout has 2"), ((65, 64), "cannot be read"), ((0, 4), "at least 1")])
def test_shapes_that_cannot_be_drawn(shape, message):
    with pytest.raises(LayoutError, match=message):
        registers_svg(TVLayout.parse("thread [4:(0,2), 8:(1,0)], value [2:(0,1)]"), shape)


@pytest.mark.parametrize(
    ("arguments", "begins", "which"),
    [
        (["thread [4:(0,2), 8:(1,0)], value [2:(0,1)]", "--shape", "2x4"], "0:0  0:1  1:0  1:1\n4:0", 0),
        (["[8:64], [64:1], swizzle<3, 3, 3>", "--view", "banks", "--shape", "2x64"], "bank", 2),
        (["[2:8], [8:1]", "--svg"], "<svg ", 1),
        (["[2:8], [8:1]", "--bytes", "4"], "0   1   2", 1),
    ],
)
def test_the_command(arguments, begins, which):
    out, err = io.StringIO(), io.StringIO()
    assert cli.main(["layout", *arguments], stdout=out, stderr=err) == 0, err.getvalue()
    assert out.getvalue().startswith(begins)
    legends = ("thread:value, the thread", "the offset of each element", "rows are byte addresses")
    assert [legend for legend in legends if legend in out.getvalue()] == ([] if "--svg" in arguments else [legends[which]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["thread [4"], "not a layout"),
        (["[8:"], "not a shared layout"),
        (["[8:1]", "--shape", "2xx"], "extents joined by x"),
        (["[8:1]", "--shape", "9"], "outside the buffer"),
        (["[8:1]", "--bytes", "0"], "at least one byte"),
    ],
)
def test_wrong_commands(arguments, message):
    out, err = io.StringIO(), io.StringIO()
    assert cli.main(["layout", *arguments], stdout=out, stderr=err) == 1
    assert message in err.getvalue() and "Traceback" not in err.getvalue()
