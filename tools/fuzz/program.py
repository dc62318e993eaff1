"""A tile program as a small typed tree that is easy to make at random and to take apart, and its text as a module.

A program has a grid, trip counts that only the launch knows, input arrays, and a body of nodes. A node is an operation,
its operands (numbers of earlier values), its attributes, and for control flow its bodies. Types are not stored:
`render` infers them while it prints, so that after a change (an extent made smaller, a node taken out) the program is
either well typed again, or `IllTyped` and discarded.

Every block writes results of its own. A store takes an output array of its own (unless it is to an *own* array), and
there either

- a *slot*: one window for each block and each trip of the loops round it (leading dimensions of the array), so no two
  stores meet; or
- a *tile* of the array's first dimensions at block · extent + shift, which may stick out on both sides; later trips
  overwrite earlier ones.

So do scatters, to slots: places along one dimension are a permutation, so no two elements meet. Atomic updates take an array of their own
that all blocks share, and what they find there depends on who comes first, so that it may be anything. Blocks with the same first coordinate
may meet once, at the end (`tile.sum_parts`), where the last one stores for all.

An *own* array has a part for each block, which the block reads and writes as it likes: what is loaded must be what was
stored last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import gcd, prod
from typing import Any

from ...passes.dot_types import all_dot_types

FLOATS = ("f16", "bf16", "f32", "f64", "f8E4M3FN", "f8E5M2")
APPROXIMABLE = ("f16", "bf16", "f32")
INTEGERS = ("i8", "i16", "i32", "i64")
WITH_BITS = (*INTEGERS, "i1")

BINARY: dict[str, tuple[str, ...]] = {
    **{f"arith.{op}f": FLOATS for op in ("add", "sub", "mul", "div", "maximum", "minimum", "maxnum", "minnum")},
    **{
        f"arith.{op}": INTEGERS
        for op in ("addi", "subi", "muli", "maxsi", "minsi", "maxui", "minui", "shli", "shrui", "shrsi")
    },
    **{f"arith.{op}i": WITH_BITS for op in ("and", "or", "xor")},
}
"""Operations of two operands of one type -> the element types they take."""
DIVISIONS = tuple(f"arith.{op}" for op in ("divsi", "divui", "remsi", "remui", "floordivsi", "ceildivsi", "ceildivui"))
"""Printed with a divisor of 1 in place of 0."""
UNARY: dict[str, tuple[str, ...]] = {
    "arith.negf": FLOATS,
    **{f"math.{op}": FLOATS for op in ("absf", "ceil", "floor", "sqrt")},
    **{f"math.{op}": APPROXIMABLE for op in ("exp", "exp2", "log", "log2", "rsqrt", "tanh", "sin", "cos")},
    "math.absi": INTEGERS,
}
FLOAT_PREDICATES = ("oeq", "one", "olt", "ole", "ogt", "oge", "ueq", "une", "ult", "ule", "ugt", "uge")
INTEGER_PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge")
REDUCTIONS = ("sum", "prod", "max", "min", "argmax", "argmin")


def _steps(n: int, kind: str, floats: bool) -> tuple[str, ...]:
    """(a, b) then (c, d) is (a·c, c·b + d): not commutative, and exact where integers wrap."""
    return (f"%p{n} = arith.muli %a{n}, %c{n} : {kind}", f"%t{n} = arith.muli %c{n}, %b{n} : {kind}", f"%q{n} = arith.addi %t{n}, %d{n} : {kind}")


def _latest(n: int, kind: str, floats: bool) -> tuple[str, ...]:
    """The last that is not zero, and what stands beside it."""
    zero, differs = ("0.0", "une") if floats else ("0", "ne")
    return (
        f"%z{n} = arith.constant {zero} : {kind}", f"%m{n} = tile.cmp {differs} %c{n}, %z{n} : {kind} -> i1",
        f"%p{n} = tile.select %m{n}, %c{n}, %a{n} : i1, {kind}", f"%q{n} = tile.select %m{n}, %d{n}, %b{n} : i1, {kind}",
    )  # fmt: skip


def _extremes(n: int, kind: str, floats: bool) -> tuple[str, ...]:
    """The greatest of one tile and the least of the other."""
    most, least = ("arith.maximumf", "arith.minimumf") if floats else ("arith.maxsi", "arith.minsi")
    return (f"%p{n} = {most} %a{n}, %c{n} : {kind}", f"%q{n} = {least} %b{n}, %d{n} : {kind}")


COMBINING = {"steps": _steps, "latest": _latest, "extremes": _extremes}
"""Functions for scans and folds, exact in whatever way they are associated: what they make of %a, %b and %c, %d is %p, %q."""
DOTS = tuple(all_dot_types())
"""What a dot may multiply and sum in."""
EFFECTS = ("tile.store", "tile.store_indexed", "tile.atomic", "tile.print", "tile.assert", "tile.sum_parts")
"""Operations that do something although nobody uses a result."""
ATOMICS: dict[str, tuple[str, ...]] = {
    "add": ("i32", "i64", "f32", "f64", "f16", "bf16"), **dict.fromkeys(("max", "min", "exchange", "cas"), ("i32", "i64", "f32")),
    **dict.fromkeys(("and", "or", "xor"), ("i32", "i64")),
}  # fmt: skip
"""Atomic updates -> the element types that a target has them for (bf16: of sm_90 on)."""
INLINE: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("add.s32 $0, $1, $2;", ("i32",), ("i32", "i32")),
    ("sub.s32 $0, $2, $3; xor.b32 $1, $0, $2;", ("i32", "i32"), ("i32", "i32")),
    ("setp.lt.s32 %p, $1, $2; selp.b32 $0, $1, 7, %p;", ("i32",), ("i32", "i32")),
    ("setp.lt.s32 $0, $1, 3;", ("i1",), ("i32",)),
    ("not.pred $0, $1;", ("i1",), ("i1",)),
    ("and.b64 $0, $1, $2;", ("i64",), ("i64", "i64")),
    ("xor.b16 $0, $1, $2;", ("i16",), ("i16", "i16")),
    ("xor.b32 %t, $1, 0x80000000; max.f32 $0, %t, $2;", ("f32",), ("f32", "f32")),
    ("xor.b16 $0, $1, 0x8000;", ("f16",), ("f16",)),
    ("xor.b16 $0, $1, 0x8000;", ("bf16",), ("bf16",)),
)
"""Inline PTX: (text, element types of the results, of the operands)."""
MOST_PRINTED = 16
"""Elements of a tile that is printed."""
MAX_ELEMENTS = 16384
MAX_WHILE_TRIPS = 3


class IllTyped(Exception):
    """The program is no program; a change made it so."""



@dataclass(frozen=True, slots=True)
class Type:
    """A tile of `element`s; a scalar without a shape."""

    element: str
    shape: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"tensor<{'x'.join(map(str, self.shape))}x{self.element}>" if self.shape else self.element


INDEX = Type("index")


@dataclass(slots=True)
class Body:
    """Values that it starts with, nodes in order, values that it ends with."""

    args: list[int]
    nodes: list[Node] = field(default_factory=list)
    yields: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Node:
    """An operation: `results` and `args` are numbers of values. What `attrs` holds, the method of `_Renderer` for `op`
    says."""

    op: str
    args: list[int]
    results: list[int]
    attrs: dict[str, Any] = field(default_factory=dict)
    bodies: list[Body] = field(default_factory=list)


@dataclass(slots=True)
class Array:
    """An input, or with `own` an array of which each block has a part of this shape. `view`: 'dense', 'transposed'
    (strides in reverse order), 'sliced' (of a larger array, steps of 2) or 'repeated' (stride 0 in dimension 0).
    `data`: what it holds, see `check.fill`."""

    name: str
    element: str
    shape: tuple[int, ...]
    view: str = "dense"
    data: str = "small"
    own: bool = False


@dataclass(slots=True)
class Program:
    """`grid` and `trips`: extents that only the launch knows. The grid's coordinates are the values -1, -2 … `warps`:
    stated, or None for the compiler to choose. `noalias`: whether arguments say so (they never overlap)."""

    seed: int
    grid: tuple[int, ...]
    trips: tuple[int, ...]
    arrays: list[Array]
    body: Body
    warps: int | None = None
    noalias: bool = False

    def nodes(self) -> Iterator[tuple[Body, int, Node]]:
        """Every node with the body it is in and its place there, outer before inner."""

        def walk(body: Body) -> Iterator[tuple[Body, int, Node]]:
            for place, node in enumerate(body.nodes):
                yield body, place, node
                for inner in node.bodies:
                    yield from walk(inner)

        yield from walk(self.body)


@dataclass(frozen=True, slots=True)
class Output:
    name: str
    element: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Rendered:
    """A module's text, its output arrays, and the types of all values."""

    text: str
    outputs: tuple[Output, ...]
    types: dict[int, Type]


