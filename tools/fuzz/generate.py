"""A random program from a seed. Every choice is made from what is in scope and well typed, so every program is one.

Extents are drawn once for a program and used again, so that tiles meet; odd ones, ones, and powers of two are all
likely. What an array holds is drawn too: small integers (so that sums are exact and every bit counts), ordinary
numbers, all bit patterns, or special values.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from math import gcd, prod

from . import program as p
from .program import Array, Body, Node, Program, Type

EXTENTS = (1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 16, 17, 24, 31, 32, 32, 33, 48, 63, 64, 64, 65, 96, 100, 127, 128, 128)
ELEMENTS = {"f32": 40, "f16": 14, "bf16": 14, "i32": 16, "i8": 5, "i16": 4, "i64": 5, "f64": 4, "f8E4M3FN": 4, "f8E5M2": 2}
TILE_LIMIT = 4096
DATA = {"small": 5, "normal": 4, "bits": 1, "special": 2}


@dataclass(slots=True)
class Scope:
    """What a place of the program can use: values with their types, index values, and how deep it is in control
    flow."""

    values: list[tuple[int, Type]] = field(default_factory=list)
    indices: list[int] = field(default_factory=list)
    depth: int = 0

    def inner(self) -> Scope:
        return Scope(list(self.values), list(self.indices), self.depth + 1)


def own_scope(scope: Scope, element: str) -> Scope:
    """The scope; of a type that only dots take, one that nothing else sees."""
    return scope if element in ELEMENTS else Scope([], scope.indices, scope.depth)


def generate(seed: int, size: int = 10) -> Program:
    """The program of a seed; `size` is about the number of operations of its outermost body."""
    return Generator(seed).program(size)


class Generator:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.next = 0
        self.arrays: list[Array] = []
        self.extents = [self.random.choice(EXTENTS) for _ in range(self.random.randint(1, 3))]
        self.rank = self.random.choice((1, 2, 2, 2, 3))
        self.body = Body([])

    def program(self, size: int) -> Program:
        grid = tuple(self.random.choice((1, 1, 2, 3)) for _ in range(self.random.choice((1, 1, 1, 2))))
        self.grid = grid
        self.trips = tuple(self.random.choice((0, 1, 2, 3, 5)) for _ in range(2))
        scope = Scope(indices=[-1 - axis for axis in range(len(grid))])
        for _ in range(self.random.randint(1, 2)):
            self.load(self.body, scope, Type(self.element(), self.shape()))
        self.fill(self.body, scope, self.random.randint(max(1, size // 3), size))
        if self.random.random() < 0.4:
            self.pipeline(self.body, scope)
            self.fill(self.body, scope, self.random.randint(0, 3))
        if len(grid) == 2 and grid[1] > 1 and self.random.random() < 0.6:
            self.meet(self.body, scope)
        self.keep(self.body, scope)
        warps = self.random.choice((None, None, None, 1, 2, 4, 8))
        return Program(self.seed, grid, self.trips, self.arrays, self.body, warps, self.random.random() < 0.3)

    # --- Drawing ---

    def value(self) -> int:
        self.next += 1
        return self.next

    def element(self) -> str:
        return self.random.choices(list(ELEMENTS), list(ELEMENTS.values()))[0]

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        rank = rank or self.rank
        shape = [self.random.choice(self.extents) for _ in range(rank)]
        while prod(shape) > TILE_LIMIT:
            shape[shape.index(max(shape))] = self.random.choice((1, 2, 3, 4, 8))
        return tuple(shape)

    def pick(self, scope: Scope, fits: Callable[[Type], bool]) -> tuple[int, Type] | None:
        """A value in scope whose type fits, recent ones more likely."""
        found = [entry for entry in scope.values if fits(entry[1])]
        if not found:
            return None
        return found[max(self.random.randrange(len(found)), self.random.randrange(len(found)))]

    def add(self, body: Body, scope: Scope, of: Type, op: str, args: list[int], **attrs: object) -> int:
        result = self.value()
        body.nodes.append(Node(op, args, [result], attrs))
        scope.values.append((result, of))
        return result

    def constant(self, body: Body, scope: Scope, element: str) -> int:
        if element in p.FLOATS:
            text = self.random.choice(("0.0", "1.0", "-2.0", "0.5", "3.0", "-0.75", "inf", "-inf", "nan"))
        else:
            text = self.random.choice(("0", "1", "-1", "2", "5", "7", "-3", "100"))
        return self.add(body, scope, Type(element), "constant", [], element=element, text=text)

    def of_type(self, body: Body, scope: Scope, kind: Type) -> int:
        """A value of this type: one in scope, or a new one."""
        if (found := self.pick(scope, lambda t: t == kind)) and self.random.random() < 0.75:
            return found[0]
        if kind.element == "i1":
            other = self.of_type(body, scope, Type(self.random.choice(("f32", "i32")), kind.shape))
            element = next(t for v, t in scope.values if v == other).element
            predicate = self.random.choice(p.FLOAT_PREDICATES if element in p.FLOATS else p.INTEGER_PREDICATES)
            right = self.of_type(body, scope, Type(element, kind.shape))
            return self.add(body, scope, kind, "tile.cmp", [other, right], predicate=predicate)
        draw = self.random.random()
        if not kind.shape:
            if kind.element == "i32" and scope.indices and draw < 0.5:
                return self.add(body, scope, kind, "coordinate", [self.random.choice(scope.indices)])
            return self.constant(body, scope, kind.element) if draw < 0.8 else self.load(body, scope, kind)
        if draw < 0.15:
            scalar = self.of_type(body, scope, Type(kind.element))
            return self.add(body, scope, kind, "tile.full", [scalar], shape=kind.shape)
        if draw < 0.25 and kind.element in ("i32", "i64"):
            axis = self.random.randrange(len(kind.shape))
            return self.add(body, scope, kind, "tile.iota", [], element=kind.element, shape=kind.shape, axis=axis)
        return self.load(body, scope, kind)

    # --- Memory ---

    def load(self, body: Body, scope: Scope, kind: Type) -> int:
        """A window of a new or an old array: shifted, past its edges, transposed by `dims`, moving with blocks and
        trips."""
        rank = len(kind.shape)
        array_rank = self.random.randint(max(rank, 1), max(rank, 3))
        dims = sorted(self.random.sample(range(array_rank), rank))
        if self.random.random() < 0.2:
            self.random.shuffle(dims)
        own = self.random.random() < 0.12
        old = [a for a in self.arrays if a.element == kind.element and len(a.shape) == array_rank and a.own == own]
        if old and self.random.random() < 0.4:
            array = self.random.choice(old)
        elif own:
            array = self.own_array(kind, array_rank, dims)
        else:
            views = ["dense", "dense", "dense", "sliced", *(["transposed", "repeated"] if array_rank > 1 else [])]
            data = self.random.choices(list(DATA), list(DATA.values()))[0]
            extents = self.window_extents(kind, array_rank, dims)
            array = Array(f"in{len(self.arrays)}", kind.element, extents, self.random.choice(views), data)
            self.arrays.append(array)
        base, indices, coefficients = self.moves(scope, kind, array_rank, dims)
        fill = [self.constant(body, scope, kind.element)] if self.random.random() < 0.15 and kind.element in ELEMENTS else []
        return self.add(
            body, scope, kind, "tile.load", [*fill, *indices],
            array=array.name, shape=kind.shape, dims=dims, base=base, coefficients=coefficients, fill=bool(fill),
        )  # fmt: skip

    def window_extents(self, kind: Type, rank: int, dims: list[int]) -> tuple[int, ...]:
        """An array's extents: about those of a window, or twice them."""
        extents = [self.random.choice((1, 2, 4)) for _ in range(rank)]
        for dim, extent in zip(dims, kind.shape):
            extents[dim] = max(1, extent * self.random.choice((1, 1, 2)) + self.random.choice((0, 0, 0, -1, 3, 8)))
        return tuple(extents)

    def own_array(self, kind: Type, rank: int, dims: list[int]) -> Array:
        array = Array(f"own{len(self.arrays)}", kind.element, self.window_extents(kind, rank, dims), own=True)
        self.arrays.append(array)
        return array

    def moves(
        self, scope: Scope, kind: Type, rank: int, dims: list[int]
    ) -> tuple[list[int], list[int], list[list[int]]]:
        """Where a window starts: a base, and what some of the index values in scope add to it."""
        base = [self.random.choice((0, 0, 0, 0, 0, 1, -1, 3, -5, 8)) for _ in range(rank)]
        indices = [index for index in scope.indices if self.random.random() < 0.5]
        coefficients = []
        for _ in indices:
            moves = [0] * rank
            axis = self.random.randrange(rank)
            whole = [kind.shape[dims.index(axis)]] * 4 if axis in dims else []  # window by window
            moves[axis] = self.random.choice([1, 1, 2, 8, *whole])
            coefficients.append(moves)
        return base, indices, coefficients

    def store_own(self, body: Body, scope: Scope, value: int, kind: Type) -> None:
        """A store to a block's own part of an array, most likely one that it reads."""
        fitting = [
            a for a in self.arrays if a.own and a.element == kind.element and len(a.shape) >= max(1, len(kind.shape))
        ]
        if fitting and self.random.random() < 0.8:
            array = self.random.choice(fitting)
            dims = sorted(self.random.sample(range(len(array.shape)), len(kind.shape)))
        else:
            dims = list(range(len(kind.shape)))
            array = self.own_array(kind, max(1, len(kind.shape)), dims)
        base, indices, coefficients = self.moves(scope, kind, len(array.shape), dims)
        attrs = {"style": "own", "array": array.name, "dims": dims, "base": base, "coefficients": coefficients}
        body.nodes.append(Node("tile.store", [value, *indices], [], attrs))

    def store(self, body: Body, scope: Scope, value: int, kind: Type) -> None:
        style = "tile" if len(kind.shape) >= len(self.grid) and self.random.random() < 0.5 else "slot"
        shift = [self.random.choice((0, 0, 0, 1, -1, 2, -7)) for _ in kind.shape]
        excess = [self.random.choice((0, 0, 0, -1, 1, -3, 5)) for _ in kind.shape]
        results = [self.value()] if self.random.random() < 0.2 else []
        body.nodes.append(Node("tile.store", [value], results, {"style": style, "shift": shift, "excess": excess}))
        scope.values += [(result, kind) for result in results]

    def keep(self, body: Body, scope: Scope) -> None:
        """Stores most of what nobody uses, and at least one value."""
        used = {
            arg
            for inner, _, node in self.walk()
            for arg in (*node.args, *inner.yields, *(y for b in node.bodies for y in b.yields))
        }
        loose = [entry for entry in scope.values if entry[0] not in used]
        for value, kind in [entry for entry in loose if self.random.random() < 0.7] or scope.values[-1:]:
            self.store(body, scope, value, kind)

    def walk(self):
        return Program(0, (), (), [], self.body).nodes()

    # --- Operations: each adds one, or gives up where nothing in scope fits ---

    def fill(self, body: Body, scope: Scope, count: int) -> None:
        choices: dict[Callable[[Body, Scope], None], int] = {
            self.binary: 7, self.unary: 4, self.cast: 3, self.choose: 2, self.more: 3, self.reduce: 2, self.scan: 1, self.spread: 2,
            self.move: 1, self.reshape: 1, self.dot: 1, self.fma: 1, self.save: 1, self.divide: 1, self.compare: 1,
            self.pair: 1, self.count: 1, self.take: 1, self.gather: 2, self.scatter: 1, self.atomic: 1, self.inline: 1, self.say: 1, self.promise: 1,
        }  # fmt: skip
        if scope.depth < 2:
            choices |= {self.loop: 2, self.repeat: 1, self.branch: 1}
        for _ in range(count):
            self.random.choices(list(choices), list(choices.values()))[0](body, scope)

    def binary(self, body: Body, scope: Scope) -> None:
        op = self.random.choice(list(p.BINARY))
        if a := self.pick(scope, lambda t: t.element in p.BINARY[op]):
            operands = [a[0], self.of_type(body, scope, a[1])]
            self.random.shuffle(operands)
            self.add(body, scope, a[1], op, operands)

    def unary(self, body: Body, scope: Scope) -> None:
        op = self.random.choice(list(p.UNARY))
        if a := self.pick(scope, lambda t: t.element in p.UNARY[op]):
            self.add(body, scope, a[1], op, [a[0]])

    def divide(self, body: Body, scope: Scope) -> None:
        if a := self.pick(scope, lambda t: t.element in p.INTEGERS):
            self.add(body, scope, a[1], self.random.choice(p.DIVISIONS), [a[0], self.of_type(body, scope, a[1])])

    def fma(self, body: Body, scope: Scope) -> None:
        if a := self.pick(scope, lambda t: t.element in p.FLOATS):
            self.add(body, scope, a[1], "math.fma", [a[0], *(self.of_type(body, scope, a[1]) for _ in range(2))])

    def cast(self, body: Body, scope: Scope) -> None:
        if a := self.pick(scope, lambda t: True):
            element = self.random.choice((self.element(), "i1")) if self.random.random() < 0.2 else self.element()
            saturate = element in p.FLOATS and self.random.random() < 0.3
            self.add(body, scope, Type(element, a[1].shape), "tile.cast", [a[0]], element=element, saturate=saturate)

    def compare(self, body: Body, scope: Scope) -> None:
        if a := self.pick(scope, lambda t: True):
            predicates = p.FLOAT_PREDICATES if a[1].element in p.FLOATS else p.INTEGER_PREDICATES
            predicate = self.random.choice(("eq", "ne") if a[1].element == "i1" else predicates)
            b = self.of_type(body, scope, a[1])
            self.add(body, scope, Type("i1", a[1].shape), "tile.cmp", [a[0], b], predicate=predicate)

    def choose(self, body: Body, scope: Scope) -> None:
        if a := self.pick(scope, lambda t: True):
            condition = self.of_type(body, scope, Type("i1", a[1].shape))
            self.add(body, scope, a[1], "tile.select", [condition, a[0], self.of_type(body, scope, a[1])])

    def more(self, body: Body, scope: Scope) -> None:
        shapes = [t.shape for _, t in scope.values if t.shape]
        shape = self.random.choice(shapes) if shapes and self.random.random() < 0.6 else self.shape()
        self.load(body, scope, Type(self.element(), shape))

    def save(self, body: Body, scope: Scope) -> None:
        if a := self.pick(scope, lambda t: bool(t.shape)):
            (self.store_own if self.random.random() < 0.5 else self.store)(body, scope, *a)

    def scan(self, body: Body, scope: Scope) -> None:
        if a := self.pick(scope, lambda t: bool(t.shape) and t.element != "i1"):
            kind, axis = self.random.choice(("sum", "prod", "max", "min")), self.random.randrange(len(a[1].shape))
            draw = self.random.random
            if draw() < 0.4:
                self.combine(body, scope, *a, axis)
                return
            self.add(body, scope, a[1], "tile.scan", [a[0]], kind=kind, axis=axis, exclusive=draw() < 0.3, reverse=draw() < 0.3)

    def combine(self, body: Body, scope: Scope, value: int, kind: Type, axis: int) -> None:
        """A scan or a fold by a function, of two tiles."""
        draw, fold = self.random.random, self.random.random() < 0.4
        names = [name for name in p.COMBINING if name != "steps" or kind.element not in p.FLOATS]
        result = Type(kind.element, (*kind.shape[:axis], *kind.shape[axis + 1 :])) if fold else kind
        self.add(
            body, scope, result, "tile.combine", [value, self.of_type(body, scope, kind)], axis=axis, function=self.random.choice(names), fold=fold,
            reverse=draw() < 0.4, exclusive=draw() < 0.4, second=draw() < 0.5,
        )  # fmt: skip

    def reduce(self, body: Body, scope: Scope) -> None:
        if a := self.pick(scope, lambda t: bool(t.shape) and t.element != "i1"):
            kind, axis = self.random.choice(p.REDUCTIONS), self.random.randrange(len(a[1].shape))
            element = "i32" if kind.startswith("arg") else a[1].element
            result = Type(element, (*a[1].shape[:axis], *a[1].shape[axis + 1 :]))
            value = self.add(body, scope, result, "tile.reduce", [a[0]], kind=kind, axis=axis)
            if self.random.random() < 0.5:  # and back to the shape it came from
                if result.shape:
                    wide = Type(element, (*a[1].shape[:axis], 1, *a[1].shape[axis + 1 :]))
                    value = self.add(body, scope, wide, "tile.expand", [value], axis=axis)
                    self.add(body, scope, Type(element, a[1].shape), "tile.broadcast", [value], extents=a[1].shape)
                else:
                    self.add(body, scope, Type(element, a[1].shape), "tile.full", [value], shape=a[1].shape)

    def pair(self, body: Body, scope: Scope) -> None:
        """Two tiles side by side, and what is made of them; or pairs taken apart."""
        if (a := self.pick(scope, lambda t: len(t.shape) >= 2 and t.shape[-1] == 2)) and self.random.random() < 0.5:
            second = self.random.random() < 0.5
            self.add(body, scope, Type(a[1].element, a[1].shape[:-1]), "tile.split", [a[0]], second=second)
        elif a := self.pick(scope, lambda t: 1 <= len(t.shape) <= 2 and 2 * prod(t.shape) <= TILE_LIMIT):
            wide = Type(a[1].element, (*a[1].shape, 2))
            value = self.add(body, scope, wide, "tile.join", [a[0], self.of_type(body, scope, a[1])])
            draw = self.random.random()
            if draw < 0.3:  # and apart again
                self.add(body, scope, a[1], "tile.split", [value], second=self.random.random() < 0.5)
            elif draw < 0.8:  # interleaved
                how = ("merge", len(a[1].shape) - 1)
                self.add(body, scope, Type(wide.element, (*wide.shape[:-2], 2 * wide.shape[-2])), "tile.reshape", [value], how=how)

    def count(self, body: Body, scope: Scope) -> None:
        if a := self.pick(scope, lambda t: bool(t.shape) and t.element == "i32"):
            bins = self.random.choice(self.extents)
            self.add(body, scope, Type("i32", (bins,)), "tile.histogram", [a[0]], bins=bins)

    def take(self, body: Body, scope: Scope) -> None:
        """Elements along an axis by a tile of indices, some of them outside."""
        if a := self.pick(scope, lambda t: bool(t.shape)):
            axis, shape = self.random.randrange(len(a[1].shape)), a[1].shape
            extent = self.random.choice((shape[axis], shape[axis], *self.extents))
            index = Type(self.random.choice(("i32", "i32", "i64")), (*shape[:axis], extent, *shape[axis + 1 :]))
            if prod(index.shape) <= TILE_LIMIT:
                args = [a[0], self.of_type(body, scope, index)]
                self.add(body, scope, Type(a[1].element, index.shape), "tile.gather", args, axis=axis, wrap=self.random.random() < 0.8)

    def spread(self, body: Body, scope: Scope) -> None:
        if a := self.pick(scope, lambda t: 1 <= len(t.shape) <= 2):
            axis = self.random.randint(0, len(a[1].shape))
            shape = (*a[1].shape[:axis], 1, *a[1].shape[axis:])
            value = self.add(body, scope, Type(a[1].element, shape), "tile.expand", [a[0]], axis=axis)
            extents = tuple(self.random.choice(self.extents) if old == 1 else old for old in shape)
            if prod(extents) <= TILE_LIMIT:
                self.add(body, scope, Type(a[1].element, extents), "tile.broadcast", [value], extents=extents)

    def move(self, body: Body, scope: Scope) -> None:
        if a := self.pick(scope, lambda t: len(t.shape) >= 2):
            order = list(range(len(a[1].shape)))
            self.random.shuffle(order)
            kind = Type(a[1].element, tuple(a[1].shape[i] for i in order))
            self.add(body, scope, kind, "tile.transpose", [a[0]], permutation=tuple(order))

    def reshape(self, body: Body, scope: Scope) -> None:
        if a := self.pick(scope, lambda t: bool(t.shape)):
            shape = list(a[1].shape)
            axis = self.random.randrange(len(shape))
            factors = [f for f in (2, 3, 4, 8) if shape[axis] % f == 0]
            how: tuple[object, ...] = ("flatten",)
            if factors and len(shape) < 3 and self.random.random() < 0.5:
                how = ("split", axis, self.random.choice(factors))
                shape[axis : axis + 1] = [shape[axis] // how[2], how[2]]
            elif axis + 1 < len(shape) and self.random.random() < 0.5:
                how = ("merge", axis)
                shape[axis : axis + 2] = [shape[axis] * shape[axis + 1]]
            else:
                shape = [prod(shape)]
            self.add(body, scope, Type(a[1].element, tuple(shape)), "tile.reshape", [a[0]], how=how)

    def dot(self, body: Body, scope: Scope) -> None:
        types = self.random.choice((*p.DOTS, *(t for t in p.DOTS if t.lhs == t.rhs in ("bf16", "f16") for _ in range(2))))
        batch = (self.random.choice((1, 2, 3)),) if self.random.random() < 0.1 else ()
        m, n, k = (self.random.choice((*self.extents, 16, 32, 64)) for _ in range(3))
        if prod(batch) * max(m * n, m * k, k * n) > TILE_LIMIT:
            return
        a = self.operand(body, scope, Type(types.lhs, (*batch, m, k)))
        if self.random.random() < 0.5:
            order = (*range(len(batch)), len(batch) + 1, len(batch))
            b = self.operand(body, scope, Type(types.rhs, (*batch, n, k)))
            b = self.add(body, own_scope(scope, types.rhs), Type(types.rhs, (*batch, k, n)), "tile.transpose", [b], permutation=order)
        else:
            b = self.operand(body, scope, Type(types.rhs, (*batch, k, n)))
        kind = Type(types.acc, (*batch, m, n))
        self.add(body, scope, kind, "tile.dot", [a, b, self.of_type(body, scope, kind)], precision=types.precision)

    def operand(self, body: Body, scope: Scope, kind: Type) -> int:
        """An operand of a dot: any value, of a type that nothing else takes one that is loaded for it."""
        inner = own_scope(scope, kind.element)
        return self.of_type(body, inner, kind) if inner is scope else self.load(body, inner, kind)

    def places(self, body: Body, scope: Scope, shape: tuple[int, ...], rank: int) -> tuple[list[int], dict[str, object], list[int]]:
        """Tiles of indices for an access of a tile to an array of `rank`, what `_Renderer.place` takes besides, and the tile's dimension along each of the
        array's that it slices (-1 for others)."""
        computed = set(self.random.sample(range(rank), self.random.randint(1, rank)))
        dims, along = [-1] * len(shape), [-1] * rank
        for dim in [dim for dim in range(rank) if dim not in computed]:
            free = [position for position, of in enumerate(dims) if of < 0]
            if free and self.random.random() < 0.8:
                along[dim] = self.random.choice(free)
                dims[along[dim]] = dim
        tiles, places = [], []
        for dim in range(rank):
            if dim in computed:
                extents = tuple(extent if of < 0 or self.random.random() < 0.5 else 1 for extent, of in zip(shape, dims))
                tiles.append(self.of_type(body, scope, Type(self.random.choice(("i32", "i32", "i32", "i64")), extents)))
                places.append(None)
            else:
                places.append(self.random.choice((0, 0, 0, 1, -1, 3)))
        return tiles, {"places": places, "dims": dims, "wrap": self.random.random() < 0.7}, along

    def gather(self, body: Body, scope: Scope) -> None:
        shape, rank = self.shape(), self.random.choice((1, 1, 2, 3))
        old = [array for array in self.arrays if len(array.shape) == rank]
        tiles, attrs, along = self.places(body, scope, shape, rank)
        if old and self.random.random() < 0.5:
            array = self.random.choice(old)
        else:
            extents = tuple(shape[t] + self.random.choice((0, 0, -1, 5)) if t >= 0 else self.random.choice((1, 4, 17, 64)) for t in along)
            data = self.random.choices(list(DATA), list(DATA.values()))[0]
            views = ["dense", "dense", "dense", "sliced", *(["transposed"] if rank > 1 else [])]
            view: str = self.random.choice(views)
            array = Array(f"in{len(self.arrays)}", self.element(), tuple(max(1, extent) for extent in extents), view, data)
            self.arrays.append(array)
        kind = Type(array.element, shape)
        fill = [self.constant(body, scope, kind.element)] if self.random.random() < 0.2 else []
        self.add(body, scope, kind, "tile.load_indexed", [*fill, *tiles], array=array.name, shape=shape, fill=bool(fill), **attrs)

    def scatter(self, body: Body, scope: Scope) -> None:
        if a := self.pick(scope, lambda t: bool(t.shape)):
            axis = self.random.randrange(len(a[1].shape))
            extent = a[1].shape[axis]
            modulus = extent + self.random.choice((0, 0, 1, 3))
            factor = self.random.choice([f for f in (1, 3, 5, 7, 11, modulus - 1) if gcd(f, modulus) == 1])
            room = max(1, modulus + self.random.choice((0, 0, 0, -1, 2)))
            attrs = {"axis": axis, "factor": factor, "start": self.random.choice((0, 1, 5)), "modulus": modulus, "room": room}
            body.nodes.append(Node("tile.store_indexed", [a[0]], [], attrs))

    def atomic(self, body: Body, scope: Scope) -> None:
        """Rarely with its result, which may be anything; so may what `exchange` and `cas` leave."""
        kind = self.random.choice(("add", "add", *p.ATOMICS))
        if a := self.pick(scope, lambda t: t.element in p.ATOMICS[kind] and t.element != "bf16" and bool(t.shape)):
            rank = self.random.choice((1, 1, 2))
            tiles, attrs, along = self.places(body, scope, a[1].shape, rank)
            extents = tuple(max(1, a[1].shape[t] + self.random.choice((0, -1, 3))) if t >= 0 else self.random.choice((1, 2, 9, 40)) for t in along)
            expected = [self.of_type(body, scope, a[1])] if kind == "cas" else []
            results = [self.value()] if self.random.random() < 0.15 else []
            body.nodes.append(Node("tile.atomic", [a[0], *expected, *tiles], results, {"kind": kind, "extents": extents, **attrs}))
            scope.values += [(result, a[1]) for result in results]

    def inline(self, body: Body, scope: Scope) -> None:
        which = self.random.randrange(len(p.INLINE))
        _, made, taken = p.INLINE[which]
        if a := self.pick(scope, lambda t: t.element == taken[0]):
            operands = [a[0], *(self.of_type(body, scope, Type(element, a[1].shape)) for element in taken[1:])]
            results = [self.value() for _ in made]
            body.nodes.append(Node("tile.inline_ptx", operands, results, {"which": which}))
            scope.values += [(result, Type(element, a[1].shape)) for result, element in zip(results, made)]

    def say(self, body: Body, scope: Scope) -> None:
        """A line printed, or an assertion that holds."""
        if scope.indices and self.random.random() < 0.5:
            body.nodes.append(Node("tile.assert", [self.random.choice(scope.indices)], []))
            return
        shown = [a[0] for _ in range(2) if (a := self.pick(scope, lambda t: prod(t.shape) <= p.MOST_PRINTED))]
        body.nodes.append(Node("tile.print", shown, []))

    def promise(self, body: Body, scope: Scope) -> None:
        """A multiple of a coordinate or counter, said to be one, for what is accessed from here on."""
        if scope.indices:
            result = self.value()
            body.nodes.append(Node("tile.assume", [self.random.choice(scope.indices)], [result], {"factor": self.random.choice((1, 2, 8, 16))}))
            scope.indices.append(result)

    def meet(self, body: Body, scope: Scope) -> None:
        if a := self.pick(scope, lambda t: bool(t.shape) and t.element in ("i32", "f32")):
            body.nodes.append(Node("tile.sum_parts", [a[0]], []))

    # --- Control ---

    def pipeline(self, body: Body, scope: Scope) -> None:
        """A loop as kernels have it: operands of one or two dots loaded window by window, accumulators carried round
        it, what was loaded or computed used in the next trip or after the loop, sometimes more of anything between;
        sometimes within another loop."""
        element = self.random.choice(("bf16", "f16", "bf16", "f16", "f8E4M3FN", "f32"))
        m, n, k, d = (self.random.choice((8, 16, 16, 24, 32, 32, 64, 64, 12, 33)) for _ in range(4))
        if self.random.random() < 0.3:
            m = self.random.choice((64, 128))
        chained = self.random.random() < 0.35
        product, result = Type("f32", (m, n)), Type("f32", (m, d if chained else n))
        loaded = Type(element, (m, k))
        starts = [(self.of_type(body, scope, result), result)]
        if self.random.random() < 0.3:  # a loaded tile that the next trip sees, or what follows the loop
            starts.append((self.of_type(body, scope, loaded), loaded))
        if self.random.random() < 0.3:
            starts += self.carried(scope, 0)[:1]

        def trip(inner: Scope, nested: Body, args: list[int]) -> None:
            counter = inner.indices[-1]
            a = self.walk_along(nested, inner, loaded, counter, 1)
            if self.random.random() < 0.5:
                b = self.walk_along(nested, inner, Type(element, (n, k)), counter, 1)
                b = self.add(nested, inner, Type(element, (k, n)), "tile.transpose", [b], permutation=(1, 0))
            else:
                b = self.walk_along(nested, inner, Type(element, (k, n)), counter, 0)
            self.fill(nested, inner, self.random.choice((0, 0, 1, 2)))
            if chained:
                zero = self.add(nested, inner, Type("f32"), "constant", [], element="f32", text="0.0")
                zero = self.add(nested, inner, product, "tile.full", [zero], shape=(m, n))
                s = self.add(nested, inner, product, "tile.dot", [a, b, zero], precision="")
                if self.random.random() < 0.5:
                    s = self.add(
                        nested, inner, product, self.random.choice(("math.exp2", "math.tanh", "arith.negf")), [s]
                    )
                a2 = self.add(nested, inner, Type(element, (m, n)), "tile.cast", [s], element=element, saturate=False)
                b2 = self.walk_along(nested, inner, Type(element, (n, d)), counter, 0)
                total = self.add(nested, inner, result, "tile.dot", [a2, b2, args[0]], precision="")
            else:
                total = self.add(nested, inner, result, "tile.dot", [a, b, args[0]], precision="")
            if self.random.random() < 0.3:
                total = self.add(nested, inner, result, "arith.addf", [total, self.of_type(nested, inner, result)])
            nested.yields = [
                total,
                *(a if kind == loaded else self.of_type(nested, inner, kind) for _, kind in starts[1:]),
            ]

        if self.random.random() < 0.75:
            value = self.for_loop(body, scope, starts, trip)[0]
            self.store(body, scope, value, result)
            return
        outer, within = Body([self.value()]), scope.inner()
        within.indices.append(outer.args[0])
        value = self.for_loop(outer, within, starts, trip)[0]
        self.store(outer, within, value, result)
        attrs = {"start": 0, "step": 1, "upper": self.random.choice((1, 2, 3))}
        body.nodes.append(Node("scf.for", [], [], attrs, [outer]))

    def walk_along(self, body: Body, scope: Scope, kind: Type, counter: int, axis: int) -> int:
        """A window of a new array that moves by its own extent along `axis` with the counter, and sometimes with the
        block along the other."""
        extents = [extent * 2 + self.random.choice((0, 0, -3, 5)) for extent in kind.shape]
        extents[axis] = max(1, kind.shape[axis] * self.random.choice((2, 3, 4)) + self.random.choice((0, 0, 0, -5, 3)))
        if self.random.random() < 0.1:
            array = self.own_array(kind, 2, [0, 1])
        else:
            view = self.random.choice(("dense", "dense", "dense", "dense", "transposed", "sliced"))
            data = self.random.choices(list(DATA), list(DATA.values()))[0]
            array = Array(f"in{len(self.arrays)}", kind.element, tuple(extents), view, data)
            self.arrays.append(array)
        indices, coefficients = [counter], [[kind.shape[axis] if d == axis else 0 for d in range(2)]]
        if self.random.random() < 0.5:
            indices.append(-1)
            coefficients.append([0 if d == axis else kind.shape[1 - axis] for d in range(2)])
        base = [self.random.choice((0, 0, 0, 0, 0, 0, 1, -2, 8)) for _ in range(2)]
        return self.add(
            body, scope, kind, "tile.load", indices,
            array=array.name, shape=kind.shape, dims=[0, 1], base=base, coefficients=coefficients, fill=False,
        )  # fmt: skip

    def for_loop(
        self, body: Body, scope: Scope, starts: list[tuple[int, Type]], trip: Callable[[Scope, Body, list[int]], None]
    ) -> list[int]:
        """A loop with carried values; `trip` fills its body and says what it yields."""
        inner, counter = scope.inner(), self.value()
        args = [self.value() for _ in starts]
        inner.indices.append(counter)
        inner.values += zip(args, [kind for _, kind in starts])
        nested = Body([counter, *args])
        trip(inner, nested, args)
        upper = (
            ("trips", self.random.randrange(2)) if self.random.random() < 0.7 else self.random.choice((0, 1, 2, 3, 4))
        )
        results = [self.value() for _ in starts]
        attrs = {
            "start": self.random.choice((0, 0, 0, 0, 1)),
            "step": self.random.choice((1, 1, 1, 1, 2)),
            "upper": upper,
        }
        body.nodes.append(Node("scf.for", [value for value, _ in starts], results, attrs, [nested]))
        scope.values += zip(results, [kind for _, kind in starts])
        return results

    def carried(self, scope: Scope, least: int) -> list[tuple[int, Type]]:
        count = self.random.choice((least, 1, 1, 2))
        return [entry for _ in range(count) if (entry := self.pick(scope, lambda t: True))]

    def ending(self, body: Body, scope: Scope, kinds: list[Type]) -> None:
        body.yields = [self.of_type(body, scope, kind) for kind in kinds]

    def loop(self, body: Body, scope: Scope) -> None:
        carried = self.carried(scope, 0)

        def trip(inner: Scope, nested: Body, args: list[int]) -> None:
            self.fill(nested, inner, self.random.randint(1, 4))
            self.ending(nested, inner, [kind for _, kind in carried])
            if not carried:
                self.keep(nested, inner)

        self.for_loop(body, scope, carried, trip)

    def repeat(self, body: Body, scope: Scope) -> None:
        carried = self.carried(scope, 1)
        if not carried:
            return
        limit = self.of_type(body, scope, Type("i32"))
        inner, counter = scope.inner(), self.value()
        args = [self.value() for _ in carried]
        inner.values += [(counter, Type("i32")), *zip(args, [kind for _, kind in carried])]
        nested = Body([counter, *args])
        self.fill(nested, inner, self.random.randint(1, 3))
        self.ending(nested, inner, [kind for _, kind in carried])
        results = [self.value() for _ in carried]
        body.nodes.append(Node("scf.while", [limit, *(value for value, _ in carried)], results, {}, [nested]))
        scope.values += zip(results, [kind for _, kind in carried])

    def branch(self, body: Body, scope: Scope) -> None:
        kinds = [kind for _, kind in self.carried(scope, 0)]
        condition = self.of_type(body, scope, Type("i1"))
        bodies = []
        for _ in range(2):
            inner, nested = scope.inner(), Body([])
            self.fill(nested, inner, self.random.randint(0, 3))
            self.ending(nested, inner, kinds)
            if not kinds and nested.nodes:
                self.keep(nested, inner)
            bodies.append(nested)
        results = [self.value() for _ in kinds]
        body.nodes.append(Node("scf.if", [condition], results, {}, bodies))
        scope.values += zip(results, kinds)
