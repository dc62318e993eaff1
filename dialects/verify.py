"""The module verifier: every operation's own rules and the dominance of definitions over uses, all errors at once.

xDSL's verifier stops at the first error, prints the whole module with it, and has no dominance check: it accepts a use
before its definition. `verify_module` runs each operation's own verifier separately and checks itself

- *structure*: successors and terminators;
- *dominance*: a value is defined on every path before it is used, in the region of the use or one round it, with no
  operation that is isolated from above in between;
- *constants*: `dense<...>` holds finite numbers only, since xDSL prints others in a form that reads back as different
  numbers (minus infinity as 4.28e9); constants of type index fit 64 bits, signed.

Dominance within a region follows Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm" (2001). The check is
one walk down the dominator tree that keeps the set of visible values, so that the cost per operand is one set look-up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from xdsl.dialects.builtin import AnyFloat, DenseIntOrFPElementsAttr, IndexType, IntegerAttr, ModuleOp
from xdsl.ir import Block, Operation, OpResult, Region, SSAValue
from xdsl.traits import IsolatedFromAbove, IsTerminator, NoTerminator, SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from .diagnostics import Diagnostic, Emitter, TeselaError, nearest_location
from .messages import explain


def verify_module(module: ModuleOp) -> None:
    """Raise one TeselaError with every error of the module, in the order of the text; a valid module gives None."""
    emitter = Emitter()
    escaping = _Dominance(emitter).check(module)
    for op in module.walk():
        _verify_structure(op, emitter)
        _verify_constants(op, emitter)
        _verify_own(op, emitter, escaping)
    emitter.diagnostics.sort(key=lambda d: (d.location.line, d.location.column) if d.location else (0, 0))
    emitter.raise_if_errors()


def _verify_own(op: Operation, emitter: Emitter, escaping: set[Operation]) -> None:
    """The operation's own verifier: its declaration, its traits and its `verify_`."""
    try:
        op.verify_()
    except TeselaError as error:
        for diagnostic in error.diagnostics:
            diagnostic.location = diagnostic.location or nearest_location(op)
        emitter.diagnostics += error.diagnostics
    except VerifyException as error:
        # The isolation trait prints the whole inner operation; the dominance check has said the same at its place.
        if not (op in escaping and str(error).startswith("Operation using value defined out of its IsolatedFromAbove")):
            emitter.error(op, *explain(str(error), op.name))


def _verify_structure(op: Operation, emitter: Emitter) -> None:
    block = op.parent
    if op.successors:
        if block is None or (block.last_op is not op and not op.has_trait(IsTerminator)):
            emitter.error(op, f"'{op.name}' branches to other blocks and must be the last operation of its block")
        if any(successor.parent is not op.parent_region() for successor in op.successors):
            emitter.error(op, f"'{op.name}' branches to a block of another region")
    for region in op.regions:
        needs_terminator = len(region.blocks) > 1 or not op.has_trait(NoTerminator)
        for inner in region.blocks:
            last = inner.last_op
            if needs_terminator and (last is None or not last.has_trait(IsTerminator)):
                what = f"ends with '{last.name}', which is no terminator" if last else "is empty"
                emitter.error(last or op, f"a block of '{op.name}' {what}; it must end with a terminator")


def _verify_constants(op: Operation, emitter: Emitter) -> None:
    for name, attribute in (*op.properties.items(), *op.attributes.items()):
        if isinstance(attribute, IntegerAttr) and isinstance(attribute.type, IndexType):
            if not -(2**63) <= (value := attribute.value.data) < 2**63:
                emitter.error(op, f"'{op.name}': an index has 64 bits and a sign, which {value} does not fit")
            continue
        if not isinstance(attribute, DenseIntOrFPElementsAttr) or not isinstance(
            attribute.get_element_type(), AnyFloat
        ):
            continue
        if bad := [v for v in attribute.iter_values() if not math.isfinite(v)]:
            emitter.error(
                op,
                f"'{op.name}': the dense constant '{name}' holds {bad[0]}; dense constants must be finite",
                "fill the tile from a scalar with tile.full",
            )


