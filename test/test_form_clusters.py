"""Clusters of blocks that share loads: equal bit for bit to blocks alone, whatever the trips, the grid and the order of events; and when they are formed."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from pipelined_programs import PROGRAMS, Program, matrix
from test_specialize_warps import ORDERS, SPLIT, WHOLE, gemm, kernel, order, variant

from tesela.dialects.diagnostics import TeselaError
from tesela.dialects.launch_plan import LaunchPlan
from tesela.dialects.layout import SharedLayout
from tesela.dialects.parsing import parse_module
from tesela.dialects.target import get_target
from tesela.dialects.verify import verify_module
from tesela.passes import get_pass
from tesela.passes.base import PassContext
from tesela.passes.box_parts import Part, cut_boxes
from tesela.passes.grid_axes import GridAxes
from tesela.runtime import launch
from tesela.runtime.assemble import assemble, find_ptxas
from tesela.runtime.compile import compile
from tesela.runtime.disassemble import find_nvdisasm, read_sass
from tesela.runtime.specialize import usual_facts
from tesela.simulator.blocks import run_kernel

PAIRS = f"{SPLIT}, cluster = 2 : i64"
ALONE = f"{WHOLE}, cluster = 1 : i64"


def arrays(program: Program, trips: int, rows: int, columns: int) -> dict[str, np.ndarray]:
    """As `Program.arrays`, for a result of so many rows and columns: tiles have 64 and 16."""
    rng = np.random.default_rng(trips)
    k = 16 * trips
    return {
        "A": matrix(rng, rows, k),
        "B": matrix(rng, k, columns),
        **program.more(rng, rows, columns, k),
        "C": np.full((rows, columns), np.nan, np.float32),
    }


def simulate(name: str, stages: int, attributes: str, trips: int, which: str | int, rows: int, columns: int) -> dict[str, bytes]:
    program = PROGRAMS[name]
    found = arrays(program, trips, rows, columns)
    with order(which):
        kernel(program, stages, attributes)(**found, device="sim")
    return {array: value.tobytes() for array, value in found.items()}


def scheduled(name: str, attributes: str = PAIRS, stages: int = 3) -> str:
    made = kernel(PROGRAMS[name], stages, attributes)
    return made.ir("schedule", facts=usual_facts(made.contract))


GRIDS = ((72, 32), (136, 48), (200, 16), (40, 80))
"""Results of 2×2, 3×3, 4×1 and 1×5 tiles: pairs that are whole, and pairs of which one block is outside."""


@pytest.mark.parametrize("trips", [0, 1, 2, 3, 4, 7])
def test_trips(trips, monkeypatch):
    """None, fewer than the stages, as many, more; one, two and five points for a cluster."""
    for number, (rows, columns) in enumerate(GRIDS):
        blocks = (2, 4, 132)[(number + trips) % 3]
        monkeypatch.setattr(launch, "SIMULATED_MULTIPROCESSORS", blocks)
        wanted = simulate("gemm", 1, ALONE, trips, "latest", rows, columns)
        found = simulate("gemm", 3, f"{PAIRS}, shares = {blocks} : i64", trips, ORDERS[(number + trips) % len(ORDERS)], rows, columns)
        assert found == wanted, f"{rows}×{columns}"


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in ("gemm", "doubling", "in_place", "written", "last", "rescaled", "moving")])
def test_programs(name, monkeypatch):
    """Two channels in step and three, loops inside loops and one after another, keys and values, conditions that both blocks of a pair share."""
    monkeypatch.setattr(launch, "SIMULATED_MULTIPROCESSORS", 2)
    assert "multicast 2" in scheduled(name)
    for trips, which, (rows, columns) in ((2, "latest", (72, 48)), (5, 1, (136, 32))):
        columns = 16 if name == "attention" else columns
        wanted = simulate(name, 1, ALONE, trips, "latest", rows, columns)
        found = simulate(name, 3, f"{PAIRS}, shares = 2 : i64", trips, which, rows, columns)
        assert found == wanted, f"{trips} trips"


def test_what_is_read_and_written_is_left_alone():
    """A block outside of the grid would read rows while the other block of its pair stores them (found by random programs)."""
    assert "cluster_shape" not in scheduled("in_place")


def test_four_blocks(monkeypatch):
    """Six columns: of the second cluster, two blocks are outside."""
    monkeypatch.setattr(launch, "SIMULATED_MULTIPROCESSORS", 4)
    wanted = simulate("gemm", 1, ALONE, 5, "latest", 72, 96)
    assert simulate("gemm", 3, f"{SPLIT}, cluster = 4 : i64", 5, "earliest", 72, 96) == wanted


@pytest.mark.parametrize("name", ["gemm", "nested", "siblings"])
def test_the_interpreter_agrees(name):
    module = parse_module(scheduled(name))
    verify_module(module)
    for blocks in (1, 2, 5):
        wanted, found = (arrays(PROGRAMS[name], 3, 136, 48) for _ in range(2))
        run_kernel(parse_module(PROGRAMS[name].text(None)), wanted)
        run_kernel(module, found, blocks=blocks)
        assert {k: v.tobytes() for k, v in found.items()} == {k: v.tobytes() for k, v in wanted.items()}


# ---- which blocks, and when -----------------------------------------------------------------------------------------


def clusters(text: str, **options: int) -> tuple[str, list[str]]:
    """The layout level with clusters formed, as text, and the notes."""
    module = parse_module(text)
    context = PassContext(get_target("sm_90a"))
    for name in ("plan-dataflow", "infer-layouts"):
        get_pass(name)().run(module, context)
    context.emitter.diagnostics.clear()
    get_pass("form-clusters")(**options).run(module, context)
    return str(module), [note.message for note in context.emitter.diagnostics]


ALIGNED = gemm(128, 128).replace("[M, K]", "[M, K] {align = 16}").replace("[N, K]", "[N, K] {align = 16}").replace("[M, N]", "[M, N] {noalias}")


def bound(end: str) -> str:
    """A product whose sum ends at `end`."""
    return ALIGNED.replace("%acc = ", f"%end = {end} : index\n  %acc = ").replace("to %K step", "to %end step")


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        (ALIGNED, "array<i64: 2, 1>"),
        (bound("arith.minsi %n, %K"), "array<i64: 2, 1>"),  # where it ends depends on the column: those of a column are alike
        (bound("arith.minsi %m, %K"), "array<i64: 1, 2>"),  # on the row: those of a row
        (bound("arith.minsi %K, %K"), "array<i64: 2, 1>"),
    ],
    ids=["everywhere", "by column", "by row", "by neither"],
)
def test_blocks_with_equal_trips(text, shape):
    module, notes = clusters(text)
    assert f"cluster_shape = {shape}" in module and not notes


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (bound("arith.addi %m, %n"), "how often the tile of %B is loaded depends on the point along axis 0"),
        (ALIGNED.replace(") {", ") attributes {persistent = false} {", 1), "its blocks are not persistent"),
        (ALIGNED.replace(") {", ") attributes {warp_specialize = false} {", 1), "it is not wanted"),
        (gemm(128, 128).replace("[M, N]", "[M, N] {noalias}"), "a tile is loaded by"),
        (
            ALIGNED.replace("{noalias}", "").replace("  %acc = ", "  tile.store %f0, %C[%m, %n] : f32, memref<?x?xf32, strided<[?, 1]>>\n  %acc = "),
            "a point outside of the grid would read %A while another writes it",
        ),
    ],
    ids=["uneven", "not persistent", "no roles", "no TMA", "stored before"],
)
def test_why_not(text, reason):
    """None without being asked for, and silently; a note where they were asked for."""
    module, notes = clusters(text)
    assert "cluster_shape" not in module and "multicast" not in module and not notes
    module, notes = clusters(text, cluster=2)
    assert "cluster_shape" not in module and "multicast" not in module
    assert len(notes) == 1 and notes[0].startswith("no clusters of 2 blocks are formed: ") and reason in notes[0]


def test_where_l2_keeps_up_blocks_stay_alone():
    """A dot of 128×256×64 loads 48 bytes a clock, two that share B's tile 32 each; L2 gives 39."""
    one = gemm(128, 256).replace("[M, K]", "[M, K] {align = 16}").replace("[N, K]", "[N, K] {align = 16}").replace("[M, N]", "[M, N] {noalias}")
    line = next(line for line in one.splitlines() if "tile.dot" in line)
    load = next(line for line in one.splitlines() if "tile.load %A" in line)
    more = [load.replace("%a =", "%a2 =").replace("[%m, ", "[%n, "), line, line.replace("%d =", "%e =").replace("%a, %t, %c", "%a2, %t, %d")]
    two = one.replace(line, "\n".join(more)).replace("scf.yield %d", "scf.yield %e")
    assert "cluster_shape" in clusters(one)[0] and "cluster_shape" not in clusters(two)[0]
    assert "cluster_shape" in clusters(two, cluster=2)[0]


