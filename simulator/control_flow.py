"""The control-flow graph of a kernel and the order in which the simulator prefers to run its blocks.

Threads that took different ways at a branch should meet again as early as they can, since the simulator runs all threads
that stand at one place with one NumPy operation. It always runs the place that comes *first* in an order in which a loop's
blocks stand together, before what follows the loop, and otherwise every block before its successors: then nobody runs on
past a join (the branch's immediate post-dominator) while others can still reach it. Such an order is Bourdoncle's *weak
topological order* ("Efficient chaotic iteration strategies with widenings", 1993): strongly connected components in topological
order, each with its head first, and the same again inside it without the head.

    entry -> head; head -> body | exit; body -> then | else; then -> join; else -> join; join -> head
    order: entry, head, body, then, else, join, exit
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..dialects.diagnostics import TeselaError
from ..dialects.ptx_program import Entry, Instr, Label, LabelDef


@dataclass(slots=True)
class Block:
    """A straight run of instructions. `jump`: the block a branch at its end goes to, `fall`: the block that follows when it does
    not (or is guarded); None where there is none."""

    index: int
    instrs: list[Instr] = field(default_factory=list)
    jump: int | None = None
    fall: int | None = None

    def successors(self) -> tuple[int, ...]:
        return tuple(b for b in (self.fall, self.jump) if b is not None)


def family(opcode: str) -> str:
    return opcode.partition(".")[0]


def build_blocks(entry: Entry) -> list[Block]:
    """The basic blocks of a kernel in the order of the text; block 0 is the entry. Raises TeselaError for an unknown label."""
    blocks = [Block(0)]
    labels: dict[str, int] = {}
    targets: list[tuple[Block, str]] = []
    ended = False

    def start() -> Block:
        block = Block(len(blocks))
        if not ended:
            blocks[-1].fall = block.index
        blocks.append(block)
        return block

    for item in entry.body:
        if isinstance(item, LabelDef):
            if blocks[-1].instrs or ended:
                start()
                ended = False
            labels[item.name] = len(blocks) - 1
        elif isinstance(item, Instr):
            if ended:
                start()
                ended = False
            block = blocks[-1]
            block.instrs.append(item)
            kind = family(item.opcode)
            if kind == "bra":
                target = item.operands[0]
                if not isinstance(target, Label):
                    raise TeselaError(f"kernel {entry.name}: the target of '{item.opcode}' is not a label")
                targets.append((block, target.name))
            if kind in ("bra", "ret", "exit", "trap"):
                ended = item.guard is None
                if not ended:
                    start()
    for block, name in targets:
        if name not in labels:
            raise TeselaError(f"kernel {entry.name}: branch to the label '{name}', which does not exist")
        block.jump = labels[name]
    return blocks


def _components(nodes: Iterable[int], successors: Mapping[int, Sequence[int]]) -> list[list[int]]:
    """Strongly connected components of a subgraph in topological order, each with the node it was entered by first (Tarjan 1972,
    without recursion)."""
    inside = set(nodes)
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    on_stack: set[int] = set()
    stack: list[int] = []
    found: list[list[int]] = []
    for root in nodes:
        if root in number:
            continue
        work: list[tuple[int, int]] = [(root, 0)]
        while work:
            node, at = work.pop()
            if at == 0:
                number[node] = low[node] = len(number)
                stack.append(node)
                on_stack.add(node)
            out = [s for s in successors[node] if s in inside]
            while at < len(out):
                succ = out[at]
                at += 1
                if succ not in number:
                    work.append((node, at))
                    work.append((succ, 0))
                    break
                if succ in on_stack:
                    low[node] = min(low[node], number[succ])
            else:
                if low[node] == number[node]:
                    component: list[int] = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        component.append(member)
                        if member == node:
                            break
                    found.append(component[::-1])
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
    return found[::-1]


def running_order(blocks: Sequence[Block]) -> list[int]:
    """The reachable blocks in weak topological order; the entry comes first."""
    successors = {b.index: b.successors() for b in blocks}
    reachable: list[int] = []
    seen = {0}
    work = [0]
    while work:
        node = work.pop()
        reachable.append(node)
        for succ in successors[node]:
            if succ not in seen:
                seen.add(succ)
                work.append(succ)
    order: list[int] = []
    # A stack of lists of components still to be written, so that deep nesting costs no recursion.
    pending: list[list[int]] = _components(reachable, successors)[::-1]
    while pending:
        component = pending.pop()
        order.append(component[0])
        if len(component) > 1:
            pending.extend(_components(component[1:], successors)[::-1])
    return order