def memref(element: str, rank: int, dense: bool = False) -> str:
    strides = ["?"] * (rank - 1) + ["1" if dense else "?"]
    return f"memref<{'?x' * rank}{element}, strided<[{', '.join(strides)}]>>"


def render(program: Program) -> Rendered:
    """The program's text. Raises IllTyped."""
    return _Renderer(program).render()


def require(condition: object) -> None:
    if not condition:
        raise IllTyped


class _Renderer:
    """Prints nodes, one method for each kind, inferring the types of their results on the way."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.types: dict[int, Type] = {-1 - axis: INDEX for axis in range(len(program.grid))}
        self.lines: list[str] = []
        self.outputs: list[Output] = []
        self.arrays = {array.name: array for array in program.arrays}
        self.used: dict[str, None] = {}
        self.loops: list[tuple[int, int]] = []  # counter and upper bound of each loop round the place, outermost first
        self.stores: dict[int, tuple[Output, str, str, Type]] = {}
        self.fresh = 0
        self.depth = 1

    def render(self) -> Rendered:
        self.body(self.program.body)
        require(self.outputs)
        ruler = [
            *(f"G{axis}" for axis in range(len(self.program.grid))),
            *(f"T{i}" for i in range(len(self.program.trips))),
        ]
        arguments = [f"%ruler: {memref('i8', len(ruler))} [{', '.join(ruler)}]"]
        noalias = " {noalias}" if self.program.noalias else ""
        for name in self.used:
            array = self.arrays[name]
            if array.own:
                continue
            dense = array.view in ("dense", "repeated")
            dims = ", ".join(f"{name}_{axis}" for axis in range(len(array.shape)))
            arguments.append(f"%{name}: {memref(array.element, len(array.shape), dense)} [{dims}]{noalias}")
        for output in self.outputs:
            dims = ", ".join(f"{output.name}_{axis}" for axis in range(len(output.shape)))
            arguments.append(f"%{output.name}: {memref(output.element, len(output.shape), True)} [{dims}]{noalias}")
        bound = ", ".join(f"%t{i} = T{i}" for i in range(len(self.program.trips)))
        dims_text = f" dims({bound})" if bound else ""
        grid = ", ".join(f"%g{axis} = G{axis}" for axis in range(len(self.program.grid)))
        head = ",\n    ".join(arguments)
        warps = "" if self.program.warps is None else f" attributes {{warps = {self.program.warps} : i64}}"
        text = f"tile.kernel @fuzz({head})\n   {dims_text} grid({grid}){warps} {{\n" + "\n".join(self.lines) + "\n}\n"
        return Rendered(text, tuple(self.outputs), self.types)

    # --- Helpers ---

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def name(self, value: int) -> str:
        return f"%v{value}" if value >= 0 else f"%g{-1 - value}"

    def temporary(self, text: str) -> str:
        """A line that defines a value that is no value of the tree; gives its name."""
        self.fresh += 1
        self.line(f"%x{self.fresh} = {text}")
        return f"%x{self.fresh}"

    def typed(self, value: int) -> Type:
        require(value in self.types)
        return self.types[value]

    def define(self, node: Node, kind: Type, text: str) -> None:
        require(prod(kind.shape) <= MAX_ELEMENTS and all(extent >= 1 for extent in kind.shape))
        self.types[node.results[0]] = kind
        self.line(f"{self.name(node.results[0])} = {text}")

    def body(self, body: Body) -> None:
        for node in body.nodes:
            kind = node.op.partition(".")[2] if node.op.startswith(("tile.", "scf.")) else node.op
            if node.op in BINARY:
                self.binary(node)
            elif node.op in UNARY:
                self.unary(node)
            elif node.op in DIVISIONS:
                self.division(node)
            else:
                getattr(self, f"op_{kind.replace('.', '_')}")(node)

    # --- Elementwise ---

    def binary(self, node: Node) -> None:
        kind = self.typed(node.args[0])
        require(kind == self.typed(node.args[1]) and kind.element in BINARY[node.op])
        self.define(node, kind, f"{node.op} {', '.join(map(self.name, node.args))} : {kind}")

    def unary(self, node: Node) -> None:
        kind = self.typed(node.args[0])
        require(kind.element in UNARY[node.op])
        self.define(node, kind, f"{node.op} {self.name(node.args[0])} : {kind}")

    def division(self, node: Node) -> None:
        kind = self.typed(node.args[0])
        require(kind == self.typed(node.args[1]) and kind.element in INTEGERS)
        zero, one = (self.splat(kind, text) for text in ("0", "1"))
        divisor = self.name(node.args[1])
        is_zero = self.temporary(f"tile.cmp eq {divisor}, {zero} : {kind} -> {Type('i1', kind.shape)}")
        safe = self.temporary(f"tile.select {is_zero}, {one}, {divisor} : {Type('i1', kind.shape)}, {kind}")
        self.define(node, kind, f"{node.op} {self.name(node.args[0])}, {safe} : {kind}")

    def splat(self, kind: Type, text: str) -> str:
        scalar = self.temporary(f"arith.constant {text} : {kind.element}")
        return self.temporary(f"tile.full {scalar} : {kind.element} -> {kind}") if kind.shape else scalar

    def op_math_fma(self, node: Node) -> None:
        kind = self.typed(node.args[0])
        require(all(self.typed(arg) == kind for arg in node.args) and kind.element in FLOATS)
        self.define(node, kind, f"math.fma {', '.join(map(self.name, node.args))} : {kind}")

    def op_cmp(self, node: Node) -> None:
        """`predicate`."""
        kind, predicate = self.typed(node.args[0]), node.attrs["predicate"]
        require(kind == self.typed(node.args[1]) and kind != INDEX)
        require(predicate in (FLOAT_PREDICATES if kind.element in FLOATS else INTEGER_PREDICATES))
        require(kind.element != "i1" or predicate in ("eq", "ne"))
        result = Type("i1", kind.shape)
        self.define(node, result, f"tile.cmp {predicate} {', '.join(map(self.name, node.args))} : {kind} -> {result}")

    def op_select(self, node: Node) -> None:
        condition, kind = self.typed(node.args[0]), self.typed(node.args[1])
        require(condition == Type("i1", kind.shape) and kind == self.typed(node.args[2]))
        self.define(node, kind, f"tile.select {', '.join(map(self.name, node.args))} : {condition}, {kind}")

    def op_cast(self, node: Node) -> None:
        """`element`, `saturate`."""
        kind = self.typed(node.args[0])
        result = Type(node.attrs["element"], kind.shape)
        require(not node.attrs["saturate"] or result.element in FLOATS)
        word = "saturate " if node.attrs["saturate"] else ""
        self.define(node, result, f"tile.cast {word}{self.name(node.args[0])} : {kind} -> {result}")

    # --- Constants and shapes ---

    def op_constant(self, node: Node) -> None:
        """`element`, `text` (a number, or 'nan', 'inf', '-inf')."""
        element, text = node.attrs["element"], node.attrs["text"]
        op = f'tile.constant "{text}"' if text[-1] in "nf" else f"arith.constant {text}"
        self.define(node, Type(element), f"{op} : {element}")

    def op_zero(self, node: Node) -> None:
        """`type`: what the shrinker puts in the place of a value."""
        kind: Type = node.attrs["type"]
        text = "false" if kind.element == "i1" else "0.0" if kind.element in FLOATS else "0"
        scalar = self.temporary(f"arith.constant {text}" + ("" if text == "false" else f" : {kind.element}"))
        if kind.shape:
            self.define(node, kind, f"tile.full {scalar} : {kind.element} -> {kind}")
        else:
            self.define(
                node,
                kind,
                f"tile.select %always, {scalar}, {scalar} : i1, {kind.element}".replace("%always", self.true()),
            )

    def true(self) -> str:
        return self.temporary("arith.constant true")

    def op_coordinate(self, node: Node) -> None:
        """A grid coordinate or a loop's counter as an i32."""
        require(self.typed(node.args[0]) == INDEX)
        self.define(node, Type("i32"), f"tile.cast {self.name(node.args[0])} : index -> i32")

    def op_full(self, node: Node) -> None:
        """`shape`."""
        kind = self.typed(node.args[0])
        require(not kind.shape and kind != INDEX)
        result = Type(kind.element, node.attrs["shape"])
        self.define(node, result, f"tile.full {self.name(node.args[0])} : {kind} -> {result}")

    def op_iota(self, node: Node) -> None:
        """`element`, `shape`, `axis`."""
        result = Type(node.attrs["element"], node.attrs["shape"])
        require(node.attrs["axis"] < len(result.shape))
        self.define(node, result, f"tile.iota axis {node.attrs['axis']} : {result}")

    def op_expand(self, node: Node) -> None:
        """`axis`."""
        kind, axis = self.typed(node.args[0]), node.attrs["axis"]
        require(1 <= len(kind.shape) < 4 and axis <= len(kind.shape))
        result = Type(kind.element, (*kind.shape[:axis], 1, *kind.shape[axis:]))
        self.define(node, result, f"tile.expand {self.name(node.args[0])} axis {axis} : {kind} -> {result}")

    def op_broadcast(self, node: Node) -> None:
        """`extents`: for each dimension what it becomes where it is 1."""
        kind, extents = self.typed(node.args[0]), node.attrs["extents"]
        require(kind.shape and len(extents) == len(kind.shape))
        result = Type(kind.element, tuple(new if old == 1 else old for old, new in zip(kind.shape, extents)))
        self.define(node, result, f"tile.broadcast {self.name(node.args[0])} : {kind} -> {result}")

    def op_reshape(self, node: Node) -> None:
        """`how`: ('flatten',), ('merge', axis) with the next dimension, ('split', axis, factor)."""
        kind = self.typed(node.args[0])
        shape = list(kind.shape)
        require(shape)
        match node.attrs["how"]:
            case ("flatten",):
                shape = [prod(shape)]
            case ("merge", axis):
                require(axis + 1 < len(shape))
                shape[axis : axis + 2] = [shape[axis] * shape[axis + 1]]
            case ("split", axis, factor):
                require(axis < len(shape) < 4 and shape[axis] % factor == 0)
                shape[axis : axis + 1] = [shape[axis] // factor, factor]
        result = Type(kind.element, tuple(shape))
        self.define(node, result, f"tile.reshape {self.name(node.args[0])} : {kind} -> {result}")

    def op_transpose(self, node: Node) -> None:
        """`permutation`, and perhaps the text of a `layout` that the result is pinned to."""
        kind, order = self.typed(node.args[0]), node.attrs["permutation"]
        pinned = node.attrs.get("layout")
        require(sorted(order) == list(range(len(kind.shape))) and kind.shape)
        result = Type(kind.element, tuple(kind.shape[i] for i in order))
        word = f" {{layout = #layout.tv<{pinned}>}}" if pinned else ""
        self.define(node, result, f"tile.transpose {self.name(node.args[0])} {list(order)}{word} : {kind} -> {result}")

    def op_reduce(self, node: Node) -> None:
        """`kind`, `axis`."""
        kind, axis, what = self.typed(node.args[0]), node.attrs["axis"], node.attrs["kind"]
        require(axis < len(kind.shape) and kind.element in (*FLOATS, *INTEGERS))
        element = "i32" if what.startswith("arg") else kind.element
        result = Type(element, (*kind.shape[:axis], *kind.shape[axis + 1 :]))
        self.define(node, result, f"tile.reduce {what} {self.name(node.args[0])} axis {axis} : {kind} -> {result}")

    def op_scan(self, node: Node) -> None:
        """`kind`, `axis`, `exclusive`, `reverse`."""
        kind, axis, what = self.typed(node.args[0]), node.attrs["axis"], node.attrs["kind"]
        require(axis < len(kind.shape) and kind.element in (*FLOATS, *INTEGERS))
        how = (" reverse" if node.attrs["reverse"] else "") + (" exclusive" if node.attrs["exclusive"] else "")
        self.define(node, kind, f"tile.scan {what} {self.name(node.args[0])} axis {axis}{how} : {kind} -> {kind}")

    def op_combine(self, node: Node) -> None:
        """A scan or a fold (`fold`) by a function of COMBINING over two tiles; `axis`, `reverse`, `exclusive` of a scan; `second`: which result counts."""
        kind, axis, what = self.typed(node.args[0]), node.attrs["axis"], node.attrs["function"]
        require(axis < len(kind.shape) and kind.element in (*FLOATS, *INTEGERS) and self.typed(node.args[1]) == kind)
        floats = kind.element in FLOATS
        require(what in COMBINING and (what != "steps" or not floats))
        fold = node.attrs["fold"]
        result = Type(kind.element, (*kind.shape[:axis], *kind.shape[axis + 1 :])) if fold else kind
        require(prod(result.shape) <= MAX_ELEMENTS)
        self.types[node.results[0]] = result
        self.fresh += 1
        n = self.fresh
        names = [self.name(node.results[0]), f"%x{n}"]
        first, second = reversed(names) if node.attrs["second"] else names
        how = " reverse" if node.attrs["reverse"] and not fold else ""
        if node.attrs["exclusive"] and what == "steps" and not fold:
            self.line(f"%one{n} = arith.constant 1 : {kind.element}")
            self.line(f"%zero{n} = arith.constant 0 : {kind.element}")
            how += f" exclusive (%one{n}, %zero{n})"
        sources = ", ".join(map(self.name, node.args))
        self.line(f"{first}, {second} = tile.{'fold' if fold else 'scan'} ({sources}) axis {axis}{how} : ({kind}, {kind}) -> ({result}, {result}) {{")
        self.line(f"^bb0({', '.join(f'%{letter}{n}: {kind.element}' for letter in 'abcd')}):")
        for line in COMBINING[what](n, kind.element, floats):
            self.line(f"  {line}")
        self.line(f"  tile.yield %p{n}, %q{n} : {kind.element}, {kind.element}")
        self.line("}")

    def op_join(self, node: Node) -> None:
        a, b = (self.typed(arg) for arg in node.args)
        require(a == b and 1 <= len(a.shape) < 4)
        result = Type(a.element, (*a.shape, 2))
        self.define(node, result, f"tile.join {', '.join(map(self.name, node.args))} : {a}, {b} -> {result}")

    def op_split(self, node: Node) -> None:
        """`second`: whether that is the result; the other one is made and not used."""
        kind = self.typed(node.args[0])
        require(len(kind.shape) >= 2 and kind.shape[-1] == 2)
        result = Type(kind.element, kind.shape[:-1])
        require(prod(result.shape) <= MAX_ELEMENTS)
        self.types[node.results[0]] = result
        self.fresh += 1
        names = [self.name(node.results[0]), f"%x{self.fresh}"]
        first, second = reversed(names) if node.attrs["second"] else names
        self.line(f"{first}, {second} = tile.split {self.name(node.args[0])} : {kind} -> {result}, {result}")

    def op_histogram(self, node: Node) -> None:
        """`bins`."""
        kind = self.typed(node.args[0])
        require(kind.element == "i32" and kind.shape)
        result = Type("i32", (node.attrs["bins"],))
        self.define(node, result, f"tile.histogram {self.name(node.args[0])} : {kind} -> {result}")

    def op_gather(self, node: Node) -> None:
        """`axis`; `wrap`: indices are taken modulo one more than the extent, so that most are inside."""
        kind, index = (self.typed(arg) for arg in node.args)
        axis = node.attrs["axis"]
        require(index.element in ("i32", "i64") and axis < len(kind.shape) == len(index.shape))
        require(all(a == b for dim, (a, b) in enumerate(zip(kind.shape, index.shape)) if dim != axis))
        result = Type(kind.element, index.shape)
        place = self.name(node.args[1])
        if node.attrs["wrap"]:
            place = self.temporary(f"arith.remui {place}, {self.splat(index, str(kind.shape[axis] + 1))} : {index}")
        self.define(node, result, f"tile.gather {self.name(node.args[0])}[{place}] axis {axis} : {kind}[{index}] -> {result}")

    def op_dot(self, node: Node) -> None:
        """`precision`: of f32 operands "tf32", else ""."""
        a, b, c = (self.typed(arg) for arg in node.args)
        precision = node.attrs["precision"]
        require(len(a.shape) == len(b.shape) == len(c.shape) >= 2)
        require(any((a.element, b.element, c.element, precision) == (t.lhs, t.rhs, t.acc, t.precision) for t in DOTS))
        require(a.shape[:-2] == b.shape[:-2] == c.shape[:-2])
        require(a.shape[-1] == b.shape[-2] and (a.shape[-2], b.shape[-1]) == c.shape[-2:])
        word = f' {{precision = "{precision}"}}' if precision else ""
        self.define(node, c, f"tile.dot {', '.join(map(self.name, node.args))}{word} : {a}, {b} -> {c}")

    # --- Memory ---

    def starts(self, base: Sequence[int], terms: Sequence[tuple[int, Sequence[int]]]) -> str:
        """Indices `base` + Σ value · coefficients, where `terms` are values with one coefficient for each dimension."""
        names = []
        for axis, constant in enumerate(base):
            total = self.temporary(f"arith.constant {constant} : index")
            for value, coefficients in terms:
                if coefficients[axis]:
                    require(self.typed(value) == INDEX)
                    factor = self.temporary(f"arith.constant {coefficients[axis]} : index")
                    part = self.temporary(f"arith.muli {self.name(value)}, {factor} : index")
                    total = self.temporary(f"arith.addi {total}, {part} : index")
            names.append(total)
        return ", ".join(names)

    def op_load(self, node: Node) -> None:
        """`array`, `shape`, `dims`, `base`, `coefficients` (for each index operand), `fill`: whether the first operand
        is what is past the edges."""
        array = self.use(node.attrs["array"])
        operands = list(node.args)
        fill = operands.pop(0) if node.attrs["fill"] else None
        kind = Type(array.element, node.attrs["shape"])
        require(fill is None or self.typed(fill) == Type(array.element))
        at, dims, source = self.window(array, node.attrs, operands)
        word = "" if fill is None else f" else {self.name(fill)}"
        self.define(node, kind, f"tile.load %{array.name}[{at}]{word} dims {dims} : {source} -> {kind}")

    def use(self, name: str) -> Array:
        array = self.arrays[name]
        if name not in self.used and array.own:
            self.outputs.append(Output(name, array.element, (*self.program.grid, *array.shape)))
        self.used[name] = None
        return array

    def window(self, array: Array, attrs: dict[str, Any], indices: Sequence[int]) -> tuple[str, list[int], str]:
        """Indices, dims and type of an access that `attrs` (`base`, `coefficients`, `dims`) describe."""
        at = self.starts(attrs["base"], list(zip(indices, attrs["coefficients"])))
        if not array.own:
            return at, list(attrs["dims"]), memref(array.element, len(array.shape), array.view in ("dense", "repeated"))
        leading = [-1 - axis for axis in range(len(self.program.grid))]
        dims = [len(leading) + dim for dim in attrs["dims"]]
        return f"{self.names(leading)}, {at}", dims, memref(array.element, len(leading) + len(array.shape), True)

    def op_store(self, node: Node) -> None:
        """`style` ('slot' or 'tile'), `shift` and `excess` (for each dimension of a tile). Or `style` 'own', with
        `array`, `dims`, `base` and `coefficients` (for each index operand, after the value)."""
        kind = self.typed(node.args[0])
        require(kind != INDEX)
        if node.attrs["style"] == "own":
            array = self.use(node.attrs["array"])
            require(array.element == kind.element and len(node.attrs["dims"]) == len(kind.shape))
            at, dims, target = self.window(array, node.attrs, node.args[1:])
            self.line(f"tile.store {self.name(node.args[0])}, %{array.name}[{at}] dims {dims} : {kind}, {target}")
            return
        rank, grid = len(kind.shape), self.program.grid
        name = f"out{sum(not output.name.startswith('own') for output in self.outputs)}"
        if node.attrs["style"] == "tile":
            require(rank >= len(grid))
            shift, excess = node.attrs["shift"][:rank], node.attrs["excess"][:rank]
            require(len(shift) == rank)
            blocks = [*grid, *[1] * (rank - len(grid))]
            shape = tuple(max(1, count * extent + more) for count, extent, more in zip(blocks, kind.shape, excess))
            terms = [
                (-1 - axis, [kind.shape[axis] if d == axis else 0 for d in range(rank)]) for axis in range(len(grid))
            ]
            at, dims = self.starts(shift, terms), list(range(rank))
        else:
            leading = [*(-1 - axis for axis in range(len(grid))), *(counter for counter, _ in self.loops)]
            shape = (*grid, *(max(1, upper) for _, upper in self.loops), *kind.shape)
            zeros = self.starts([0] * rank, [])
            at = ", ".join([*map(self.name, leading), *([zeros] if rank else [])])
            dims = list(range(len(leading), len(shape)))
        name, target = self.output(kind.element, shape).name, memref(kind.element, len(shape), True)
        self.line(f"tile.store {self.name(node.args[0])}, %{name}[{at}] dims {dims} : {kind}, {target}")
        if node.results:
            # A block reads its own stores back.
            self.define(node, kind, f"tile.load %{name}[{at}] dims {dims} : {target} -> {kind}")

    # --- Computed places ---

    def place(self, array: Array | Output, attrs: dict[str, Any], tiles: Sequence[int], shape: tuple[int, ...]) -> tuple[str, str, list[int]]:
        """(indices, types of the array and of its indices, dims) of an access that `attrs` describe: `places`, for each dimension of the array a
        constant or None for the next of `tiles`, `dims`, and `wrap`: whether tiles of indices are taken modulo the array's extents."""
        leading = [-1 - axis for axis in range(len(self.program.grid))] if isinstance(array, Array) and array.own else []
        names, kinds = [self.name(value) for value in leading], ["index"] * len(leading)
        rest = list(tiles)
        require(len(attrs["places"]) == len(array.shape))
        for extent, start in zip(array.shape, attrs["places"]):
            if start is not None:
                names.append(self.temporary(f"arith.constant {start} : index"))
                kinds.append("index")
                continue
            require(rest)
            value = rest.pop(0)
            kind, name = self.typed(value), self.name(value)
            require(kind.element in ("i32", "i64") and len(kind.shape) == len(shape) > 0)
            require(all(have in (1, want) for have, want in zip(kind.shape, shape)))
            if attrs["wrap"]:
                name = self.temporary(f"arith.remui {name}, {self.splat(kind, str(extent))} : {kind}")
            names.append(name)
            kinds.append(str(kind))
        require(not rest)
        rank, dims = len(array.shape), attrs["dims"]
        sliced = [dim for dim in dims if dim >= 0]
        require(len(dims) == len(shape) and len(set(sliced)) == len(sliced))
        require(all(dim < rank and attrs["places"][dim] is not None for dim in sliced))
        dense = not isinstance(array, Array) or array.own or array.view in ("dense", "repeated")
        types = f"{memref(array.element, len(leading) + rank, dense)}[{', '.join(kinds)}]"
        return ", ".join(names), types, [dim + len(leading) if dim >= 0 else dim for dim in dims]

    def op_load_indexed(self, node: Node) -> None:
        """`array`, `shape`, `fill` as of a load, and what `place` takes; operands are the tiles of indices."""
        array, operands = self.use(node.attrs["array"]), list(node.args)
        fill = operands.pop(0) if node.attrs["fill"] else None
        kind = Type(array.element, node.attrs["shape"])
        require(fill is None or self.typed(fill) == Type(array.element))
        at, types, dims = self.place(array, node.attrs, operands, kind.shape)
        word = "" if fill is None else f" else {self.name(fill)}"
        self.define(node, kind, f"tile.load_indexed %{array.name}[{at}]{word} dims {dims} : {types} -> {kind}")

    def output(self, element: str, shape: tuple[int, ...]) -> Output:
        """A new output array."""
        name = f"out{sum(not output.name.startswith('own') for output in self.outputs)}"
        self.outputs.append(Output(name, element, shape))
        return self.outputs[-1]

    def op_store_indexed(self, node: Node) -> None:
        """To a slot: element i along `axis` goes to place (i·`factor` + `start`) mod `modulus` of `room`; where factor and modulus have no common
        divisor, and the modulus is no less than the extent, no two go to one."""
        kind, axis, attrs = self.typed(node.args[0]), node.attrs["axis"], node.attrs
        require(kind != INDEX and axis < len(kind.shape))
        extent, rank = kind.shape[axis], len(kind.shape)
        require(attrs["modulus"] >= extent and gcd(attrs["factor"], attrs["modulus"]) == 1 and attrs["room"] >= 1)
        leading = [*(-1 - a for a in range(len(self.program.grid))), *(counter for counter, _ in self.loops)]
        counts = (*self.program.grid, *(max(1, upper) for _, upper in self.loops))
        output = self.output(kind.element, (*counts, *kind.shape[:axis], attrs["room"], *kind.shape[axis + 1 :]))
        places = Type("i32", (extent,))
        name = self.temporary(f"tile.iota axis 0 : {places}")
        for op, number in (("muli", "factor"), ("addi", "start"), ("remui", "modulus")):
            name = self.temporary(f"arith.{op} {name}, {self.splat(places, str(attrs[number]))} : {places}")
        for dim in range(rank):
            if dim != axis:
                wide = Type("i32", (*places.shape[:dim], 1, *places.shape[dim:]))
                name, places = self.temporary(f"tile.expand {name} axis {dim} : {places} -> {wide}"), wide
        zero = self.temporary("arith.constant 0 : index")
        at = [*map(self.name, leading), *(name if dim == axis else zero for dim in range(rank))]
        kinds = [*["index"] * len(leading), *(str(places) if dim == axis else "index" for dim in range(rank))]
        dims = [-1 if dim == axis else len(leading) + dim for dim in range(rank)]
        self.line(
            f"tile.store_indexed {self.name(node.args[0])}, %{output.name}[{', '.join(at)}] dims {dims} : {kind}, "
            f"{memref(kind.element, len(output.shape), True)}[{', '.join(kinds)}]"
        )

    def op_atomic(self, node: Node) -> None:
        """`kind`, `extents` of the array, and what `place` takes. Operands: the value, what `cas` expects, the tiles of indices. The result, if it has
        one, is what was found."""
        value, *operands = node.args
        kind, what = self.typed(value), node.attrs["kind"]
        require(kind.element in ATOMICS[what] and all(extent >= 1 for extent in node.attrs["extents"]))
        word = ""
        if what == "cas":
            expected = operands.pop(0)
            require(self.typed(expected) == kind)
            word = f" expecting {self.name(expected)}"
        output = self.output(kind.element, node.attrs["extents"])
        at, types, dims = self.place(output, node.attrs, operands, kind.shape)
        text = f"tile.atomic {what} {self.name(value)}{word}, %{output.name}[{at}] dims {dims} : {kind}, {types} -> {kind}"
        if node.results:
            self.define(node, kind, text)
        else:
            self.temporary(text)

    # --- Messages, promises, instructions ---

    def op_print(self, node: Node) -> None:
        kinds = [self.typed(arg) for arg in node.args]
        require(all(prod(kind.shape) <= MOST_PRINTED for kind in kinds))
        at = self.names([-1 - axis for axis in range(len(self.program.grid))])
        holes = ", ".join("{}" for _ in kinds)
        types = f" : {', '.join(map(str, kinds))}" if kinds else ""
        self.line(f'tile.print "here: {holes}" ({self.names(node.args)}) at [{at}]{types}')

    def op_assert(self, node: Node) -> None:
        """That a grid coordinate or a loop's counter is not negative."""
        require(self.typed(node.args[0]) == INDEX)
        zero = self.temporary("arith.constant 0 : index")
        holds = self.temporary(f"tile.cmp sge {self.name(node.args[0])}, {zero} : index -> i1")
        self.line(f'tile.assert {holds}, "counters are not negative" at [{self.names([-1 - axis for axis in range(len(self.program.grid))])}]')

    def op_assume(self, node: Node) -> None:
        """A grid coordinate or a loop's counter times `factor`, known to be a multiple."""
        require(self.typed(node.args[0]) == INDEX)
        factor = node.attrs["factor"]
        number = self.temporary(f"arith.constant {factor} : index")
        product = self.temporary(f"arith.muli {self.name(node.args[0])}, {number} : index")
        self.define(node, INDEX, f"tile.assume {product} divisible {factor} at_least 0 : index")

    def op_inline_ptx(self, node: Node) -> None:
        """`which` of INLINE."""
        text, results, operands = INLINE[node.attrs["which"]]
        kinds = [self.typed(arg) for arg in node.args]
        require(kinds and [kind.element for kind in kinds] == list(operands) and len({kind.shape for kind in kinds}) == 1)
        made = [Type(element, kinds[0].shape) for element in results]
        require(len(made) == len(node.results))
        self.types.update(zip(node.results, made))
        types = ", ".join(map(str, made))
        self.line(f'{self.names(node.results)} = tile.inline_ptx "{text}" ({self.names(node.args)}) : ({self.kinds(node.args)}) -> ({types})')

    def op_sum_parts(self, node: Node) -> None:
        """The blocks with one first coordinate add up a tile of 32-bit elements, in the order of their second; the last stores it. Once, outside of loops."""
        kind, grid = self.typed(node.args[0]), self.program.grid
        require(kind.shape and kind.element in ("i32", "f32") and len(grid) == 2 and grid[1] >= 2 and self.depth == 1)
        self.fresh += 1
        total, last = f"%x{self.fresh}", f"%last{self.fresh}"
        self.line(f"{total}, {last} = tile.sum_parts {self.name(node.args[0])} at %g0 part %g1 of {grid[1]} : {kind}")
        output = self.output(kind.element, (grid[0], *kind.shape))
        zeros = self.starts([0] * len(kind.shape), [])
        self.line(f"scf.if {last} {{")
        dims, target = list(range(1, 1 + len(kind.shape))), memref(kind.element, 1 + len(kind.shape), True)
        self.line(f"  tile.store {total}, %{output.name}[%g0, {zeros}] dims {dims} : {kind}, {target}")
        self.line("}")

    # --- Control ---

    def names(self, values: Sequence[int]) -> str:
        return ", ".join(map(self.name, values))

    def kinds(self, values: Sequence[int]) -> str:
        return ", ".join(str(self.typed(value)) for value in values)

    def nested(self, body: Body) -> None:
        self.depth += 1
        self.body(body)
        self.depth -= 1

    def ends(self, body: Body, kinds: Sequence[Type]) -> None:
        require([self.typed(value) for value in body.yields] == list(kinds))
        if kinds:
            self.line(f"  scf.yield {self.names(body.yields)} : {self.kinds(body.yields)}")

    def op_for(self, node: Node) -> None:
        """`start`, `step`, `upper`: ('trips', i) or a number. The body takes the counter and the carried values."""
        upper, body = node.attrs["upper"], node.bodies[0]
        if isinstance(upper, tuple):
            require(upper[1] < len(self.program.trips))
            limit, extent = f"%t{upper[1]}", self.program.trips[upper[1]]
        else:
            limit, extent = self.temporary(f"arith.constant {upper} : index"), upper
        start, step = (self.temporary(f"arith.constant {node.attrs[key]} : index") for key in ("start", "step"))
        counter, *carried = body.args
        require(len(carried) == len(node.args) == len(node.results))
        kinds = [self.typed(arg) for arg in node.args]
        self.types[counter] = INDEX
        self.types.update(zip(carried, kinds))
        head = f"scf.for {self.name(counter)} = {start} to {limit} step {step}"
        if kinds:
            pairs = ", ".join(f"{self.name(inner)} = {self.name(outer)}" for inner, outer in zip(carried, node.args))
            head = f"{self.names(node.results)} = {head} iter_args({pairs}) -> ({', '.join(map(str, kinds))})"
        self.line(head + " {")
        self.loops.append((counter, extent))
        self.nested(body)
        self.loops.pop()
        self.ends(body, kinds)
        self.line("}")
        self.types.update(zip(node.results, kinds))

    def op_while(self, node: Node) -> None:
        """The first operand, an i32, cut to 0 … MAX_WHILE_TRIPS, is the number of trips; the others are carried. The
        body takes the i32 counter and the carried values."""
        body = node.bodies[0]
        require(self.typed(node.args[0]) == Type("i32"))
        kinds = [self.typed(arg) for arg in node.args[1:]]
        counter, *carried = body.args
        require(len(carried) == len(kinds) == len(node.results) and kinds)
        most, zero, one = (self.temporary(f"arith.constant {n} : i32") for n in (MAX_WHILE_TRIPS, 0, 1))
        limit = self.temporary(f"arith.minsi {self.name(node.args[0])}, {most} : i32")
        self.types.update(zip((counter, *carried), (Type("i32"), *kinds)))
        before = [f"%w{value}" for value in body.args]
        pairs = ", ".join(f"{a} = {b}" for a, b in zip(before, (zero, *map(self.name, node.args[1:]))))
        types = ", ".join(map(str, (Type("i32"), *kinds)))
        self.fresh += 1
        end = f"%x{self.fresh}"
        self.line(f"{end}, {self.names(node.results)} = scf.while ({pairs}) : ({types}) -> ({types}) {{")
        more = self.temporary(f"tile.cmp slt {before[0]}, {limit} : i32 -> i1")
        self.line(f"  scf.condition({more}) {', '.join(before)} : {types}")
        self.line("} do {")
        arguments = ", ".join(f"{self.name(value)}: {self.typed(value)}" for value in body.args)
        self.line(f"^bb0({arguments}):")
        self.nested(body)
        require([self.typed(value) for value in body.yields] == kinds)
        following = self.temporary(f"arith.addi {self.name(counter)}, {one} : i32")
        self.line(f"  scf.yield {following}, {self.names(body.yields)} : {types}")
        self.line("}")
        self.types.update(zip(node.results, kinds))

    def op_if(self, node: Node) -> None:
        """Bodies: then, else."""
        require(self.typed(node.args[0]) == Type("i1"))
        head = f"scf.if {self.name(node.args[0])}"
        before = len(self.lines)
        self.line("")
        self.nested(node.bodies[0])
        kinds = [self.typed(value) for value in node.bodies[0].yields]
        require(len(kinds) == len(node.results))
        self.ends(node.bodies[0], kinds)
        if kinds:
            head = f"{self.names(node.results)} = {head} -> ({', '.join(map(str, kinds))})"
        self.lines[before] = "  " * self.depth + head + " {"
        self.line("} else {")
        self.nested(node.bodies[1])
        self.ends(node.bodies[1], kinds)
        self.line("}")
        self.types.update(zip(node.results, kinds))