def test_what_is_stated():
    assert "multicast 2" in clusters(ALIGNED.replace(") {", ") attributes {cluster = 2 : i64} {", 1))[0]
    assert "multicast" not in clusters(ALIGNED.replace(") {", ") attributes {cluster = 1 : i64} {", 1))[0]
    assert "multicast 4" in clusters(ALIGNED.replace(") {", ") attributes {cluster = 1 : i64} {", 1), cluster=4)[0]
    for value, message in (("3 : i64", "a cluster has 1, 2, 4 or 8 blocks, found 3"), ("true", "cluster must be a number of blocks")):
        with pytest.raises(TeselaError, match=message):
            clusters(ALIGNED.replace(") {", f") attributes {{cluster = {value}}} {{", 1))
    made = compile(gemm(128, 128), "sm_90a", pins={"cluster": 1})
    assert made.variant(facts=usual_facts(made.contract)).plan.cluster == (1, 1, 1)


@pytest.mark.parametrize(
    ("pins", "line"),
    [
        (None, "clusters of 2 blocks along axis 0 of the grid load the tiles of %B together"),
        ({"cluster": 1}, "no clusters: it is stated so"),
        ({"cluster": 8}, "clusters of 8 blocks along axis 0 of the grid load the tiles of %B together"),
    ],
    ids=str,
)
def test_explained(pins, line):
    made = compile(gemm(128, 256), "sm_90a", pins=pins)
    assert line in made.explain(facts=usual_facts(made.contract)).splitlines()


