"""Lowering: from tiles with layouts to PTX. `pipeline.py` is the whole compiler on one screen."""

from __future__ import annotations

from ..passes import PassEntry, add_passes

add_passes(
    {
        "tile-to-ptx": PassEntry(
            "tesela.lowering.tile_to_ptx.kernel:TileToPtx", "lower tile kernels with layouts to register vectors"
        ),
        "overlap-waits": PassEntry(
            "tesela.lowering.overlap_waits:OverlapWaits", "hold computation above the waits for wgmmas that it should overlap"
        ),
        "overlap-launches": PassEntry(
            "tesela.lowering.overlap_launches:OverlapLaunches", "let kernels begin while the one before them in their stream ends"
        ),
        "assign-registers": PassEntry(
            "tesela.lowering.assign_registers:AssignRegisters", "name the registers of ptx kernels"
        ),
        "check-registers": PassEntry(
            "tesela.lowering.check_registers:CheckRegisters", "prove that every use reads the register that holds its value"
        ),
        "check-barriers": PassEntry(
            "tesela.lowering.check_barriers:CheckBarriers", "check mbarriers, their bytes and phases, and register budgets; change nothing"
        ),
    }
)
