"""The schedule of a loop, drawn: which unit does what when, what limits it, what it holds. Text for terminals, SVG for documents.

    examples/gemm.mlir:14:10 loop: 1024 clocks a trip; tensor cores 100 %, TMA 46 %
      limited by tensor cores: no order of these operations takes less than 1024 clocks; optimal in this model
      holds %a_channel 4 × 16384 bytes, %b_channel 4 × 32768 bytes; accumulators of 128 registers a thread
      tensor cores  aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
      TMA           bbbbcccccccc
        a  16:10  async.dot

Letters name operations; what repeats for each warpgroup has one letter. A column is a sixty-fourth of a trip.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import ceil
from string import ascii_letters

from xdsl.dialects import scf
from xdsl.ir import Operation

from ..dialects import async_copy
from ..dialects.diagnostics import location_of, nearest_location, value_name
from ..dialects.layout_attrs import TVLayoutAttr
from .alloc_shared import slot_bytes
from .loop_model import COPIES, TENSOR, Busy, Step
from .loop_timing import UNITS, LoopTiming

COLUMNS = 64
WIDTH, ROW_HEIGHT, LEFT = 720, 22, 110
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#44aa99", "#999933", "#882255")
"""P. Tol's bright and muted schemes: told apart also by those who do not see all colours."""


def describe(timing: LoopTiming) -> str:
    """The text for one loop; ends with a newline."""
    lines = [
        f"{_place(timing.loop)} loop: {timing.interval:.0f} clocks a trip; {_shares(timing)}",
        f"  limited by {timing.limit}: no order of these operations takes less than {timing.bound:.0f} clocks; {_verdict(timing)}",
        f"  holds {'; '.join(_holdings(timing)) or 'nothing'}",
    ]
    letters = _letters(timing)
    rows = _rows(timing)
    width = max((len(name) for name, _ in rows), default=0)
    for name, busy in rows:
        lines.append(f"  {name:{width}}  {_bar(timing, busy, letters)}")
    for step, letter in letters.items():
        lines.append(f"  {letter}  {_what(step)}")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def describe_untimed(loop: scf.ForOp) -> str:
    """A line about a loop that has no timeline."""
    return f"{_place(loop)} loop: it takes nothing from channels and has no dots, so nothing is scheduled and there is no timeline"


def _place(op: Operation) -> str:
    location = nearest_location(op)
    return str(location) if location is not None else "?"


def _shares(timing: LoopTiming) -> str:
    """How busy each unit is, the busiest first."""
    interval = max(timing.interval, 1.0)
    shares = sorted(
        ((work / interval, unit) for unit, work in timing.work.items()),
        key=lambda share: (-share[0], UNITS.index(share[1])),
    )
    return ", ".join(f"{timing.unit_name(unit)} {share:.0%}".replace("%", " %") for share, unit in shares if share >= 0.01)


def _verdict(timing: LoopTiming) -> str:
    if timing.optimal:
        return "optimal in this model"
    return f"not proven optimal, the gap is {timing.interval / timing.bound - 1:.0%}".replace("%", " %")


def _holdings(timing: LoopTiming) -> list[str]:
    """Shared memory of the channels that the loop takes from, and registers of what its dots add to."""
    found = []
    channels = dict.fromkeys(step.channel for step in timing.steps if step.kind == "get" and step.channel is not None)
    for channel in channels:
        op = channel.owner
        if isinstance(op, async_copy.ChannelOp):
            found.append(f"{value_name(channel)} {op.depth.value.data} × {slot_bytes(op)} bytes")
    registers = 0
    for step in timing.steps:
        op = step.ops[0]
        if isinstance(op, async_copy.DotOp) and isinstance(layout := op.res.type.tile.encoding, TVLayoutAttr):
            registers += layout.data.num_values
    if registers:
        found.append(f"accumulators of {registers} registers a thread")
    return found


def _rows(timing: LoopTiming) -> list[tuple[str, list[Busy]]]:
    """The rows that something stands in: units first, then the warpgroups."""
    names = [
        *((timing.unit_name(unit), unit) for unit in (TENSOR, COPIES)),
        *((f"warpgroup {group}",) * 2 for group in range(timing.groups)),
    ]
    rows = [(title, [busy for busy in timing.timeline if busy.row == row]) for title, row in names]
    return [(title, busy) for title, busy in rows if busy]


