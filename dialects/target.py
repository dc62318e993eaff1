"""Targets: the GPU architectures that code is generated for, and the facts about each that the compiler relies on.

Sources: CUDA C++ Programming Guide, "Compute Capabilities" (technical specifications per compute capability), and the
"Target ISA Notes" of the PTX ISA for what an instruction requires.
"""

from __future__ import annotations

from dataclasses import dataclass

from .diagnostics import TeselaError


@dataclass(frozen=True)
class Target:
    """One architecture. Sizes are bytes unless they say otherwise."""

    name: str
    """As in `.target` and ptxas `-arch`: the suffix `a` admits instructions of exactly this architecture."""
    ptx_version: tuple[int, int]
    """The `.version` that emitted text states: the oldest that has all we emit, so that older drivers assemble it."""
    max_shared_bytes: int
    """Shared memory that one block may use at most, dynamic and static together, after opting in."""
    shared_bytes_per_sm: int
    """Shared memory of a multiprocessor, for all its resident blocks; each takes `reserved_shared_bytes` more."""
    has_tma: bool
    """`cp.async.bulk.tensor` (PTX ISA: requires sm_90)."""
    has_mbarrier: bool
    """`mbarrier` with `try_wait` and transaction counts (`expect_tx`; PTX ISA: require sm_90)."""
    has_wgmma: bool
    """`wgmma` and `setmaxnreg` (PTX ISA: require sm_90a)."""
    has_clusters: bool
    """Thread block clusters and distributed shared memory (PTX ISA: require sm_90)."""
    reserved_shared_bytes: int = 1024
    static_shared_bytes: int = 49152
    """Shared memory of a block without opting in."""
    max_threads_per_block: int = 1024
    max_warps_per_sm: int = 64
    max_blocks_per_sm: int = 32
    registers_per_sm: int = 65536
    max_registers_per_thread: int = 255
    warp_size: int = 32
    named_barriers: int = 16
    """Barriers 0 to 15 of `bar.sync`; 0 is the block's own."""

    @property
    def compute_capability(self) -> tuple[int, int]:
        """(major, minor): (9, 0) for sm_90a."""
        number = int(self.name.removeprefix("sm_").rstrip("abcdefghijklmnopqrstuvwxyz"))
        return divmod(number, 10)

    @property
    def base_name(self) -> str:
        """The name without its architecture-specific suffix: sm_90 for sm_90a."""
        major, minor = self.compute_capability
        return f"sm_{major}{minor}"


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("sm_80", (7, 8), 166912, 167936, has_tma=False, has_mbarrier=False, has_wgmma=False, has_clusters=False),
        Target("sm_90", (8, 0), 232448, 233472, has_tma=True, has_mbarrier=True, has_wgmma=False, has_clusters=True),
        Target("sm_90a", (8, 0), 232448, 233472, has_tma=True, has_mbarrier=True, has_wgmma=True, has_clusters=True),
    )
}


def get_target(name: str) -> Target:
    """The target of that name; TeselaError that lists the known ones otherwise."""
    if (target := TARGETS.get(name)) is None:
        import difflib  # for the error only

        near = difflib.get_close_matches(name, TARGETS, 1, cutoff=0.8)
        hint = f"did you mean {near[0]}? " if near else ""
        if name.startswith("sm_") and name.rstrip("af")[3:].isdigit() and int(name.rstrip("af")[3:]) > 80:
            hint = "a GPU of compute capability 8.0 or higher runs what is compiled for sm_80, and export(archs=…) assembles it for others; "
        raise TeselaError.at(None, f"unknown target '{name}'", f"{hint}known targets: {', '.join(TARGETS)}")
    return target
