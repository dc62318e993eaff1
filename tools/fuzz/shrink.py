"""Makes a failing program smaller while it still fails in the same way (greedy, in rounds until nothing helps).

Each candidate changes one thing: takes a node out (its results become zeros, or, of a loop, what it started from; nodes that nobody
needs go with it), makes a grid extent, a trip count or an extent of tiles smaller, or an array plainer. Candidates that are no program any more
are skipped, and so are those that fail in another way, which would be another bug.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator

from .program import Array, Body, IllTyped, Node, Program, render


def shrink(program: Program, fails: Callable[[Program], bool], seconds: float = 60.0) -> Program:
    """The smallest program found within the time for which `fails` still holds."""
    end = time.monotonic() + seconds
    progress = True
    while progress:
        progress = False
        for candidate in candidates(program):
            if time.monotonic() > end:
                return program
            if _size(candidate) < _size(program) and _is_program(candidate) and fails(candidate):
                program = candidate
                progress = True
                break
    return program


def _is_program(program: Program) -> bool:
    try:
        render(program)
    except IllTyped:
        return False
    return True


def _size(program: Program) -> tuple[int, ...]:
    """What is to become smaller, most important first."""
    nodes = [node for _, _, node in program.nodes()]
    plain = sum((array.view != "dense") + (array.data != "small") for array in program.arrays)
    numbers = sum(abs(number) for node in nodes for number in _numbers(node.attrs))
    weight = sum(1 if node.op in ("zero", "constant") else 3 for node in nodes)
    extents = sum(program.grid) + sum(program.trips) + sum(sum(array.shape) for array in program.arrays)
    return weight, numbers + extents, plain


def _numbers(attribute: object) -> Iterator[int]:
    if isinstance(attribute, bool):
        yield int(attribute)
    elif isinstance(attribute, int):
        yield attribute
    elif isinstance(attribute, dict):
        for value in attribute.values():
            yield from _numbers(value)
    elif isinstance(attribute, list | tuple):
        for value in attribute:
            yield from _numbers(value)


def candidates(program: Program) -> Iterator[Program]:
    """Programs with one change each, the boldest first."""
    count = sum(1 for _ in program.nodes())
    for place in reversed(range(count)):
        if (smaller := _without(program, place)) is not None:
            yield smaller
    yield from _smaller_extents(program)
    yield from _plainer(program)


def _without(program: Program, place: int) -> Program | None:
    """The program without node number `place`, in the order of `nodes`."""
    out = copy.deepcopy(program)
    body, position, node = list(out.nodes())[place]
    if node.op == "zero":
        return None
    if node.op == "tile.store" and not node.results:
        del body.nodes[position]
    elif node.op in ("scf.for", "scf.while"):
        initial = node.args[1:] if node.op == "scf.while" else node.args
        del body.nodes[position]
        _replace(out, dict(zip(node.results, initial)))
    else:
        types = render(program).types
        body.nodes[position : position + 1] = [
            Node("zero", [], [result], {"type": types[result]}) for result in node.results
        ]
    _drop_dead(out)
    return out


def _replace(program: Program, values: dict[int, int]) -> None:
    for body in [program.body, *(inner for _, _, node in program.nodes() for inner in node.bodies)]:
        body.yields = [values.get(value, value) for value in body.yields]
        for node in body.nodes:
            node.args = [values.get(value, value) for value in node.args]


def _drop_dead(program: Program) -> None:
    """Takes out what has no effect and no user, and what loops carry in vain is left to other candidates."""
    while True:
        used = {value for body in _bodies(program.body) for value in body.yields}
        used |= {value for _, _, node in program.nodes() for value in node.args}
        for body, position, node in program.nodes():
            effects = any(inner.op == "tile.store" for nested in node.bodies for inner in _nodes(nested))
            if node.op != "tile.store" and not effects and not used & set(node.results):
                del body.nodes[position]
                break
        else:
            return


def _bodies(body: Body) -> Iterator[Body]:
    yield body
    for node in body.nodes:
        for inner in node.bodies:
            yield from _bodies(inner)


def _nodes(body: Body) -> Iterator[Node]:
    for inner in _bodies(body):
        yield from inner.nodes


def _smaller_extents(program: Program) -> Iterator[Program]:
    for name in ("grid", "trips"):
        extents = getattr(program, name)
        for axis, extent in enumerate(extents):
            for smaller in sorted({1 if name == "grid" else 0, extent // 2, extent - 1}):
                if (1 if name == "grid" else 0) <= smaller < extent:
                    out = copy.deepcopy(program)
                    setattr(out, name, (*extents[:axis], smaller, *extents[axis + 1 :]))
                    yield out
    shapes = {extent for _, _, node in program.nodes() for extent in _shape_numbers(node)}
    for extent in sorted(shapes, reverse=True):
        for smaller in sorted({1, 2, 4, 8, 16, extent // 2, extent - 1}):
            if 1 <= smaller < extent:
                out = copy.deepcopy(program)
                for _, _, node in out.nodes():
                    for key in ("shape", "extents"):
                        if key in node.attrs:
                            node.attrs[key] = tuple(smaller if e == extent else e for e in node.attrs[key])
                    if node.op == "zero":
                        kind = node.attrs["type"]
                        node.attrs["type"] = type(kind)(
                            kind.element, tuple(smaller if e == extent else e for e in kind.shape)
                        )
                yield out


def _shape_numbers(node: Node) -> Iterator[int]:
    for key in ("shape", "extents"):
        yield from node.attrs.get(key, ())


def _plainer(program: Program) -> Iterator[Program]:
    for position, array in enumerate(program.arrays):
        changes: list[Array] = []
        if array.view != "dense":
            changes.append(Array(array.name, array.element, array.shape, "dense", array.data))
        if array.data != "small":
            changes.append(Array(array.name, array.element, array.shape, array.view, "small"))
        for axis, extent in enumerate(array.shape):
            for smaller in sorted({1, extent // 2, extent - 1}):
                if 1 <= smaller < extent:
                    shape = (*array.shape[:axis], smaller, *array.shape[axis + 1 :])
                    changes.append(Array(array.name, array.element, shape, array.view, array.data))
        for change in changes:
            out = copy.deepcopy(program)
            out.arrays[position] = change
            yield out
    for place, (_, _, node) in enumerate(program.nodes()):
        for key in ("base", "shift", "excess"):
            if any(node.attrs.get(key, ())):
                out = copy.deepcopy(program)
                list(out.nodes())[place][2].attrs[key] = [0] * len(node.attrs[key])
                yield out
        if any(any(moves) for moves in node.attrs.get("coefficients", ())):
            out = copy.deepcopy(program)
            changed = list(out.nodes())[place][2]
            changed.args = changed.args[: int(changed.attrs["fill"])]
            changed.attrs["coefficients"] = []
            yield out
