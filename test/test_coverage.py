"""Nothing is half there: every op has a meaning and a lowering, every instruction of the table a meaning in the simulator."""

from __future__ import annotations

from tesela.dialects.async_copy import Async
from tesela.dialects.diagnostics import TeselaError
from tesela.dialects.layout_attrs import Layout
from tesela.dialects.ptx_isa import TABLE
from tesela.dialects.tile import Tile
from tesela.lowering.tile_to_ptx import kernel  # noqa: F401 -- registers the handlers
from tesela.lowering.tile_to_ptx.context import HANDLERS
from tesela.simulator.blocks import known_operations
from tesela.simulator.decode import find_meaning

STRUCTURE = {"tile.kernel", "tile.return", "tile.yield", "scf.yield", "scf.condition"}
"""What the walk over a kernel takes apart itself."""


def lowered() -> set[str]:
    return {kind.name for kind in HANDLERS}


def test_every_op_of_our_dialects_has_a_lowering_and_a_meaning() -> None:
    names = {op.name for dialect in (Tile, Async, Layout) for op in dialect.operations} - STRUCTURE
    assert not names - lowered(), "no lowering"
    assert not names - set(known_operations()), "no meaning in the block interpreter"


def test_lowering_and_interpreter_know_the_same_upstream_ops() -> None:
    interpreted = set(known_operations()) - STRUCTURE
    assert interpreted - lowered() == set(), "interpreted, not lowered"
    assert lowered() - interpreted == set(), "lowered, not interpreted"


def test_every_instruction_has_a_meaning() -> None:
    missing = []
    for opcode in TABLE:
        try:
            find_meaning(opcode)
        except TeselaError:
            missing.append(opcode)
    assert not missing, f"{len(missing)} instructions without a meaning, such as {', '.join(missing[:20])}"
