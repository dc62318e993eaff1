"""Where a tile of attention spends its clocks on a GPU: the PTX with a clock read at each wait, of one launch; medians over blocks and tiles.

    python bench/attention_trace.py 32x16x512x128 --causal

Marks are put in the text of the consumers' loop over the grid: where it begins, after each wait for a slot (full), after each wait for products (done), and after
results are handed to TMA (stored). A line of the table is the clocks from the mark before it in the program's text to it.
"""

from __future__ import annotations

import argparse
import re
import statistics
from collections import defaultdict

SLOTS = 2048
"""Marks of a warpgroup that are kept."""
MARK = """  {{ .reg .pred %mp; .reg .b32 %mc, %mt; .reg .b64 %ma;
  mov.u32 %mc, %clock;  mov.u32 %mt, %tid.x;  and.b32 %mt, %mt, 127;  setp.eq.u32 %mp, %mt, 0;  setp.lt.and.u32 %mp, %marks, {limit}, %mp;
  mov.u32 %mt, %tid.x;  shr.u32 %mt, %mt, 7;  mad.lo.u32 %mt, %mt, {slots}, %marks;
  cvt.u64.u32 %ma, %mt;  shl.b64 %ma, %ma, 3;  add.u64 %ma, %ma, %mbase;
  mov.u32 %mt, {kind};  @%mp st.global.v2.b32 [%ma], {{%mt, %mc}};  add.u32 %marks, %marks, 1; }}"""


def marked(ptx: str, warpgroups: int) -> tuple[str, list[str]]:
    """The text with marks, and what each says."""
    lines, kinds, out = ptx.split("\n"), [], []
    begin = next(i for i, line in enumerate(lines) if re.match(r"\$?LOOP1:|.*\$LOOP1:", line))
    end = next(i for i, line in enumerate(lines) if "bra $LOOP1;" in line)

    def mark(what: str) -> None:
        out.append(MARK.format(kind=len(kinds), slots=SLOTS, limit=SLOTS))
        kinds.append(what)

    entry = False
    for number, line in enumerate(lines):
        if ".entry" in line:
            out.append(f".visible .global .align 16 .b64 trace[{132 * warpgroups * SLOTS}];")
        out.append(line)
        if not entry and line.strip().startswith(".reg"):
            entry = True
            out.append("  .reg .b32 %marks; .reg .b64 %mbase;")
        if number == begin - 1:
            out += ["  { .reg .b32 %mt; .reg .b64 %mq;  mov.u32 %marks, 0;  mov.u32 %mt, %ctaid.x;", f"  mul.wide.u32 %mbase, %mt, {warpgroups * SLOTS * 8};  mov.u64 %mq, trace;  add.u64 %mbase, %mbase, %mq; }}"]
        if begin <= number <= end:
            if number == begin:
                mark("tile begins")
            elif re.search(r"bra \$WAIT\d+;", line):
                mark(f"{number}: full")
            elif "wgmma.wait_group" in line:
                mark(f"{number}: done")
            elif "bulk.commit_group" in line:
                mark(f"{number}: stored")
    return "\n".join(out), kinds


def main() -> int:
    from attention_short import FACTS, kernel
    from peers import Torch

    from tesela.runtime import driver

    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("case", nargs="+")
    parser.add_argument("--causal", action="store_true")
    arguments = parser.parse_args()
    torch = Torch()
    for text in arguments.case:
        batch, heads, length, head = map(int, text.split("x"))
        ours = kernel(head, arguments.causal, (None, None, ()))
        variant = ours.compile(target="sm_90a", facts=FACTS)
        warpgroups = 3 if head == 64 else 2
        if "%marks" not in variant.ptx:
            variant.ptx, kinds = marked(variant.ptx, warpgroups)
            variant.waiting, variant._assembled, variant._functions = None, {}, {}  # noqa: SLF001 - the text is another one
        q, k, v = (torch.randn(batch * heads, length, head, dtype=torch.torch.bfloat16) for _ in range(3))
        out = torch.torch.empty_like(q)
        for _ in range(3):
            ours(q, k, v, out, head**-0.5)
        torch.torch.cuda.synchronize()
        api, function = driver.api(), next(iter(variant._functions.values()))  # noqa: SLF001
        module = driver.check(api.cuFuncGetModule(function), "the module")
        pointer, nbytes = driver.check(api.cuModuleGetGlobal(module, b"trace"), "the trace")
        import numpy

        data = numpy.zeros(int(nbytes) // 4, numpy.uint32)
        driver.check(api.cuMemcpyDtoH(data.ctypes.data, pointer, int(nbytes)), "copying")
        marks = data.reshape(132, warpgroups, SLOTS, 2)
        taken: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        tiles: list[int] = []
        trips = -(-length // 128)
        count = 0
        for block in range(132):
            for group in range(warpgroups):
                previous, tile_start, number = None, None, -1
                seen: dict[int, int] = defaultdict(int)
                for kind, clock in marks[block, group].tolist():
                    if clock == 0:
                        break
                    count += 1
                    if kind == 0:
                        if tile_start is not None and number > 0:
                            tiles.append((clock - tile_start) & 0xFFFFFFFF)
                        tile_start, number = clock, number + 1
                        seen.clear()
                    if previous is not None and number > 0:
                        taken[kind, seen[kind], group].append((clock - previous) & 0xFFFFFFFF)
                    seen[kind] += 1
                    previous = clock
        print(f"{text}{' causal' * arguments.causal}: {count} marks, {trips} trips of 128, a tile takes {statistics.median(tiles) if tiles else 0:.0f} clocks (mean {statistics.fmean(tiles or [0]):.0f})")
        print("  mark by trip (warpgroups: median/mean) " + " | ".join(
            f"{kinds[kind]}#{turn} " + " ".join(f"{statistics.median(taken[kind, turn, g]):.0f}/{statistics.fmean(taken[kind, turn, g]):.0f}" for g in range(warpgroups) if (kind, turn, g) in taken)
            for kind, turn in sorted({(kind, turn) for kind, turn, _ in taken if turn < 4})
        ))  # fmt: skip
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
