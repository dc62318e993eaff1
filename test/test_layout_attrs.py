"""The layout dialect: text round trips, normal forms, and what its verifiers refuse."""

from __future__ import annotations

from io import StringIO

import pytest
from xdsl.dialects.builtin import TensorType, f32
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import ParseError, VerifyException

from tesela.dialects.layout import SharedLayout, TVLayout
from tesela.dialects.layout_attrs import SharedLayoutAttr, TVLayoutAttr, tv_layout_of, with_layout
from tesela.dialects.parsing import make_context, parse_module, print_module

ACC = "thread [4:(0,2), 8:(1,0), 4:(16,0)], value [2:(0,1), 2:(8,0), 8:(0,8)]"


def parse_attribute(text: str):
    return Parser(make_context(), text).parse_attribute()


def printed(attribute) -> str:
    out = StringIO()
    Printer(out).print_attribute(attribute)
    return out.getvalue()


@pytest.mark.parametrize(
    "text",
    [
        f"tensor<64x64xf32, #layout.tv<{ACC}>>",
        "tensor<7xf16, #layout.tv<thread [32:(1)], value []>>",
        "tensor<f32, #layout.tv<thread [128:()], value []>>",
        "tensor<128x64xbf16, #layout.shared<[128:64], [64:1], swizzle<3, 3, 3>>>",
        "#layout.shared<[128:64], [64:1, 4:8192]>",
        "#layout.shared<[], [64:1], swizzle<2, 4, -3>>",
        "!async.buffer<128x64xbf16, #layout.shared<[128:64], [64:1], swizzle<3, 3, 3>>>",
    ],
)
def test_text_round_trip(text: str) -> None:
    attribute = parse_attribute(text)
    assert printed(attribute) == text
    assert parse_attribute(printed(attribute)) == attribute


def test_equal_functions_are_equal_types() -> None:
    split = parse_attribute(
        "tensor<64x64xf32, #layout.tv<thread [4:(0,2), 8:(1,0), 2:(16,0), 2:(32,0)], "
        "value [2:(0,1), 2:(8,0), 2:(0,8), 4:(0,16)]>>"
    )
    assert split == parse_attribute(f"tensor<64x64xf32, #layout.tv<{ACC}>>")
    assert parse_attribute("#layout.shared<[4:8, 2:32], [8:1]>") == SharedLayoutAttr(SharedLayout.row_major((8, 8)))


def test_constructors_intern() -> None:
    layout = TVLayout.parse(ACC)
    plain = TensorType(f32, [64, 64])
    assert TVLayoutAttr.of(layout) is TVLayoutAttr.of(TVLayout.parse(ACC))
    assert with_layout(plain, layout) is with_layout(plain, layout)
    assert tv_layout_of(with_layout(plain, layout)) == layout
    assert tv_layout_of(plain) is None and tv_layout_of(f32) is None
    with pytest.raises(VerifyException, match="normal form"):
        TVLayoutAttr.new(TVLayout.parse("thread [2:(1), 2:(2)], value []"))
    with pytest.raises(VerifyException, match="normal form"):
        SharedLayoutAttr.new(SharedLayout.parse("[2:1, 2:2]"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#layout.tv<thread [4:(0,2)], value [2:(1)]>", "lengths differ"),
        ("#layout.tv<thread [0:(2)], value []>", "at least 1"),
        ("#layout.tv<thread [4:2], value []>", "expected"),
        ("#layout.shared<[4:1], swizzle<3, 0, 1>>", "at least bits"),
        ("#layout.shared<[4:1] [2:1]>", "expected"),
    ],
)
def test_bad_text_is_refused_where_it_stands(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message) as error:
        parse_attribute(text)
    assert error.value.span.start > 0


def convert(source: str, result: str) -> str:
    return f'%x = "test.op"() : () -> {source}\n%y = layout.convert %x : {source} -> {result}\n'


A = f"tensor<64x64xf32, #layout.tv<{ACC}>>"
B = "tensor<64x64xf32, #layout.tv<thread [32:(0,2), 4:(1,0)], value [2:(0,1), 16:(4,0)]>>"


@pytest.mark.parametrize("extents", ["64x64", "61x50"])  # a layout may reach beyond the tile
def test_convert_round_trips_and_verifies(extents: str) -> None:
    context = make_context(allow_unregistered=True)
    module = parse_module(convert(A, B).replace("64x64", extents), context=context)
    module.verify()
    text = print_module(module)
    assert "layout.convert %x" in text
    assert print_module(parse_module(text, context=make_context(allow_unregistered=True))) == text


@pytest.mark.parametrize(
    ("source", "result", "message"),
    [
        (A, B.replace("f32", "f16"), "changes the layout only"),
        (A, B.replace("64x64", "64x32"), "changes the layout only"),
        ("tensor<64x64xf32>", B, "the operand needs a thread-value layout"),
        (A, "tensor<64x64xf32, #layout.shared<[64:64], [64:1]>>", "the result needs a thread-value layout"),
        (A, B.replace("16:(4,0)", "15:(4,0)"), "result's layout leaves elements of tensor<64x64xf32> without a holder"),
        (
            A,
            B.replace("32:(0,2), 4:(1,0)", "32:(0,2), 2:(1,0)").replace("16:(4,0)", "32:(2,0)"),
            "for 128 and the result's",
        ),
    ],
)
def test_convert_refuses(source: str, result: str, message: str) -> None:
    module = parse_module(convert(source, result), context=make_context(allow_unregistered=True))
    with pytest.raises(VerifyException, match=message):
        module.verify()