class _Dominance:
    """Checks that definitions dominate uses, and reports each use that is not dominated with the reason."""

    def __init__(self, emitter: Emitter):
        self._emitter = emitter
        self._escaping: set[Operation] = set()

    def check(self, module: Operation) -> set[Operation]:
        """Check everything inside `module`; returns the isolated operations that values enter from above."""
        for region in module.regions:
            self._check_region(region, set())
        return self._escaping

    def _check_region(self, region: Region, visible: set[SSAValue]) -> None:
        """Walk the dominator tree; `visible` holds the values from outside, and is left as it was."""
        if region.first_block is None:
            return
        children, unreachable = dominator_tree(region)
        # The stack holds blocks to enter, and sets of values to forget when a subtree is done.
        stack: list[Block | list[SSAValue]] = [region.first_block]
        while stack:
            item = stack.pop()
            if isinstance(item, list):
                visible.difference_update(item)
                continue
            defined = self._check_block(item, visible)
            stack.append(defined)
            stack.extend(reversed(children.get(item, ())))
        if unreachable:
            # No path leads there, so every definition of the region dominates these blocks vacuously.
            everything = visible.union(*(_definitions(block) for block in region.blocks))
            for block in unreachable:
                self._check_block(block, set(everything))

    def _check_block(self, block: Block, visible: set[SSAValue]) -> list[SSAValue]:
        defined: list[SSAValue] = list(block.args)
        visible.update(defined)
        for op in block.ops:
            for index, operand in enumerate(op.operands):
                if operand not in visible and operand not in op.operands[:index]:
                    self._report(op, index, operand)
            for region in op.regions:
                self._check_region(region, set() if op.has_trait(IsolatedFromAbove) else visible)
            visible.update(op.results)
            defined += op.results
        return defined

    def _report(self, user: Operation, index: int, value: SSAValue) -> None:
        name = f"%{value.name_hint}" if value.name_hint else f"operand {index}"
        subject = f"'{user.name}': {name}"
        definer = value.op if isinstance(value, OpResult) else None
        home = definer.parent if definer else value.owner
        region = home.parent if isinstance(home, Block) else None
        ancestor: Operation | None = user
        isolated: Operation | None = None
        while ancestor is not None and ancestor.parent_region() is not region:
            ancestor = ancestor.parent_op()
            if isolated is None and ancestor is not None and ancestor.has_trait(IsolatedFromAbove):
                isolated = ancestor
        if isolated is not None:
            self._escaping.add(isolated)
        hint = None
        if ancestor is None:
            inside = value.owner if isinstance(value.owner, Operation) else value.owner.parent_op()
            if isinstance(value.owner, Operation):
                inside = value.owner.parent_op()
            message = f"{subject} is defined inside {_describe(inside)} and cannot be seen here"
            if inside is None or not inside.has_trait(IsolatedFromAbove):
                hint = "return the value from that region as a result of the operation"
        elif isolated is not None:
            message = f"{subject} is defined outside of {_describe(isolated)}, which sees no values from above"
            hint = "pass the value as an argument"
        elif ancestor is definer:
            message = f"{subject} is used inside its own definition"
        elif ancestor.parent is home:
            message = f"{subject} is used before it is defined"
        else:
            message = f"{subject} is not defined on every path that leads here"
            hint = "pass the value as a block argument"
        error = self._emitter.error(user, message, hint)
        error.notes.append(Diagnostic("note", f"{name} is defined here", nearest_location(value)))


def _describe(op: Operation | None) -> str:
    if op is None:
        return "no operation"
    symbol = op.get_trait(SymbolOpInterface)
    name = symbol.get_sym_attr_name(op) if symbol is not None else None
    return f"'{op.name}'" + (f" @{name.data}" if name is not None else "")


def _definitions(block: Block) -> Iterator[SSAValue]:
    yield from block.args
    for op in block.ops:
        yield from op.results


def dominator_tree(region: Region) -> tuple[dict[Block, list[Block]], list[Block]]:
    """The dominator tree of a region as block -> blocks it immediately dominates, and the unreachable blocks.

    Blocks in a child list stand in reverse postorder. A region of one block has an empty tree.
    """
    entry = region.first_block
    if entry is None or entry.next_block is None:
        return {}, []
    order = _postorder(entry)
    number = {block: i for i, block in enumerate(order)}
    predecessors: dict[Block, list[Block]] = {block: [] for block in order}
    for block in order:
        for successor in block.last_op.successors if block.last_op else ():
            if successor in number:
                predecessors[successor].append(block)
    idom: dict[Block, Block] = {entry: entry}

    def common(a: Block, b: Block) -> Block:
        while a is not b:
            while number[a] < number[b]:
                a = idom[a]
            while number[b] < number[a]:
                b = idom[b]
        return a

    changed = True
    while changed:
        changed = False
        for block in reversed(order[:-1]):
            known = [p for p in predecessors[block] if p in idom]
            new = known[0]
            for other in known[1:]:
                new = common(new, other)
            if idom.get(block) is not new:
                idom[block] = new
                changed = True
    children: dict[Block, list[Block]] = {}
    for block in reversed(order[:-1]):
        children.setdefault(idom[block], []).append(block)
    return children, [block for block in region.blocks if block not in number]


def _postorder(entry: Block) -> list[Block]:
    """Blocks reachable from `entry` within its region, in the order in which a depth-first search leaves them."""
    seen = {entry}
    order: list[Block] = []
    stack = [(entry, iter(entry.last_op.successors if entry.last_op else ()))]
    while stack:
        block, successors = stack[-1]
        for successor in successors:
            if successor not in seen and successor.parent is entry.parent:
                seen.add(successor)
                stack.append((successor, iter(successor.last_op.successors if successor.last_op else ())))
                break
        else:
            order.append(block)
            stack.pop()
    return order
