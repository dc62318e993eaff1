"""Control flow known only at run time: variables of Python become results and carried values of scf.if, scf.for and scf.while.

- A conditional traces both branches from the same variables and merges those that are live after it (liveness: source.py) and differ.
- A loop carries the variables that its body assigns and that are live at its head; others are local to a trip.

A variable that starts as a Python number has no type yet. The body is traced with a *weak* value in its place to see what is assigned to
it, then again with the type found:

    s = 0.0                                             # a Python number
    for j in tesela.range(0, N, 256):
        s = s + tesela.sum(x[row, j : j + 256])         # an f32, so s is carried as f32

Where it only meets Python numbers it becomes f32, index or i1.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from xdsl.dialects import scf
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Block, BlockArgument, Operation, Region

from ..dialects import tile
from ..dialects.diagnostics import TeselaError
from ..dialects.tile_indexed import Indexed
from ..dialects.tile_types import MAX_NESTING
from .builder import default_dtype
from .types import Dim, DType, f32, i1, index
from .values import MOST_UNROLLED, Tracing, Undefined, Value, describe, is_number, leaves, rebuild, type_attribute

if TYPE_CHECKING:
    from .trace import Tracer

Scope = tuple[dict[str, Any], dict[str, ast.AST]]
"""The variables, and where each was assigned last."""

MEMORY_OPS = (tile.LoadOp, tile.StoreOp, Indexed)


def in_block(t: Tracer, block: Block, work: Callable[[], Any]) -> Any:
    """Do `work` with its operations going to `block`."""
    if t.nesting == MAX_NESTING:
        raise t.error(
            f"conditionals and loops are nested more than {MAX_NESTING} deep (each elif is one deeper)",
            "choose by arithmetic, or load the answer from an array",
        )
    outer, t.b.block = t.b.block, block
    t.frame.dynamic += 1
    t.nesting += 1
    result = work()
    t.nesting -= 1
    t.frame.dynamic -= 1
    t.b.block = outer
    return result


def form(value: Any) -> Any:
    """The nesting of a tuple of tuples."""
    return tuple(map(form, value)) if isinstance(value, tuple) else None


def same(x: Any, y: Any) -> bool:
    """Whether two parts are one value of the kernel, or compile-time values that cannot be told apart."""
    if isinstance(x, Value) and isinstance(y, Value):
        return x.ssa is y.ssa
    return x is y or (type(x) is type(y) and not isinstance(x, Value) and repr(x) == repr(y) and x == y)


# Conditionals


def if_statement(t: Tracer, node: ast.If) -> None:
    """`if`: pick the branch where the condition is known, else trace both."""
    condition = t.condition(node.test)
    if isinstance(condition, bool):
        t.run(node.body if condition else node.orelse)
        return
    frame, flow = t.frame, t.frame.source.flow
    before, places = frame.names, frame.places
    blocks: list[Block] = []
    scopes: list[Scope] = []
    for body in (node.body, node.orelse):
        frame.names, frame.places = dict(before), dict(places)
        blocks.append(Block())
        in_block(t, blocks[-1], lambda body=body: t.run(body))
        scopes.append((frame.names, frame.places))
    frame.names, frame.places = dict(before), {**scopes[1][1], **scopes[0][1]}
    merged: dict[str, tuple[Any, Any]] = {}
    for name in flow.assigned[node]:
        values = [names.get(name, _no_value(name, node, i)) for i, (names, _) in enumerate(scopes)]
        if name not in flow.after[node]:
            frame.names.pop(name, None)
        elif undefined := next((value for value in values if isinstance(value, Undefined)), None):
            frame.names[name] = undefined
        else:
            merged[name] = (values[0], values[1])
    t.b.node = node

    def mismatch(name: str) -> TeselaError:
        then, other = merged[name]
        lines = [f" (line {p[name].lineno})" if name in p else "" for _, p in scopes]  # type: ignore[attr-defined]
        return t.error(
            f"{name} is {describe(then)} where the condition holds{lines[0]}, and {describe(other)} where it does not{lines[1]}",
            "both branches must leave one type and shape: convert with x.to(…) or tesela.broadcast_to",
        )

    frame.names.update(build_if(t, condition, blocks, merged, mismatch))


def _no_value(name: str, node: ast.If, branch: int) -> Undefined:
    when = "does not hold" if branch else "holds"
    return Undefined(
        f"{name} has no value where the condition of line {node.lineno} {when}", "assign it before the if, or in both branches"
    )


def conditional(t: Tracer, condition: Value, node: ast.AST, then: Callable[[], Any], other: Callable[[], Any], what: str) -> Any:
    """The value of an expression that is `then` or `other`: a select of scalars where computing both does no harm, else an scf.if."""
    blocks, values = (Block(), Block()), []
    for block, work in zip(blocks, (then, other)):
        values.append(in_block(t, block, work))
    t.b.node = node
    scalar = all(is_number(v) or isinstance(v, Dim) or (isinstance(v, Value) and not v.shape) for v in values)
    if scalar and not any(op.regions or isinstance(op, MEMORY_OPS) for block in blocks for op in block.ops):
        for block in blocks:
            for op in list(block.ops):
                op.detach()
                t.b.block.add_op(op)
        return t.b.select(condition, *t.b.unify_dtypes(values[0], values[1], what))

    def mismatch(_: str) -> TeselaError:
        return t.error(
            f"{what} is {describe(values[0])} or {describe(values[1])}",
            "both must have one type and shape: convert with x.to(…) or tesela.broadcast_to",
        )

    return build_if(t, condition, blocks, {"": (values[0], values[1])}, mismatch)[""]


def build_if(
    t: Tracer,
    condition: Value,
    blocks: Sequence[Block],
    merged: dict[str, tuple[Any, Any]],
    mismatch: Callable[[str], TeselaError],
) -> dict[str, Any]:
    """Append the scf.if of two traced blocks; gives the variables after it. `mismatch(name)` is the error for values without
    a common type."""
    pairs: list[tuple[str, Value, Value]] = []
    parts: dict[str, list[Any]] = {}
    for name, (a, b) in merged.items():
        if form(a) != form(b):
            raise mismatch(name)
        parts[name] = []
        for x, y in zip(leaves(a), leaves(b)):
            if same(x, y):
                parts[name].append(x)
                continue
            made = _merge(t, x, y, blocks)
            if made is None:
                raise mismatch(name)
            pairs.append((name, *made))
            parts[name].append(None)
    then, other = blocks
    for number, block in enumerate(blocks):
        if pairs or block is then or block.first_op is not None:
            _terminate(t, block, scf.YieldOp.create(operands=[pair[1:][number].ssa for pair in pairs]))
    regions = [Region(then), Region(other) if other.first_op is not None else Region()]
    op = t.b.add(
        scf.IfOp.create(operands=[condition.ssa], result_types=[pair[1].type for pair in pairs], regions=regions)
    )
    results = []
    for result, (name, x, y) in zip(op.results, pairs):
        result.name_hint = name or None
        results.append(Value(result, x.dtype, x.shape, x.weak and y.weak, x.nonneg and y.nonneg))
    stream = iter(results)
    return {
        name: rebuild(a, iter([next(stream) if part is None else part for part in parts[name]]))
        for name, (a, _) in merged.items()
    }


def _merge(t: Tracer, x: Any, y: Any, blocks: Sequence[Block]) -> tuple[Value, Value] | None:
    """The two values of one variable as values of one type, each made at the end of its block; None if there is no such type."""
    if not all(isinstance(v, Value | Dim) or is_number(v) for v in (x, y)):
        return None
    typed = [v for v in (x, y) if isinstance(v, Value) and not v.weak]
    if typed:
        dtype, shape = typed[0].dtype, typed[0].shape
        if any((v.dtype, v.shape) != (dtype, shape) for v in typed):
            return None
    else:
        dtype, shape = f32 if f32 in (default_dtype(x), default_dtype(y)) else default_dtype(x), ()
    weak = not typed and any(isinstance(v, Value) for v in (x, y))
    pair = []
    for v, block in ((x, blocks[0]), (y, blocks[1])):
        if not _fits(v, dtype):
            return None
        made = in_block(t, block, lambda v=v: t.b.broadcast(t.b.of_dtype(v, dtype), shape))
        pair.append(Value(made.ssa, dtype, shape, weak, made.nonneg))
    return pair[0], pair[1]


def _fits(value: Any, dtype: DType) -> bool:
    """Whether a number, dimension or value can stand where `dtype` is required."""
    if isinstance(value, Value) and not value.weak:
        return value.dtype is dtype
    if isinstance(value, Dim):
        return dtype.kind in ("float", "index")
    kind = default_dtype(value).kind
    return dtype.kind == "float" if kind == "float" else (kind == "bool") == (dtype is i1)


def _is_number_like(value: Any) -> bool:
    """Whether it is a Python number, a dimension, or what stands for one: such take the type, and the shape, of what they replace."""
    return not isinstance(value, Value) or value.weak


def _terminate(t: Tracer, block: Block, terminator: Operation) -> None:
    terminator.location = t.b.location(t.b.node)
    block.add_op(terminator)


# Loops


class Leaf:
    """One part of a variable that a loop carries: its value before the loop, and its type inside.

    `dtype` is None for a part that is no number: it must stay as it is. `weak` while the type is a guess.
    """

    def __init__(self, name: str, start: Any):
        self.name = name
        self.start = start
        self.dtype: DType | None = None
        self.shape: tuple[int, ...] = ()
        self.weak = False
        if isinstance(start, Value):
            self.dtype, self.shape, self.weak = start.dtype, start.shape, start.weak
        elif isinstance(start, Dim):
            self.dtype = index
        elif is_number(start):
            self.dtype, self.weak = default_dtype(start), True


class Loop:
    """A loop being traced: what it carries, and the variables round it.

    `own` is the loop's own variable. `trace(block_args…)` of the two kinds of loops is in `range_loop` and `while_loop`.
    """

    def __init__(self, t: Tracer, node: ast.For | ast.While, own: str | None = None):
        self.t, self.node, self.own = t, node, own
        frame = t.frame
        self.flow = frame.source.flow
        self.before, self.places, self.unrolled = frame.names, frame.places, t.unrolled
        self.names = [
            name
            for name in self.flow.assigned[node]
            if name in self.flow.head[node]
            and name in self.before
            and name != own
            and not isinstance(self.before[name], Undefined)
        ]
        self.leaves = [Leaf(name, part) for name in self.names for part in leaves(self.before[name])]

    def types(self) -> list[Any]:
        """The IR types of what is carried."""
        return [type_attribute(leaf.dtype, leaf.shape) for leaf in self.leaves if leaf.dtype is not None]

    def enter(self) -> None:
        """Begin an attempt: the variables are as they were before the loop."""
        self.t.frame.names, self.t.frame.places, self.t.unrolled = dict(self.before), dict(self.places), self.unrolled

    def bind(self, values: Sequence[Any]) -> None:
        """Give the carried variables these block arguments or results."""
        rest = iter(values)
        parts = []
        for leaf in self.leaves:
            if leaf.dtype is None:
                parts.append(leaf.start)
                continue
            ssa = next(rest)
            ssa.name_hint = leaf.name
            parts.append(Value(ssa, leaf.dtype, leaf.shape, leaf.weak))
        stream = iter(parts)
        for name in self.names:
            self.t.frame.names[name] = rebuild(self.before[name], stream)

    def ends(self) -> list[Any]:
        """The carried parts as the body leaves them."""
        found: list[Any] = []
        for name in self.names:
            end = self.t.frame.names.get(name)
            if isinstance(end, Undefined):
                raise self.t.error(end.message, end.hint, self.t.frame.places.get(name, self.node))
            if form(end) != form(self.before[name]):
                raise self.changed(name, self.before[name], end)
            found += leaves(end)
        return found

    def changed(self, name: str, start: Any, end: Any) -> TeselaError:
        """The error for a variable that does not keep its type."""
        hint = "convert with x.to(…) where it is assigned, or start with a value of the type it gets"
        if isinstance(end, Value) and end.shape and not (isinstance(start, Value) and start.shape):
            number = start if is_number(start) else "value"
            hint = f"start with tesela.full({end.shape}, {number}, tesela.{end.dtype.name})"
        elif isinstance(end, Value) and isinstance(start, Value) and start.shape and not end.shape and start.dtype is end.dtype:
            hint = f"give the scalar a name of its own, or fill the tile with it: tesela.broadcast_to(x, {start.shape})"
        return self.t.error(
            f"{name} is {describe(start)} before the loop and {describe(end)} after a trip; a variable that a loop carries "
            "keeps its type and shape",
            hint,
            self.t.frame.places.get(name, self.node),
        )

    def settle(self, ends: list[Any]) -> bool:
        """Find the types of weak parts; False if there were any, and the body must be traced again."""
        if not any(leaf.weak for leaf in self.leaves):
            return True
        for leaf, end in zip(self.leaves, ends):
            if not leaf.weak:
                continue
            leaf.weak = False
            if isinstance(end, Value) and not end.weak:
                if end.shape or not _fits(leaf.start, end.dtype):
                    raise self.changed(leaf.name, leaf.start, end)
                leaf.dtype = end.dtype
            elif is_number(end) or isinstance(end, Value | Dim):
                found = default_dtype(end)
                if leaf.dtype is not found and i1 in (leaf.dtype, found):
                    raise self.changed(leaf.name, leaf.start, end)
                leaf.dtype = f32 if f32 in (leaf.dtype, found) else leaf.dtype
            else:
                raise self.changed(leaf.name, leaf.start, end)
        return False

    def finish_body(self, block: Block, ends: list[Any]) -> None:
        """End the body with the yield of what is carried."""
        operands = []
        for leaf, end in zip(self.leaves, ends):
            dtype = leaf.dtype
            if dtype is None:
                if not same(leaf.start, end):
                    raise self.changed(leaf.name, leaf.start, end)
                continue
            if not (isinstance(end, Value | Dim) or is_number(end)) or not _fits(end, dtype):
                raise self.changed(leaf.name, leaf.start, end)
            value = in_block(self.t, block, lambda end=end, dtype=dtype: self.t.b.of_dtype(end, dtype))
            if value.shape != leaf.shape:
                if not _is_number_like(end):
                    raise self.changed(leaf.name, leaf.start, end)
                value = in_block(self.t, block, lambda value=value, leaf=leaf: self.t.b.broadcast(value, leaf.shape))
            operands.append(value.ssa)
        _terminate(self.t, block, scf.YieldOp.create(operands=operands))

    def starts(self) -> list[Value]:
        """The carried values before the loop."""
        return [self.t.b.of_dtype(leaf.start, leaf.dtype) for leaf in self.leaves if leaf.dtype is not None]

    def leave(self, op: Operation | None) -> None:
        """Bind the variables after the loop; `op` is None for a loop that never runs."""
        frame = self.t.frame
        inside = frame.places
        frame.names, frame.places = dict(self.before), {**inside, **self.places} if op is None else inside
        if op is None:
            return
        self.bind(op.results)
        for name in (*self.flow.assigned[self.node], *([self.own] if self.own else ())):
            if name in self.names:
                continue
            frame.names.pop(name, None)
            if name in self.flow.after[self.node]:
                what = "is the variable of the loop" if name == self.own else "gets its value inside the loop"
                frame.names[name] = Undefined(
                    f"{name} {what} of line {self.node.lineno}, which may run zero times", "assign it before the loop"
                )


def for_statement(t: Tracer, node: ast.For) -> None:
    """`for`: over tesela.range at run time, over a tuple or tesela.static_range when compiling."""
    if node.orelse:
        raise t.error("else after a loop is not in the kernel language", "write it after the loop", node.orelse[0])
    iterable = t.eval(node.iter)
    if isinstance(iterable, tuple):
        for item in iterable:
            t.unrolled += 1
            if t.unrolled > MOST_UNROLLED:
                hint = "make one of them a tesela.range"
                raise t.error(f"unrolled loops have more than {MOST_UNROLLED} trips together, each of which would be compiled for itself", hint, node.iter)
            t.assign(node.target, item)
            t.run(node.body)
            if t.frame.returned:
                return
    elif not isinstance(iterable, Tracing):
        raise t.error(f"a loop runs over tesela.range, tesela.static_range or a tuple, found {describe(iterable)}", at=node.iter)
    elif not isinstance(node.target, ast.Name):
        raise t.error("the variable of a tesela.range loop must be a single name", at=node.target)
    else:
        range_loop(t, node, node.target, iterable)


def range_loop(t: Tracer, node: ast.For, target: ast.Name, bounds: Tracing) -> None:
    """A loop over tesela.range: scf.for."""
    t.b.node = node.iter
    if isinstance(bounds.args[2], int) and bounds.args[2] <= 0:
        hint = "to count down, loop upward and use stop - 1 - i"
        raise t.error(f"the step of tesela.range must be positive, found {bounds.args[2]}", hint)
    names = ("start", "stop", "step")
    lower, upper, step = (t.b.index(x, f"the {name} of tesela.range") for x, name in zip(bounds.args, names))
    if not isinstance(bounds.args[2], int):  # no trips, rather than trips without end or down past the start
        upper = t.b.select(t.b.compare(">", step, t.b.constant(0, index)), upper, lower)
        step = t.b.arithmetic("maximum", step, t.b.constant(1, index))
    loop = Loop(t, node, target.id)
    while True:
        loop.enter()
        block = Block(arg_types=[IndexType(), *loop.types()])
        _place_args(t, block, target)
        block.args[0].name_hint = target.id
        loop.bind(block.args[1:])
        t.frame.names[target.id] = Value(block.args[0], index, nonneg=lower.nonneg)
        in_block(t, block, lambda: t.run(node.body))
        t.b.node = node
        ends = loop.ends()
        if loop.settle(ends):
            break
        block.erase(safe_erase=False)
    loop.finish_body(block, ends)
    starts = loop.starts()
    op = scf.ForOp.create(
        operands=[lower.ssa, upper.ssa, step.ssa, *(value.ssa for value in starts)],
        result_types=[value.type for value in starts],
        regions=[Region(block)],
    )
    loop.leave(t.b.add(op))


def while_statement(t: Tracer, node: ast.While) -> None:
    """A `while` loop: scf.while, whose first region holds the condition and whose second holds the body."""
    if node.orelse:
        raise t.error("else after a loop is not in the kernel language", "write it after the loop", node.orelse[0])
    loop = Loop(t, node)
    while True:
        loop.enter()
        head, body = Block(arg_types=loop.types()), Block(arg_types=loop.types())
        for block in (head, body):
            _place_args(t, block, node)
        loop.bind(head.args)
        condition = in_block(t, head, lambda: t.condition(node.test))
        t.b.node = node.test
        if condition is False:
            head.erase(safe_erase=False)
            loop.leave(None)
            return
        if condition is True:
            if (found := next((inner for inner in ast.walk(node) if isinstance(inner, ast.Break)), None)) is not None:
                raise t.rejected(found)
            raise t.error("the condition always holds: the loop never ends", "compare something that the body changes")
        _terminate(t, head, scf.ConditionOp.create(operands=[condition.ssa, *head.args]))
        loop.bind(body.args)
        in_block(t, body, lambda: t.run(node.body))
        t.b.node = node
        ends = loop.ends()
        if loop.settle(ends):
            break
        head.erase(safe_erase=False)
        body.erase(safe_erase=False)
    loop.finish_body(body, ends)
    starts = loop.starts()
    op = scf.WhileOp.create(
        operands=[value.ssa for value in starts],
        result_types=[value.type for value in starts],
        regions=[Region(head), Region(body)],
    )
    loop.leave(t.b.add(op))


def _place_args(t: Tracer, block: Block, node: ast.AST) -> None:
    arg: BlockArgument
    for arg in block.args:
        arg.location = t.b.location(node)