def _window(timing: LoopTiming, busy: Busy) -> tuple[float, float] | None:
    """Where a piece lies in the trip that is shown, in parts of it; None if outside."""
    length = max(timing.interval, 1.0)
    start, end = (busy.start - timing.start) / length, (busy.end - timing.start) / length
    return (max(start, 0.0), min(end, 1.0)) if start < 1 and end > 0 and end > start else None


def _bar(timing: LoopTiming, row: Sequence[Busy], letters: dict[Step, str]) -> str:
    cells = [" "] * COLUMNS
    for busy in row:
        if (window := _window(timing, busy)) is not None:
            for column in range(int(window[0] * COLUMNS), min(COLUMNS, ceil(window[1] * COLUMNS))):
                cells[column] = letters[busy.step]
    return "".join(cells)


def _letters(timing: LoopTiming) -> dict[Step, str]:
    """A letter for each step that takes a unit's time."""
    shown = dict.fromkeys(busy.step for _, row in _rows(timing) for busy in row if _window(timing, busy) is not None)
    ordered = [step for step in (*timing.steps, *timing.puts) if step in shown]
    return {step: ascii_letters[index % len(ascii_letters)] for index, step in enumerate(ordered)}


def _what(step: Step) -> str:
    """The operations of a step, with the lines that they come from."""
    places = [location_of(op) for op in step.ops]
    known = sorted({(place.line, place.column) for place in places if place is not None})
    names = list(dict.fromkeys(op.name for op in step.ops))
    where = f"{known[0][0]}:{known[0][1]}" if known else "?"
    if len(known) > 1:
        where += f" to {known[-1][0]}:{known[-1][1]}"
    more = f" and {len(names) - 6} more" if len(names) > 6 else ""
    return f"{where}  {', '.join(names[:6])}{more}"


def svg(timing: LoopTiming, title: str | None = None) -> str:
    """The same as a picture: a complete SVG document. Hovering a bar shows what it is. `title`: instead of the loop's place."""
    letters = _letters(timing)
    rows = _rows(timing)
    legend = [(letter, _what(step)) for step, letter in letters.items()]
    height = ROW_HEIGHT * (len(rows) + len(legend) + 3)
    colour = {step: COLOURS[index % len(COLOURS)] for index, step in enumerate(letters)}
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 20}" height="{height}" font-family="sans-serif" font-size="12">',
        f'<text x="4" y="16">{escape(title or _place(timing.loop))}: {timing.interval:.0f} clocks a trip, limited by {escape(timing.limit)}; {escape(_verdict(timing))}</text>',
    ]
    y = ROW_HEIGHT * 1.5
    for name, row in rows:
        out.append(f'<text x="4" y="{y + 14:.0f}">{escape(name)}</text>')
        out.append(f'<rect x="{LEFT}" y="{y:.0f}" width="{WIDTH}" height="{ROW_HEIGHT - 4}" fill="#f4f4f4"/>')
        for busy in row:
            if (window := _window(timing, busy)) is not None:
                x, width = LEFT + window[0] * WIDTH, max((window[1] - window[0]) * WIDTH, 0.5)
                title = f"{escape(_what(busy.step))}, {busy.end - busy.start:.0f} clocks"
                out.append(
                    f'<rect x="{x:.1f}" y="{y:.0f}" width="{width:.1f}" height="{ROW_HEIGHT - 4}" fill="{colour[busy.step]}"><title>{title}</title></rect>'
                )
        y += ROW_HEIGHT
    for (step, letter), (_, text) in zip(letters.items(), legend):
        out.append(f'<rect x="{LEFT}" y="{y + 4:.0f}" width="12" height="12" fill="{colour[step]}"/>')
        out.append(f'<text x="{LEFT + 18}" y="{y + 14:.0f}">{letter}: {escape(text)}</text>')
        y += ROW_HEIGHT
    out.append("</svg>\n")
    return "\n".join(out)
