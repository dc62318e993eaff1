"""xDSL's own error messages, said again so that a user can act on them: what was found, what is required, what to do.

xDSL words its constraints for its developers ("Unexpected attribute f32"). `explain` turns the messages that mistakes in
kernels lead to into the house's style, and leaves others as they are, without their line breaks.

>>> explain("Unexpected attribute f32", "arith.addi")
("'arith.addi' does not take f32 here", 'write arith.addf')
>>> explain("tensor<8xi32> should be of base attribute integer_type", "arith.sitofp")
("'arith.sitofp': an integer type is required, found tensor<8xi32>", 'tiles are cast with tile.cast')
>>> explain("operand 'array' at position 0 does not verify:\\nf32 should be of base attribute memref", "tile.load")
("'tile.load': operand 'array': a memref is required, found f32", None)
"""

from __future__ import annotations

import re

_TILE_OPERATIONS = {
    "tiles are cast with tile.cast": (
        "sitofp uitofp fptosi fptoui extsi extui trunci extf truncf index_cast index_castui bitcast".split()
    ),
    "tiles are compared with tile.cmp": ["cmpi", "cmpf"],
    "tiles are selected with tile.select": ["select"],
}
TILE_HINTS: dict[str, str] = {f"arith.{op}": hint for hint, ops in _TILE_OPERATIONS.items() for op in ops}
"""What to write instead of an arith operation that takes no tensors in xDSL."""

_COUNTERPARTS = {
    f"arith.{name}{one}": f"arith.{name}{other}" for name in ("add", "sub", "mul") for one, other in ("if", "fi")
} | {"arith.divsi": "arith.divf", "arith.divui": "arith.divf", "arith.divf": "arith.divsi"}
"""What does on floats what an operation does on integers, and the other way round."""

_PARSER_MESSAGES = {
    "Could not parse entire input!": "expected an operation",
    " in block definition": "expected an operation, a block label or '}'",
    "Expected suffix identifier after {first_char}": "a name is required after '%', '@', '#', '!' or '^'",
    "Expected shape type.": "an element type is required, such as f32 or bf16",
}
_KINDS = {"integer_type": "an integer type", "index": "an index", "memref": "a memref", "tensor": "a tensor"}
_CONSTRAINTS = (
    (re.compile(r"((?:operand|result) '\w+') at position \d+ does not verify: *(.+)"), lambda m: f"{m[1]}: {_said(m[2])}"),
    (re.compile(r"Unexpected attribute (.+)"), lambda m: f"does not take {m[1]} here"),
    (
        re.compile(r"(.+) should be of base attribute (\S+)"),
        lambda m: f"{_KINDS.get(m[2], m[2])} is required, found {m[1]}",
    ),
)


def explain(message: str, op_name: str | None = None) -> tuple[str, str | None]:
    """(message, hint or None) for a message of xDSL about an operation of this name, or about the text as a whole."""
    if message in _PARSER_MESSAGES:
        return _PARSER_MESSAGES[message], None
    flat = " ".join(line.strip() for line in message.split("\n")).rstrip("!. ")
    said = _said(flat)
    if op_name is None:
        return _lower_first(said), None
    joined = f"'{op_name}' {said}" if said.startswith("does not") else f"'{op_name}': {said}"
    if said.startswith("does not take") and op_name in _COUNTERPARTS:
        return joined, f"write {_COUNTERPARTS[op_name]}"
    return joined, TILE_HINTS.get(op_name) if said != flat and "tensor<" in flat else None


def _said(message: str) -> str:
    for pattern, say in _CONSTRAINTS:
        if match := pattern.fullmatch(message):
            return say(match)
    return message


def _lower_first(message: str) -> str:
    """Messages start in lower case after `error:`, but for names in capitals."""
    return message[0].lower() + message[1:] if message[1:2].islower() else message