def test_explained_why_not():
    made = compile(bound("arith.addi %m, %n"), "sm_90a")
    lines = [line for line in made.explain(facts=usual_facts(made.contract)).splitlines() if line.startswith("no clusters: ")]
    assert len(lines) == 1 and "how often the tile of %B is loaded depends on the point along axis 0" in lines[0]


def test_parts():
    """Half of the rows of each box, in whole periods of the swizzle."""
    assert cut_boxes(SharedLayout.tma((256, 64), 2, 128, (1, 0)), 2, 2) == Part(0, 128, 16384)
    assert cut_boxes(SharedLayout.tma((64, 256), 2, 128, (1, 0)), 2, 4) == Part(0, 16, 2048)
    assert cut_boxes(SharedLayout.tma((16, 16), 2, 32, (1, 0)), 2, 2) == Part(0, 8, 256)
    assert cut_boxes(SharedLayout.tma((8, 64), 2, 128, (1, 0)), 2, 2) is None  # four rows: half a period
    assert cut_boxes(SharedLayout.row_major((128, 64), pad=8), 2, 2) is None


@cache
def axes() -> dict[str, frozenset[int]]:
    """What the named scalars of a kernel depend on."""
    module = parse_module("""tile.kernel @k(%x: memref<?xi64> [N]) dims(%N = N) grid(%i = N, %j = N) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %both = arith.addi %i, %j : index
  %rows = scf.for %r = %c0 to %i step %c1 iter_args(%inside = %c0) -> (index) {
    %next = arith.addi %inside, %r : index
    scf.yield %next : index
  }
  %is = arith.cmpi slt, %j, %N : index
  %either = scf.if %is -> (index) {
    scf.yield %c0 : index
  } else {
    scf.yield %c1 : index
  }
  %loaded = tile.load %x[%j] : memref<?xi64> -> i64
  %carried, %late = scf.for %s = %c0 to %N step %c1 iter_args(%p = %c0, %q = %i) -> (index, index) {
    scf.yield %q, %p : index, index
  }
}""")
    kernel_op = next(op for op in module.walk() if op.name == "tile.kernel")
    axes_of = GridAxes(kernel_op)
    values = [value for op in kernel_op.walk() for value in (*op.results, *(arg for region in op.regions for arg in region.block.args))]
    return {value.name_hint: axes_of(value) for value in reversed(values) if value.name_hint}


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("both", {0, 1}), ("inside", set()), ("rows", {0}), ("either", {1}), ("loaded", {1}), ("s", set()), ("carried", {0}), ("late", {0}), ("p", {0})],
)
def test_what_depends_on_which_axis(name, wanted):
    """Also through how often a loop goes round, and which branch is taken."""
    assert axes()[name] == wanted


# ---- launches -------------------------------------------------------------------------------------------------------


def plan(**changes) -> LaunchPlan:
    return replace(LaunchPlan("k", "sm_90a", (), (), ("X", "Y"), (), 384, 0, (2, 1, 1), 0, persistent=True), **changes)


