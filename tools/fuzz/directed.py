"""Programs that aim at rows of the instruction table: random ones rarely have dots as wide as 248 columns, or arrays of five dimensions.

A directed program has a part for each row that is wanted. For a dot's, a dot of its types, of as many columns, from an array of as many dimensions. For an
access's, a tile of elements of its size that is turned about, each time pinned to a layout drawn at random, so that it goes through registers, shuffles or
shared memory in many ways. All the rest is random: rows, steps and tails of K, how operands are stored and where they start, what is computed of them
before and after, loops round them. Whether a row was used in the end, only the compiled program says (`bench/random_programs.py` counts).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import prod

from ...dialects.layout import Mode, TVLayout
from ...passes.dot_rules import WGMMA_NARROW
from ...passes.dot_types import DotTypes
from ...passes.offered_rows import Offered
from . import program as p
from .generate import ELEMENTS, Generator, Scope, own_scope
from .program import Array, Body, Node, Program, Type

ROWS, MORE_ROWS = (64, 64, 64, 61, 57), (100, 128)
"""For one warpgroup, and for two, which is what the largest of a program's dots decides. Fewer would rather be columns of wgmmas whose rows are the columns."""
BY_BITS = {1: ("i1",), 8: ("i8", "f8E4M3FN"), 16: ("f16", "bf16", "i16"), 32: ("f32", "i32"), 64: ("f64", "i64")}
MOST_PINNED = 1024
"""Elements of a tile with a pinned layout, for each warp."""
MOST_OPERAND = 8192
"""Elements of an operand: it has a buffer of its own in shared memory, several of them side by side."""


def directed(seed: int, wanted: Sequence[Offered]) -> Program:
    """A program of a dot for each of `wanted`."""
    return _Directed(seed, wanted).program(0)


