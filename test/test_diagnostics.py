"""Diagnostics: rendering with excerpt and caret, places of IR objects, collecting several errors."""

from __future__ import annotations

import pickle

import pytest

from tesela.dialects.diagnostics import (
    Diagnostic,
    Emitter,
    Location,
    TeselaError,
    location_attr,
    location_of,
    nearest_location,
    render,
    source_text,
)
from tesela.dialects.parsing import parse_module


def test_render_one_block() -> None:
    error = Diagnostic("error", "bad shape", Location("a.mlir", 2, 5), hint="make it 4")
    error.notes.append(Diagnostic("note", "stated here", Location("a.mlir", 1, 1)))
    assert render([error], {"a.mlir": "first\n    second\n"}) == (
        "a.mlir:2:5: error: bad shape\n"
        "      second\n"
        "      ^\n"
        "  hint: make it 4\n"
        "a.mlir:1:1: note: stated here\n"
        "  first\n"
        "  ^\n"
    )


def test_render_without_place_or_source() -> None:
    diagnostics = [
        Diagnostic("warning", "slow path\nbecause of this"),
        Diagnostic("error", "bad", Location("nofile", 3, 1)),
    ]
    assert render(diagnostics) == "warning: slow path\n  because of this\nnofile:3:1: error: bad\n"


def test_render_reads_files_and_keeps_tabs(tmp_path) -> None:
    path = tmp_path / "t.py"
    path.write_text("\tx = load(y)\r\n")
    text = render([Diagnostic("error", "no", Location(str(path), 1, 6))])
    assert text.splitlines()[1:] == ["  \tx = load(y)", "  \t    ^"]
    path.write_text("changed\n")  # the file is read again, not remembered
    assert render([Diagnostic("error", "no", Location(str(path), 1, 1))]).splitlines()[1] == "  changed"


def test_render_shows_a_window_of_long_lines() -> None:
    line = "".join(chr(97 + i % 26) for i in range(1000))
    excerpt, caret = render([Diagnostic("error", "no", Location("f", 1, 501))], {"f": line}).splitlines()[1:]
    assert len(excerpt) < 200
    assert excerpt[caret.index("^")] == line[500]
    excerpt, caret = render([Diagnostic("error", "no", Location("f", 1, 3))], {"f": line}).splitlines()[1:]
    assert caret == "    ^" and excerpt.startswith("  abc")


def test_caret_past_the_end_of_the_text() -> None:
    assert render([Diagnostic("error", "more", Location("f", 2, 1))], {"f": "x\n"}).splitlines()[1:] == ["  ", "  ^"]
    assert render([Diagnostic("error", "more", Location("f", 9, 1))], {"f": "x\n"}) == "f:9:1: error: more\n"


def test_error_is_its_text_and_survives_pickling() -> None:
    error = TeselaError.at(Location("<s>", 1, 1), "no", hint="yes")
    error.sources["<s>"] = "text"
    assert str(error) == "<s>:1:1: error: no\n  text\n  ^\n  hint: yes"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert str(TeselaError("plain")) == "error: plain"


def test_source_text_is_attached_on_the_way_out() -> None:
    with pytest.raises(TeselaError) as caught, source_text("<s>", "line one"):
        raise TeselaError.at(Location("<s>", 1, 6), "no")
    assert "  line one\n       ^" in str(caught.value)


TEXT = """func.func @f(%a: i32) -> i32 {
  %0 = arith.addi %a, %a : i32
  %1 = arith.addi %0, %a : i32 loc("k.py":7:3)
  %2 = arith.addi %1, %a : i32 loc(callsite("g.py":8:1 at "k.py":9:1))
  %3 = arith.addi %2, %a : i32 loc(fused[unknown, "h.py":4:2])
  %4 = arith.addi %3, %a : i32 loc("name"("n.py":5:5))
  %5 = arith.addi %4, %a : i32 loc(unknown)
  func.return %5 : i32
}
"""


def test_places_of_operations_and_values() -> None:
    module = parse_module(TEXT, "t.mlir")
    function = module.body.block.first_op
    ops = list(function.body.block.ops)
    expected = [("t.mlir", 2, 3), ("k.py", 7, 3), ("g.py", 8, 1), ("h.py", 4, 2), ("n.py", 5, 5)]
    for op, place in zip(ops, expected, strict=False):
        assert location_of(op) == location_of(op.results[0]) == location_of(op.location) == Location(*place)
    assert location_of(function.body.block.args[0]) == Location("t.mlir", 1, 14)
    assert location_of(ops[5]) is None
    assert nearest_location(ops[5]) == nearest_location(ops[5].results[0]) == Location("t.mlir", 1, 1)
    assert location_of(None) is nearest_location(None) is None
    assert location_of(location_attr(Location("x", 3, 4))) == Location("x", 3, 4)
    assert location_attr(ops[0].results[0]) is ops[0].location
    assert location_of(location_attr(None)) is None


def test_emitter_collects_and_raises_once() -> None:
    emitter = Emitter()
    emitter.warning(Location("f", 1, 1), "slow")
    emitter.raise_if_errors()
    emitter.error(Location("f", 2, 1), "first", hint="h")
    emitter.error(None, "second").notes.append(Diagnostic("note", "n"))
    assert emitter.has_errors
    with pytest.raises(TeselaError) as caught:
        emitter.raise_if_errors()
    assert [d.message for d in caught.value.diagnostics] == ["slow", "first", "second"]
    emitter.raise_if_errors()
    assert not emitter.diagnostics
