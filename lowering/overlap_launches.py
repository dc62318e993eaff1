"""overlap-launches: a kernel begins while the one before it in its stream still ends (programmatic dependent launch, PTX ISA 9.0 §9.7.14.13).

Between two kernels of a stream a GPU idles for a microsecond or more: the last blocks of one end, then the next is launched, sets up its barriers, computes where
its tiles lie and asks for the first. Nothing of that but the last depends on what the first kernel does. So a launch may ask to begin early, and then has to say
itself where it depends on what came before:

    griddepcontrol.wait                all grids before have ended, and what they wrote can be seen
    griddepcontrol.launch_dependents   once all blocks of this grid have said so (or ended), the next grid may begin where there is room

    prologue: barriers, addresses, tensor maps                   prologue
    for each tile:                                               for each tile:
      where the tile lies                                          where the tile lies
      for each step along K:                             →         griddepcontrol.wait
        load                                                       griddepcontrol.launch_dependents
        …                                                          for each step along K: load …
      store                                                        griddepcontrol.wait;  store

**What makes it right.** 1. Every thread waits before its first access to global memory, on every path: the pass goes down into the branches of roles
and into loops of loops, and waits before what is left. A second wait costs nothing. Parameters and tensor maps among them are constants of the
launch and no memory that a grid writes. 2. Every thread that ends has waited, even if it accessed nothing. So a grid does not end before all grids before it
have, and a wait for the last one is a wait for all: *A, B, C* in a stream, where *B* has nothing to do, and *C* reads what *A* wrote.
What is not launched that way (copies, kernels of others) waits for the whole of the grid before it, as ever.

**When the next may begin.** Right after the first wait: all blocks of this grid run then, so that the next takes no room that this one needs, and at most two
grids are under way. Where a launch does not ask for any of this, both instructions do nothing.

The launch plan says `programmatic`; the launcher then asks (CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION). A kernel's attribute `pdl = 0` (`pins={"pdl": 0}`),
or the option `when`, rules it out. `check_waits` proves points 1 and 2 of a finished kernel; the judge (simulator/grid_waits.py) looks for what breaks them as a kernel runs.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar, Literal

from xdsl.dialects.builtin import IntegerAttr, ModuleOp
from xdsl.ir import Block, Operation

from ..dialects.inside import inside
from ..dialects.ptx import ForOp, IfOp, InstOp, KernelOp, WhileOp
from ..dialects.ptx_isa import lookup
from ..dialects.ptx_types import PlanAttr
from ..passes.base import Pass, PassContext
from .tile_to_ptx.kernel import PDL

WAIT = "griddepcontrol.wait"
LAUNCH = "griddepcontrol.launch_dependents"


@dataclass
class OverlapLaunches(Pass):
    """Let kernels begin while the one before them in their stream ends. `when`: as kernels say ('auto'), or for none."""

    name: ClassVar[str] = "overlap-launches"
    when: Literal["auto", "never"] = "auto"

    def run(self, module: ModuleOp, context: PassContext) -> None:
        if self.when == "never":
            return
        for kernel in module.body.block.ops:
            if isinstance(kernel, KernelOp):
                stated = kernel.attributes.pop(PDL, None)
                if lookup(WAIT).supports(kernel.target.data) and not (isinstance(stated, IntegerAttr) and stated.value.data == 0):
                    _place(kernel)


def _place(kernel: KernelOp) -> None:
    body = kernel.body.block
    waits: list[InstOp] = []
    _wait_before(body, waits)
    if not waits:
        return  # it touches no memory
    end = _instruction(WAIT, kernel)
    body.add_op(end)
    for wait in waits:
        block = wait.parent
        assert block is not None
        block.insert_op_after(_instruction(LAUNCH, wait), wait)
    if kernel.plan is not None:
        kernel.properties["plan"] = PlanAttr(dataclasses.replace(kernel.plan.data, programmatic=True))


def _instruction(opcode: str, at: Operation) -> InstOp:
    op = InstOp.make(opcode, [], [])
    op.location = at.location
    return op


def accesses_memory(op: Operation) -> bool:
    """Whether an instruction may read or write global memory. Regions do not count."""
    return isinstance(op, InstOp) and not lookup(op.opcode.data).effects.isdisjoint({"read:global", "write:global"})


def _wait_before(block: Block, waits: list[InstOp]) -> bool:
    """Puts waits before the first accesses of a block, on each of its paths; whether every path through it has waited then."""
    for op in block.ops:
        if not any(accesses_memory(inner) for inner in (inside(op, InstOp) if op.regions else (op,))):
            continue
        match op:
            case IfOp() if _has_loop(op):  # one that chooses a role, say
                done = [_wait_before(region.block, waits) for region in op.regions if region.blocks]
                if len(done) == 2 and all(done):
                    return True
            case ForOp() if not any(accesses_memory(inner) for inner in op.body.block.ops) and _has_loop(op):
                _wait_before(op.body.block, waits)  # which may be run never
            case _:
                wait = _instruction(WAIT, op)
                block.insert_op_before(wait, op)
                waits.append(wait)
                return True
    return False


def _has_loop(op: Operation) -> bool:
    return any(inside(region, ForOp, WhileOp) for region in op.regions)


def check_waits(kernel: KernelOp) -> list[Operation]:
    """The accesses to global memory that a thread may reach before it has waited for the grids before; and the kernel itself where one may end so."""
    early: list[Operation] = []
    if not _waited(kernel.body.block, False, early):
        early.append(kernel)
    return early


def _waited(block: Block, waited: bool, early: list[Operation]) -> bool:
    """Whether a thread that goes through a block, having waited already or not, has waited at its end."""
    for op in block.ops:
        match op:
            case InstOp() if op.opcode.data == WAIT and op.segments()[1] is None:
                waited = True
            case IfOp():
                ends = [_waited(region.block, waited, early) if region.blocks else waited for region in op.regions]
                waited = waited or (len(ends) == 2 and all(ends))
            case ForOp():
                _waited(op.body.block, waited, early)
            case WhileOp():
                waited = _waited(op.regions[0].block, waited, early)  # tested at least once
                _waited(op.regions[1].block, waited, early)
            case _ if accesses_memory(op) and not waited:
                early.append(op)
    return waited