class _Directed(Generator):
    def __init__(self, seed: int, wanted: Sequence[Offered]) -> None:
        super().__init__(seed)
        self.random = random.Random(f"directed {seed}")
        self.wanted = wanted
        widest = max((offered.columns for offered in wanted), default=0)
        self.rows = MORE_ROWS if MORE_ROWS[-1] * widest <= p.MAX_ELEMENTS and self.random.random() < 0.3 else ROWS

    def program(self, size: int) -> Program:
        del size
        few = not any(offered.columns for offered in self.wanted)  # by mma.sync, also where there is wgmma
        pins = any(offered.bits and not offered.element for offered in self.wanted)  # layouts are for so many threads
        self.warps = self.random.choice((1, 2, 4, 4) if pins else (1, 2, 2, 4, None) if few else (None, None, None, None, 4))
        self.grid = tuple(self.random.choice((1, 1, 2)) for _ in range(self.random.choice((1, 1, 2))))
        self.trips = tuple(self.random.choice((0, 1, 2, 3)) for _ in range(2))
        scope = Scope(indices=[-1 - axis for axis in range(len(self.grid))])
        for offered in self.wanted:
            if offered.element:
                for _ in range(2 if offered.opcode.startswith("atom.") else 1):  # what the result is stored by decides with
                    self.update(self.body, scope, offered)
            elif offered.bits:
                self.turn_about(self.body, scope, offered)
            else:
                self.aim(self.body, scope, offered)
        return Program(self.seed, self.grid, self.trips, self.arrays, self.body, self.warps, self.random.random() < 0.5)

    def aim(self, body: Body, scope: Scope, offered: Offered) -> None:
        """A dot that could use the row, stored."""
        rank = offered.array_rank or 2
        whole = offered.array_rank > 0  # TMA writes whole boxes of what is aligned
        types = offered.types or self.random.choice([t for t in p.DOTS if t.kind.tensor_core and t.kind.size == 2])
        n = offered.columns or self.random.choice((8, 16, 24, 40, 64))
        m, step = self.random.choice(self.rows), types.kind.step
        if self.random.random() < 0.3:  # as wide once it is rounded up
            n -= self.random.randrange(16 if types.kind.integer and n > WGMMA_NARROW else 8)
        k = step * self.random.choice((1, 1, 2, 3)) + (0 if whole else self.random.choice((0, 0, 0, step // 2, 1)))
        while k > step and max(m, n) * k > MOST_OPERAND:
            k -= step
        result = Type(types.acc, (m, n))
        if self.random.random() < 0.25:
            start = self.of_type(body, scope, result)

            def trip(inner: Scope, nested: Body, args: list[int]) -> None:
                nested.yields = [self.multiply(nested, inner, types, (m, n, k), rank, args[0])]

            value = self.for_loop(body, scope, [(start, result)], trip)[0]
        else:
            value = self.multiply(body, scope, types, (m, n, k), rank, None)
        for _ in range(self.random.choice((0, 0, 1, 2))):
            self.random.choice((self.binary, self.unary, self.cast, self.reduce, self.move))(body, Scope([(value, result)], scope.indices, 2))
        self.store(body, scope, value, result)

    def update(self, body: Body, scope: Scope, offered: Offered) -> None:
        """Rows of a tile added to rows of an array, by a tile of indices: neighbours in a row have one index, and start where as many as are wanted are aligned."""
        together = offered.bits // (32 if offered.element == "f32" else 16)
        columns = together * self.random.choice((2, 4, 8, 16))
        rows = 32 * (self.warps or 4) * together // columns * self.random.choice((1, 1, 2)) + self.random.choice((0, 0, 3))  # enough for all threads
        kind = Type(offered.element, (rows, columns))
        value = self.window(body, scope, kind, 2)
        index = self.load(body, scope, Type("i32", (rows, 1)))
        room = (self.random.choice((1, 3, 40)), self.random.choice((16, 32, 48, 80)))
        start = together * self.random.choice((1, 1, -1, 3))  # no multiple of more than are wanted
        attrs = {"kind": "add", "extents": room, "places": [None, start], "dims": [-1, 1], "wrap": True}
        results = [self.value()] if offered.opcode.startswith("atom.") else []
        body.nodes.append(Node("tile.atomic", [value, index], results, attrs))
        for result in results:
            body.nodes.append(Node("tile.store", [result], [], {"style": "slot", "shift": [0, 0], "excess": [0, 0]}))  # aligned, so that it may be as wide

    def turn_about(self, body: Body, scope: Scope, offered: Offered) -> None:
        """A tile in one pinned layout after another, and stored."""
        element = self.random.choice(BY_BITS[offered.bits])
        extents = (8, 8, 16, 16, 32) if offered.by == "matrix" else (4, 8, 16, 32, 64, 12, 20, 7)
        shape = tuple(self.random.choice(extents) for _ in range(self.random.choice((2, 2, 2, 3))))
        while prod(shape) > MOST_PINNED * (self.warps or 1):
            shape = shape[1:] if len(shape) > 2 else tuple(max(4, extent // 2) for extent in shape)
        kind = Type(element, shape)
        value = self.window(body, scope, kind, 2) if len(shape) == 2 else self.load(body, scope, kind)
        for _ in range(self.random.choice((1, 2, 2, 3))):
            order = list(range(len(shape)))
            self.random.shuffle(order)
            shape = tuple(shape[d] for d in order)
            layout = self.random_layout(shape, max(8, offered.bits))
            value = self.add(body, scope, Type(element, shape), "tile.transpose", [value], permutation=tuple(order), layout=str(layout))
        body.nodes.append(Node("tile.store", [value], [], {"style": "slot", "shift": [0] * len(shape), "excess": [0] * len(shape)}))

    def random_layout(self, shape: tuple[int, ...], bits: int) -> TVLayout:
        """A layout of the program's threads for a tile: the digits of its coordinates dealt to lanes, warps and values in any order, sometimes with the
        pattern that ldmatrix moves first, or with a vector in each thread."""
        rank, threads = len(shape), 32 * (self.warps or 1)
        left = {dim: [1 << i for i in range((extent - 1).bit_length())] for dim, extent in enumerate(shape)}

        def take(dim: int, count: int) -> list[Mode]:
            """The lowest digits that are left along a dimension, as far as there are so many."""
            steps, left[dim] = left[dim][:count], left[dim][count:]
            return [Mode(2, tuple(step if d == dim else 0 for d in range(rank))) for step in steps]

        lanes: list[Mode] = []
        value: list[Mode] = []
        row, column = self.random.sample(range(rank), 2)
        pattern = self.random.random()
        if pattern < 0.5 and bits <= 32 and shape[row] >= 8 and shape[column] * bits >= 128:
            value = take(column, (32 // bits).bit_length() - 1)
            lanes = [*take(column, 2), *take(row, 3)]
        elif pattern < 0.75:
            value = take(column, self.random.choice((1, 2, 3, 4)))
        rest = [mode for dim in range(rank) for mode in take(dim, len(left[dim]))]
        self.random.shuffle(rest)
        room = threads.bit_length() - 1 - len(lanes)
        mine, rest = rest[:room], rest[room:]
        idle = [Mode(2, (0,) * rank)] * (room - len(mine))  # threads with copies
        mine = [*mine, *idle]
        self.random.shuffle(mine)
        return TVLayout((*lanes, *mine), (*value, *rest)).normalized()

    def multiply(self, body: Body, scope: Scope, types: DotTypes, extents: tuple[int, int, int], rank: int, acc: int | None) -> int:
        m, n, k = extents
        kind = Type(types.acc, (m, n))
        a = self.side(body, scope, types.lhs, (m, k), rank)
        b = self.side(body, scope, types.rhs, (k, n), rank)
        if acc is None:
            acc = self.of_type(body, Scope([], scope.indices, scope.depth), kind)
        return self.add(body, scope, kind, "tile.dot", [a, b, acc], precision=types.precision)

    def side(self, body: Body, scope: Scope, element: str, shape: tuple[int, int], rank: int) -> int:
        """An operand: a window of an array of `rank` dimensions, stored either way; sometimes computed from it."""
        scope = own_scope(scope, element)
        turned = self.random.random() < 0.5
        stored = shape[::-1] if turned else shape
        value = self.window(body, scope, Type(element, stored), rank)
        if element in ELEMENTS and self.random.random() < 0.2:
            op = self.random.choice([op for op, of in p.UNARY.items() if element in of])
            value = self.add(body, scope, Type(element, stored), op, [value])
        if turned:
            value = self.add(body, scope, Type(element, shape), "tile.transpose", [value], permutation=(1, 0))
        return value

    def window(self, body: Body, scope: Scope, kind: Type, rank: int) -> int:
        """A load from an array of its own whose extents are mostly multiples of 4, 8 or 16 bytes, so that copies may be as wide; from one of many dimensions
        always."""
        aligned = rank > 2
        rank = max(rank, self.random.choice((2, 2, 2, 3)))
        dims = [*sorted(self.random.sample(range(rank - 1), 1)), rank - 1]
        extents = [self.random.choice((1, 2, 3)) for _ in range(rank)]
        for dim, extent in zip(dims, kind.shape):
            extents[dim] = extent + self.random.choice((0, 0, 0, 5, -3))
        unit = 16 if aligned else self.random.choice((1, 2, 4, 8, 16, 16, 16))
        extents[-1] = max(1, -(-extents[-1] // unit) * unit)
        extents = [max(1, extent) for extent in extents]
        while prod(extents) > 4 * MOST_OPERAND:
            place = max((d for d in range(rank) if d not in dims), key=lambda d: extents[d])
            extents[place] -= 1
        data = self.random.choices(("small", "normal"), (3, 1))[0]
        view = "sliced" if self.random.random() < 0.05 and not aligned else "dense"
        array = Array(f"in{len(self.arrays)}", kind.element, tuple(extents), view, data)
        self.arrays.append(array)
        base = [self.random.choice((0, 0, 0, 1)) if d not in dims else 0 for d in range(rank)]
        base[dims[0]] = self.random.choice((0, 0, 0, 2, -1))
        base[-1] = self.random.choice((0, 0, 0, 0, unit, -unit, unit if aligned else 1))
        return self.add(
            body, scope, kind, "tile.load", [], array=array.name, shape=kind.shape, dims=dims, base=base, coefficients=[], fill=False
        )