@pytest.mark.parametrize(
    ("logical", "blocks", "suits"),
    [
        ((64, 32, 1), 132, True),
        ((4, 3, 1), 12, True),
        ((3, 5, 1), 20, False),  # a third of the points more
        ((1, 28, 1), 56, False),
        ((17, 2, 1), 36, True),
        ((133, 1, 1), 132, True),
        ((11, 12, 1), 132, False),  # 72 pairs on 66 places: two after another, and 132 blocks on as many places one
    ],
)
def test_grids(logical, blocks, suits):
    assert plan().physical_grid(logical, 132) == (blocks, 1, 1)
    assert plan().suits(logical, 132) == suits
    assert plan(cluster=(1, 1, 1)).suits(logical, 132)


def test_an_odd_number_of_multiprocessors():
    assert plan().physical_grid((64, 32, 1), 113) == (112, 1, 1)
    assert plan().physical_grid((64, 32, 1), 1) == (2, 1, 1)
    assert plan(cluster_axis=1).physical_grid((2, 3, 1), 132) == (8, 1, 1)


def test_a_grid_that_does_not_suit_them_has_blocks_alone(monkeypatch):
    made = compile(gemm(128, 128), "sm_90a")
    for rows, cluster in ((256, (2, 1, 1)), (128, (1, 1, 1))):
        a, b = (np.ones((n, 64), "bfloat16") for n in (rows, 128))
        c = made(a, b, device="sim")
        assert made.last.plan.cluster == cluster and made.last.facts.alone == (cluster == (1, 1, 1))
        assert (np.asarray(c) == 64).all()


# ---- what is emitted ------------------------------------------------------------------------------------------------


def test_a_multicast_put_needs_its_cluster():
    text = scheduled("gemm")
    for wrong, message in (
        (text.replace("cluster_shape", "other"), "the put is for clusters of 2 blocks, but the kernel's blocks do not walk the grid in such"),
        (text.replace("cluster_shape = array<i64: 1, 2>", "cluster_shape = array<i64: 2, 2>"), "must have a power of two for one axis of the grid"),
        (text.replace("cluster_shape = array<i64: 1, 2>", "cluster_shape = array<i64: 1, 4>"), "the put is for clusters of 2 blocks"),
    ):
        assert wrong != text
        with pytest.raises(TeselaError, match=message):
            get_pass("tile-to-ptx")().run(parse_module(wrong), PassContext(get_target("sm_90a")))


def test_text():
    """Each block loads its own rows of A and half of B's; readers of both give a slot back to both."""
    ptx = variant(gemm(128, 256)).ptx
    assert ".explicitcluster" in ptx and ".reqnctapercluster 2, 1, 1" in ptx
    loads = [line for line in ptx.splitlines() if "cp.async.bulk.tensor.2d.shared" in line]
    assert len(loads) == 2 and loads[1].endswith(", 3;") and ".multicast::cluster" in loads[1] and ".multicast" not in loads[0]
    inits = [line for line in ptx.splitlines() if "mbarrier.init" in line]
    assert sum(line.endswith(", 1;") for line in inits) == sum(line.endswith(", 4;") for line in inits) == len(inits) // 2 == 4
    assert ptx.count("mbarrier.arrive.shared::cluster.b64") == 2 and "mbarrier.arrive.shared::cta.b64 " not in ptx
    assert ptx.count("barrier.cluster.arrive") == ptx.count("barrier.cluster.wait") == 2


@pytest.mark.skipif(not find_ptxas(), reason="needs ptxas")
@pytest.mark.parametrize("tile", [(128, 256), (256, 128)], ids=str)
def test_machine_code(tile):
    made = variant(gemm(*tile))
    assert made.plan.cluster == (2, 1, 1)
    for assembler in find_ptxas():
        done = assemble(made.ptx, "sm_90a", assembler=assembler)
        assert not done.messages and done.resources["gemm"].spill_stores == 0 and done.resources["gemm"].registers == 168


@pytest.mark.skipif(find_nvdisasm() is None or not find_ptxas(), reason="needs nvdisasm and ptxas")
def test_machine_code_of_the_loop():
    """An arrival at another block is one instruction; none of the fences that a scope of the cluster would take."""
    code = read_sass(variant(gemm(128, 256)).sass())["gemm"]
    computing = code.loops_with("HGMMA")[0]
    opcodes = [instruction.opcode for instruction in computing]
    assert sum(opcode.startswith("SYNCS.ARRIVE.TRANS64.RED") for opcode in opcodes) == 1
    assert not any(instruction.name in ("MEMBAR", "ERRBAR", "CCTL") for instruction in computing)
    assert len(opcodes) <= 42
    multicast = [i.opcode for i in code.instructions if i.name == "UTMALDG"]
    assert multicast == ["UTMALDG.2D", "UTMALDG.2D.MULTICAST"] and not any(i.opcode.startswith("BRA.U.ANY") for i in code.instructions)
