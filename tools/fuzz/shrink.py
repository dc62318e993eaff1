"""Makes a failing program smaller while it still fails in the same way (greedy, in rounds until nothing helps).

Each change takes nodes out, many at once first (their results become zeros, or, of a loop, what it started from; nodes
that nobody needs go with them), takes a value out of what a loop carries, puts a branch in the place of its `if`, makes
a grid extent, a trip count or an extent of tiles smaller, or an array plainer. What is no program any more is skipped,
and so is what fails in another way, which would be another bug.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from .program import EFFECTS, Array, Body, IllTyped, Node, Program, Type, render

Change = Callable[[Program], None]
"""Changes a copy of the program in place. Raises IllTyped where it does not apply."""


def shrink(program: Program, fails: Callable[[Program], bool], seconds: float = 60.0) -> Program:
    """The smallest program found within the time for which `fails` still holds."""
    end = time.monotonic() + seconds
    progress = True
    while progress:
        progress = False
        for kind in (_removals, _simplifications, _smaller_extents, _plainer):
            changes, place = kind(program), 0
            while place < len(changes):
                if time.monotonic() > end:
                    return program
                candidate = _changed(program, changes[place])
                if candidate is not None and _size(candidate) < _size(program) and fails(candidate):
                    program, progress = candidate, True
                    changes = kind(program)  # and on from the same place; the next round tries the earlier ones again
                else:
                    place += 1
    return program


def _changed(program: Program, change: Change) -> Program | None:
    """A changed copy; None if the change does not apply or leaves no program."""
    out = copy.deepcopy(program)
    try:
        change(out)
        _drop_dead(out)
        render(out)
    except IllTyped:
        return None
    return out


def _size(program: Program) -> tuple[int, ...]:
    """What is to become smaller, most important first."""
    nodes = [node for _, _, node in program.nodes()]
    plain = sum((array.view != "dense") + (array.data != "small") for array in program.arrays)
    numbers = sum(abs(number) for node in nodes for number in _numbers(node.attrs))
    weight = sum(1 if node.op in ("zero", "constant") else 3 + len(node.results) for node in nodes)
    extents = sum(program.grid) + sum(program.trips) + sum(sum(array.shape) for array in program.arrays)
    return weight, numbers + extents, plain + (program.warps is not None) + program.noalias


def _numbers(attribute: object) -> Iterator[int]:
    if isinstance(attribute, int):
        yield int(attribute)
    elif isinstance(attribute, Type):
        yield from attribute.shape
    elif isinstance(attribute, dict):
        for value in attribute.values():
            yield from _numbers(value)
    elif isinstance(attribute, list | tuple):
        for value in attribute:
            yield from _numbers(value)


# --- Fewer nodes ---


def _removals(program: Program) -> list[Change]:
    """Runs of nodes, half of them first, then quarters and so on, from the end."""
    count = sum(1 for _ in program.nodes())
    types = render(program).types
    changes = []
    size = count
    while size > 1:
        size = (size + 1) // 2
        changes += [_removal(start, start + size, types) for start in range(max(0, count - size), -1, -size)]
    return changes


def _removal(start: int, end: int, types: dict[int, Type]) -> Change:
    def change(program: Program) -> None:
        for body, _, node in reversed(list(program.nodes())[start:end]):
            place = next((i for i, other in enumerate(body.nodes) if other is node), None)
            if place is None or node.op == "zero":
                continue
            if node.op in ("scf.for", "scf.while"):
                del body.nodes[place]
                _replace(program, dict(zip(node.results, node.args[1:] if node.op == "scf.while" else node.args)))
            else:
                zeros = [Node("zero", [], [result], {"type": types[result]}) for result in node.results]
                body.nodes[place : place + 1] = zeros

    return change


def _simplifications(program: Program) -> list[Change]:
    changes = []
    for place, (_, _, node) in enumerate(program.nodes()):
        if node.op in ("scf.for", "scf.while"):
            changes += [_without_carried(place, index) for index in range(len(node.results))]
        if node.op == "scf.if":
            changes += [_branch_alone(place, branch) for branch in (0, 1)]
        if node.op == "tile.store" and node.results:
            changes.append(_without_readback(place))
    return changes


def _without_carried(place: int, index: int) -> Change:
    def change(program: Program) -> None:
        node = list(program.nodes())[place][2]
        if node.op == "scf.while" and len(node.results) == 1:
            raise IllTyped
        first = 1 if node.op == "scf.while" else 0
        initial = node.args.pop(first + index)
        result, argument = node.results.pop(index), node.bodies[0].args.pop(1 + index)
        del node.bodies[0].yields[index]
        _replace(program, {result: initial, argument: initial})

    return change


def _branch_alone(place: int, branch: int) -> Change:
    def change(program: Program) -> None:
        body, position, node = list(program.nodes())[place]
        chosen = node.bodies[branch]
        body.nodes[position : position + 1] = chosen.nodes
        _replace(program, dict(zip(node.results, chosen.yields)))

    return change


def _without_readback(place: int) -> Change:
    def change(program: Program) -> None:
        node = list(program.nodes())[place][2]
        _replace(program, {node.results.pop(): node.args[0]})

    return change


def _replace(program: Program, values: dict[int, int]) -> None:
    for body in _bodies(program.body):
        body.yields = [values.get(value, value) for value in body.yields]
        for node in body.nodes:
            node.args = [values.get(value, value) for value in node.args]


def _drop_dead(program: Program) -> None:
    """Takes out nodes without effect whose results nobody uses."""
    while True:
        used = {value for body in _bodies(program.body) for value in body.yields}
        used |= {value for _, _, node in program.nodes() for value in node.args}
        for body, position, node in program.nodes():
            effects = any(
                inner.op in EFFECTS for nested in node.bodies for b in _bodies(nested) for inner in b.nodes
            )
            if node.op not in EFFECTS and not effects and not used & set(node.results):
                del body.nodes[position]
                break
        else:
            return


def _bodies(body: Body) -> Iterator[Body]:
    yield body
    for node in body.nodes:
        for inner in node.bodies:
            yield from _bodies(inner)


# --- Smaller and plainer ---


def _smaller_extents(program: Program) -> list[Change]:
    changes: list[Change] = []
    for name, least in (("grid", 1), ("trips", 0)):
        extents = getattr(program, name)
        for axis, extent in enumerate(extents):
            for smaller in sorted({least, extent // 2, extent - 1}):
                if least <= smaller < extent:
                    shape = (*extents[:axis], smaller, *extents[axis + 1 :])
                    changes.append(lambda p, name=name, shape=shape: setattr(p, name, shape))
    shapes = {extent for _, _, node in program.nodes() for extent in _shape_numbers(node)}
    for extent in sorted(shapes, reverse=True):
        for smaller in sorted({1, 2, 4, 8, 16, extent // 2, extent - 1}):
            if 1 <= smaller < extent:
                changes.append(lambda p, old=extent, new=smaller: _resize(p, old, new))
    for place, (_, _, node) in enumerate(program.nodes()):
        if node.op == "scf.for" and isinstance(node.attrs["upper"], int) and node.attrs["upper"] > 0:
            changes.append(lambda p, place=place: list(p.nodes())[place][2].attrs.update(upper=1))
    return changes


def _resize(program: Program, old: int, new: int) -> None:
    def resized(shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(new if extent == old else extent for extent in shape)

    for _, _, node in program.nodes():
        for key in ("shape", "extents"):
            if key in node.attrs:
                node.attrs[key] = resized(node.attrs[key])
        if node.op == "zero":
            node.attrs["type"] = Type(node.attrs["type"].element, resized(node.attrs["type"].shape))


def _shape_numbers(node: Node) -> Iterator[int]:
    for key in ("shape", "extents"):
        yield from node.attrs.get(key, ())


def _plainer(program: Program) -> list[Change]:
    changes: list[Change] = []
    if program.warps is not None:
        changes.append(lambda p: setattr(p, "warps", None))
    if program.noalias:
        changes.append(lambda p: setattr(p, "noalias", False))
    for position, array in enumerate(program.arrays):
        options: list[Array] = []
        if array.view != "dense":
            options.append(replace(array, view="dense"))
        if array.data != "small":
            options.append(replace(array, data="small"))
        for axis, extent in enumerate(array.shape):
            for smaller in sorted({1, extent // 2, extent - 1}):
                if 1 <= smaller < extent:
                    shape = (*array.shape[:axis], smaller, *array.shape[axis + 1 :])
                    options.append(replace(array, shape=shape))
        changes += [lambda p, at=position, option=option: p.arrays.__setitem__(at, option) for option in options]
    for place, (_, _, node) in enumerate(program.nodes()):
        for key in ("base", "shift", "excess"):
            if any(node.attrs.get(key, ())):
                zeros = [0] * len(node.attrs[key])
                changes.append(
                    lambda p, place=place, key=key, zeros=zeros: list(p.nodes())[place][2].attrs.update({key: zeros})
                )
        if node.attrs.get("coefficients"):
            changes.append(lambda p, place=place: _stand_still(list(p.nodes())[place][2]))
        if node.attrs.get("fill"):
            changes.append(lambda p, place=place: _without_fill(list(p.nodes())[place][2]))
    return changes


def _stand_still(node: Node) -> None:
    node.args = node.args[: int(node.op == "tile.store" or node.attrs["fill"])]
    node.attrs["coefficients"] = []


def _without_fill(node: Node) -> None:
    del node.args[0]
    node.attrs["fill"] = False
