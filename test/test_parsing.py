"""Reading and printing modules: positions, round trips of every IR file, aliases, and no crash on damaged text."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from tesela.dialects.diagnostics import Location, TeselaError, location_of
from tesela.dialects.parsing import make_context, parse_module, print_module
from tesela.dialects.tile_types import MAX_NESTING
from tesela.dialects.verify import verify_module
from tesela.runtime.compile import compile
from tesela.tools.opt import split_input

ROOT = Path(__file__).resolve().parent.parent
IR_FILES = [
    path
    for folder in ("test/ir", "examples")
    for path in sorted((ROOT / folder).rglob("*.mlir"))
    if "RUN: not " not in path.read_text()  # wrong as a whole, on purpose
]


def modules_of(path: Path) -> list[str]:
    """The texts of the modules of an IR file, without those that are wrong on purpose."""
    return [part for _, part in split_input(path.read_text()) if "expected-error" not in part]


@pytest.mark.parametrize("path", IR_FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_round_trip(path: Path) -> None:
    """Printing, parsing and printing again gives the same text, with and without locations."""
    for text in modules_of(path):
        module = parse_module(text, path.name, make_context(allow_unregistered=True))
        for debuginfo in (False, True):
            printed = print_module(module, debuginfo)
            again = parse_module(printed, "printed", make_context(allow_unregistered=True))
            assert print_module(again, debuginfo) == printed
            assert printed.endswith("\n")


def test_every_operation_and_argument_has_a_position() -> None:
    text = "func.func @f(%a: index) {\n  scf.for %i = %a to %a step %a {\n  }\n  func.return\n}\n"
    module = parse_module(text, "t.mlir")
    places = {op.name: location_of(op) for op in module.walk()}
    assert places == {
        "builtin.module": Location("t.mlir", 1, 1),
        "func.func": Location("t.mlir", 1, 1),
        "scf.for": Location("t.mlir", 2, 3),
        "scf.yield": Location("t.mlir", 2, 3),  # left out in the text: where its operation is
        "func.return": Location("t.mlir", 4, 3),
    }
    arguments = [location_of(arg) for op in module.walk() for r in op.regions for b in r.blocks for arg in b.args]
    assert arguments == [Location("t.mlir", 1, 14), Location("t.mlir", 2, 11)]


def test_positions_count_lines_and_columns_of_the_text() -> None:
    module = parse_module('\n\n  func.func @"é"() {\n\tfunc.return\n}', "u.mlir")
    assert [str(location_of(op)) for op in module.walk()] == ["u.mlir:1:1", "u.mlir:3:3", "u.mlir:4:2"]


def test_explicit_locations_win() -> None:
    text = 'func.func @f(%a: i32 loc("x.py":3:4)) {\n  func.return loc(unknown)\n} loc("y.py":5:6)\n'
    module = parse_module(text, "t.mlir")
    function = module.body.block.first_op
    assert location_of(function) == Location("y.py", 5, 6)
    assert location_of(function.body.block.args[0]) == Location("x.py", 3, 4)
    assert location_of(function.body.block.last_op) is None
    assert print_module(parse_module(print_module(module, True)), True) == print_module(module, True)


def test_errors_know_their_text() -> None:
    with pytest.raises(TeselaError) as caught:
        parse_module("func.func @f() {\n  func.return %x : i32\n}")
    assert str(caught.value) == (
        "<string>:2:15: error: use of undefined value %x\n    func.return %x : i32\n                ^"
    )


@pytest.mark.parametrize("text", ["; x", "# Heading", "! x", '"never closed', "@"])
def test_a_first_token_that_is_none(text: str) -> None:
    with pytest.raises(TeselaError) as caught:
        parse_module(text)
    assert caught.value.diagnostics[0].location.line == 1


def test_deep_nesting_is_an_error_and_no_crash() -> None:
    depth = 3000
    text = "func.func @f(%c: i1) {\n" + "scf.if %c {\n" * depth + "}\n" * depth + "func.return\n}"
    with pytest.raises(TeselaError, match="regions are nested more than 100 deep") as caught:
        parse_module(text)
    assert caught.value.diagnostics[0].location.line == MAX_NESTING + 3


def test_what_may_be_nested_goes_all_the_way_down() -> None:
    text = "tile.kernel @k(%n: index, %x: memref<?xindex> [M]) grid(%i = 1) {\n"
    for depth in range(MAX_NESTING):
        text += f"  %c{depth} = arith.constant {depth} : index\n  %p{depth} = tile.cmp sgt %n, %c{depth} : index -> i1\n  scf.if %p{depth} {{\n"
    text += "  tile.store %n, %x[%i] : index, memref<?xindex>\n" + "}\n" * MAX_NESTING + "}"
    assert compile(parse_module(text), "sm_90a").ptx.count("$ENDIF99:") == 1


def test_dense_hexadecimal_floats_are_bits() -> None:
    text = "%0 = arith.constant dense<[0x3F800000, 0x80000000]> : tensor<2xf32>\n"
    text += "%1 = arith.constant dense<0x3F80> : tensor<2xbf16>\n"
    module = parse_module(text)
    values = [op.properties["value"].get_values() for op in module.body.block.ops]
    assert str(values) == "[(1.0, -0.0), (1.0, 1.0)]"


def test_layouts_become_aliases_where_they_repeat() -> None:
    layout = "#layout.tv<thread [4:(0,2), 8:(1,0)], value [2:(0,1)]>"
    other = "#layout.tv<thread [32:(1)], value [2:(32)]>"
    text = f'"test.op"() {{a = {layout}, b = [{layout}, {other}]}} : () -> tensor<8x8xf32, {layout}>\n'
    module = parse_module(text, context=make_context(allow_unregistered=True))
    printed = print_module(module)
    first, rest = printed.split("\n", 1)
    assert first.startswith("#tv = #layout.tv<")
    assert rest.count("#tv") == 3 and rest.count("#layout.tv<") == 1
    assert print_module(parse_module(printed, context=make_context(allow_unregistered=True))) == printed


TOKEN = re.compile(r'[%^#!@]?[\w.]+|"[^"]*"|->|::|\S')


@pytest.mark.parametrize("seed", range(4))
def test_damaged_text_gives_errors_and_never_a_crash(seed: int) -> None:
    """Damaging tokens anywhere gives a module or a TeselaError, and a module that verifies round-trips."""
    rng = random.Random(seed)
    texts = [re.sub(r"//.*", "", text) for path in IR_FILES for text in modules_of(path)]
    tokens = [token for text in texts for token in TOKEN.findall(text)]
    accepted = 0
    for _ in range(150):
        text = rng.choice(texts)
        for _ in range(rng.choice([1, 1, 2])):
            spans = [match.span() for match in TOKEN.finditer(text)]
            start, end = rng.choice(spans)
            new = rng.choice(["", rng.choice(tokens), rng.choice(tokens) + " " + text[start:end]])
            text = text[:start] + new + text[end:]
        try:
            module = parse_module(text)
            verify_module(module)
        except TeselaError as error:
            assert all(d.location is not None for d in error.diagnostics), str(error)
            continue
        accepted += 1
        printed = print_module(module)
        assert print_module(parse_module(printed)) == printed
    assert accepted < 150  # the damage is real


def test_a_string_without_its_end_is_noticed_at_once() -> None:
    text = 'func.func @f() attributes {note = "' + "a b" * 1000 + "} {\n  func.return\n}\n"
    with pytest.raises(TeselaError, match="1:35: error: end of file reached before closing string literal"):
        parse_module(text)


@pytest.mark.parametrize("character", "²½٣")
def test_other_numerals_than_digits_are_errors(character: str) -> None:
    with pytest.raises(TeselaError, match=f"1:32: error: unexpected character: {character}"):
        parse_module(f"func.func @f(%x: memref<4xf32, {character}>)\n")
