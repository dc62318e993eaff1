"""Conversions within warps: how elements go from one layout to another by shuffles, worked out from the layouts' matrices over F₂.

Both layouts take bits to bits (`dialects.linear_layout`). For a result's lane l', warp w and word i (of a thread's values) the source has the element in lane l
and word v of the same warp, and both follow by a matrix:

    l = A·l' + A_w·w + B·i            v = C·l' + C_w·w + D·i

`shfl.sync` lets each lane name the lane it reads from, but what a lane offers is one register, the same for all who read it. So word i is not what every
lane receives in round i: lane l' takes word i + F·l' then, for a matrix F with which two lanes that read from one lane want the same word of it.
With A' = A + B·F and C' = C + D·F, what lane l offers is a function of l again,

    G·l + (G·A_w + C_w)·w + (D + G·B)·i         where G·A' = C'

A word number that depends on the lane is no register's name, so before the rounds words are exchanged pairwise by selp, one set of exchanges for each rank of G, and
after them for each rank of F. If A' is the identity, a round is a butterfly; and where B·i is zero, too, nobody has to be asked.

Example: lane bit 0 changes places with word bit 0 (a 2×2 transposition between neighbours). A lacks lane bit 0, B has it: l = (l' without bit 0) + i, v = bit 0 of
l'. F = "bit 0 of the lane" makes A' the identity; each lane keeps one of two words, and gets the other from its neighbour:

>>> rows = TVLayout.parse("thread [2:(1,0), 16:(0,2)], value [2:(0,1)]")
>>> columns = TVLayout.parse("thread [2:(0,1), 16:(0,2)], value [2:(1,0)]")
>>> plan = plan_shuffles(rows, columns, 32)
>>> plan.butterfly, [(r.word, r.lanes, r.offered) for r in plan.rounds], plan.before, plan.after
(True, [(0, 0, 0), (1, 1, 1)], (Exchange(threads=1, words=1),), (Exchange(threads=1, words=1),))
>>> plan.shuffles
1

Digits of values that are no powers of two may be there if both sides have the same; they stand aside (`Aside`). What else has no matrix, or crosses warps, has no
plan. A word is 32 bits if both sides hold the same neighbours in a register, else one element.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod

from ..dialects.layout import LayoutError, Mode, TVLayout, split_modes
from ..dialects.linear_layout import LinearLayout
from ..dialects.ptx_isa import UNITS
from ..dialects.tv_layout import WARP, merge_modes
from .layout_costs import SLOTS

MOST_REGISTERS = 64
"""Of a thread's tile that is shuffled: while that goes on there are about two for each (what came, and what is still asked for), beside all else that lives."""
LANE_BITS = WARP.bit_length() - 1
LANES = WARP - 1
INDEXED = "shfl.sync.idx.b32"
BUTTERFLY = "shfl.sync.bfly.b32"


@dataclass(frozen=True, slots=True)
class Exchange:
    """In threads of whose number an odd count of the bits `threads` is set, each word changes places with that whose number differs by `words`."""

    threads: int
    words: int


@dataclass(frozen=True, slots=True)
class Round:
    """Result word `word` (before the last exchanges) is the word `offered` (after the first ones) of the lane that `Shuffles.lane_of` names, XOR `lanes`."""

    word: int
    lanes: int
    offered: int


@dataclass(frozen=True, slots=True)
class Aside:
    """A digit that both sides have alike: its extent, and its weight in the words of the source and of the result."""

    extent: int
    source: int
    result: int


@dataclass(frozen=True, slots=True)
class Shuffles:
    """A plan. `per_word`: elements of a word. Words are numbered by bits, the digits aside left out; `source_weights` and `result_weights` say what a bit counts among
    a thread's words, of which there are `source_words` and `result_words`. `lane_of`: for each bit of the thread's number, which bits of the lane it
    changes that is read from."""

    per_word: int
    before: tuple[Exchange, ...]
    rounds: tuple[Round, ...]
    after: tuple[Exchange, ...]
    lane_of: tuple[int, ...]
    source_weights: tuple[int, ...]
    result_weights: tuple[int, ...]
    source_words: int
    result_words: int
    aside: tuple[Aside, ...]

    @property
    def butterfly(self) -> bool:
        """Whether lanes differ from those they read by the same bits everywhere."""
        return self.lane_of == tuple(1 << i if i < LANE_BITS else 0 for i in range(len(self.lane_of)))

    @property
    def copies(self) -> int:
        """How often the rounds are gone through: once for each combination of the digits aside."""
        return prod(digit.extent for digit in self.aside)

    def local(self, one: Round) -> bool:
        """Whether in this round each lane reads from itself."""
        return self.butterfly and one.lanes == 0

    @property
    def shuffles(self) -> int:
        """Words that are shuffled."""
        return self.copies * len({(one.lanes, one.offered) for one in self.rounds if not self.local(one)})

    @property
    def selections(self) -> int:
        """Words that are selected."""
        return self.copies * ((len(self.before) << len(self.source_weights)) + (len(self.after) << len(self.result_weights)))

    def cost(self, bits: int, warps: int) -> int:
        """In slots: shuffles, selections, the lanes that are read from, words of one element apart and together; and the latency of one shuffle."""
        halves = 2 if bits == 64 else 1
        alu = UNITS["alu"].issue
        moved = self.shuffles * UNITS["shuffle"].issue + self.selections * alu
        lanes = 0 if self.butterfly else len({one.lanes for one in self.rounds})
        unpacked = self.source_words + self.result_words if bits < 32 and self.per_word * bits < 32 else 0
        return SLOTS * UNITS["shuffle"].latency + (halves * moved + alu * (lanes + 2 * unpacked)) * warps

    def source_place(self, word: int, at: Sequence[int]) -> int:
        """Which of the source's words a number stands for, where the digits aside are `at`."""
        return _place(word, self.source_weights) + sum(digit * aside.source for digit, aside in zip(at, self.aside))

    def result_place(self, word: int, at: Sequence[int]) -> int:
        return _place(word, self.result_weights) + sum(digit * aside.result for digit, aside in zip(at, self.aside))

    def asides(self) -> Iterator[tuple[int, ...]]:
        """Each combination of the digits aside."""
        return product(*(range(digit.extent) for digit in self.aside))


def _place(word: int, weights: Sequence[int]) -> int:
    return sum(weight for i, weight in enumerate(weights) if word >> i & 1)


@lru_cache(maxsize=16384)
def plan_shuffles(source: TVLayout, result: TVLayout, bits: int) -> Shuffles | None:
    """The cheapest way by shuffles for elements of `bits`; None where there is none."""
    for per_word in dict.fromkeys((max(1, 32 // max(bits, 8)) if bits > 1 else 1, 1)):
        if max(source.num_values, result.num_values) * max(1, bits // 32) > MOST_REGISTERS * per_word:
            continue
        plan = _plan(source, result, per_word)
        if plan is not None:
            return plan
    return None


def _plan(source: TVLayout, result: TVLayout, per_word: int) -> Shuffles | None:
    if source.num_threads != result.num_threads or source.num_threads % WARP or source.rank != result.rank:
        return None
    try:
        (low, warps), (result_low, result_warps) = (split_modes(side.thread, WARP) for side in (source, result))
        (held, words), (result_held, result_words) = (split_modes(side.value, per_word) for side in (source, result))
    except LayoutError:
        return None
    if merge_modes(held) != merge_modes(result_held) or source.num_values % per_word or result.num_values % per_word:
        return None
    if merge_modes(warps) == merge_modes(result_warps):
        warps = result_warps = ()
    sides = _aside(words, result_words)
    if sides is None:
        return None
    (words, weights), (result_words, result_weights), aside = sides
    matrices = _columns((low, warps, words), (result_low, result_warps, result_words))
    if matrices is None:
        return None
    found = _solve(*matrices)
    if found is None:
        return None
    before, rounds, after, lane_of = found
    return Shuffles(
        per_word, before, rounds, after, lane_of, weights, result_weights, source.num_values // per_word, result.num_values // per_word, aside
    )


Words = tuple[list[Mode], tuple[int, ...]]


def _aside(source: Sequence[Mode], result: Sequence[Mode]) -> tuple[Words, Words, tuple[Aside, ...]] | None:
    """The digits of both sides' words that are powers of two, with the weight of each of their bits, and the others, if both sides have the same."""

    def weighed(modes: Sequence[Mode]) -> list[tuple[int, Mode]]:
        out, weight = [], 1
        for mode in modes:
            out.append((weight, mode))
            weight *= mode.extent
        return out

    def odd(entry: tuple[int, Mode]) -> bool:
        return entry[1].extent & (entry[1].extent - 1) != 0

    def even(entries: list[tuple[int, Mode]]) -> Words:
        kept = [entry for entry in entries if not odd(entry)]
        return [mode for _, mode in kept], tuple(weight << i for weight, mode in kept for i in range(mode.extent.bit_length() - 1))

    mine, theirs = weighed(source), weighed(result)
    left = [entry for entry in theirs if odd(entry)]
    found = []
    for weight, mode in [entry for entry in mine if odd(entry)]:
        same = next((entry for entry in left if entry[1] == mode), None)
        if same is None:
            return None
        left.remove(same)
        found.append(Aside(mode.extent, weight, same[0]))
    return None if left else (even(mine), even(theirs), tuple(found))


Modes = Sequence[Mode]
Columns = tuple[list[int], list[int], list[int]]
"""Coordinates, packed into an integer, that each bit of the lane, of the warp and of the word adds."""


def _columns(source: tuple[Modes, Modes, Modes], result: tuple[Modes, Modes, Modes]) -> tuple[Columns, Columns] | None:
    """Both sides' columns; None where one has digits that are no powers of two, or that carry."""
    modes = [mode for side in (source, result) for part in side for mode in part]
    rank = len(modes[0].stride) if modes else 0
    widths = [max((mode.extent * mode.stride[d]).bit_length() for mode in modes) + 1 for d in range(rank)]
    out: list[Columns] = []
    for side in (source, result):
        parts: list[list[int]] = []
        for part in side:
            columns = []
            for mode in part:
                if mode.extent & (mode.extent - 1):
                    return None
                for i in range(mode.extent.bit_length() - 1):
                    packed = 0
                    for stride, width in zip(mode.stride, widths):
                        packed = packed << width | stride << i
                    columns.append(packed)
            parts.append(columns)
        whole = [column for columns in parts for column in columns]
        if sum(whole).bit_count() != sum(column.bit_count() for column in whole):
            return None
        lanes, warps, words = parts
        out.append((lanes + [0] * (LANE_BITS - len(lanes)), warps, words))
    return out[0], out[1]


Answer = tuple[tuple[Exchange, ...], tuple[Round, ...], tuple[Exchange, ...], tuple[int, ...]]


def _solve(source: Columns, result: Columns) -> Answer | None:
    """Exchanges before, rounds, exchanges after, and the lane that is read from, for each bit of the thread; None if a warp lacks what it needs."""
    lanes, warps, words = source
    if len(warps) != len(result[1]):
        return None
    bits = max([1, *(column.bit_length() for side in (source, result) for part in side for column in part)])
    holders = LinearLayout((*lanes, *words), bits)
    wanted = [*result[0], *(mine ^ theirs for mine, theirs in zip(warps, result[1])), *result[2]]
    images = []
    for column in wanted:
        if (image := holders.solve(column)) is None:
            return None
        images.append(image)
    count = len(warps)
    by_lane, by_warp, by_word = images[:LANE_BITS], images[LANE_BITS : LANE_BITS + count], images[LANE_BITS + count :]
    ways = [_answer(fitted, by_warp, by_word) for fitted in (_butterflies(by_lane, by_word, holders), _fewest(by_lane, by_word, holders)) if fitted]
    found = [way for way in ways if way is not None]
    return min(found, key=lambda way: _weight(way, len(words), len(result[2])), default=None)


def _weight(way: Answer, source_bits: int, result_bits: int) -> int:
    before, rounds, after, lane_of = way
    near = all(column == (1 << i if i < LANE_BITS else 0) for i, column in enumerate(lane_of))
    moved = len({(one.lanes, one.offered) for one in rounds if one.lanes or not near})
    return UNITS["shuffle"].issue * moved + UNITS["alu"].issue * ((len(before) << source_bits) + (len(after) << result_bits))


Fitted = tuple[list[int], list[int]]
"""For each bit of the lane: the image with A' and C', and F."""


def _butterflies(by_lane: list[int], by_word: list[int], holders: LinearLayout) -> Fitted | None:
    """F with which A' is the identity."""
    shifts = [*by_word, *(k for k in holders.kernel() if k & LANES)]
    table = LinearLayout(tuple(shift & LANES for shift in shifts), LANE_BITS)
    images, chosen = [], []
    for i, image in enumerate(by_lane):
        lack = table.solve(image & LANES ^ 1 << i)
        if lack is None:
            return None
        for j, shift in enumerate(shifts):
            if lack >> j & 1:
                image ^= shift
        images.append(image)
        chosen.append(lack & (1 << len(by_word)) - 1)
    return images, chosen


def _fewest(by_lane: list[int], by_word: list[int], holders: LinearLayout) -> Fitted | None:
    """F with as few ranks as will do: only for lanes that would ask one lane for different words."""
    images, chosen = list(by_lane), [0] * LANE_BITS
    basis: list[tuple[int, int]] = []  # (bits of the lane, of the word)
    spare = [(shift, 1 << j) for j, shift in enumerate(by_word)] + [(k, 0) for k in holders.kernel() if k & LANES]
    late = []
    for i, image in enumerate(by_lane):
        lane, word = _reduced(image & LANES, image >> LANE_BITS, basis)
        if lane:
            _extend(basis, lane, word)
        elif word:
            late.append(i)
    for i in late:
        for shift, f in spare:
            changed = images[i] ^ shift
            lane, word = _reduced(changed & LANES, changed >> LANE_BITS, basis)
            if lane:
                _extend(basis, lane, word)
                images[i], chosen[i] = changed, f
                break
        else:
            return None
    return images, chosen


def _reduced(lane: int, word: int, basis: Sequence[tuple[int, int]]) -> tuple[int, int]:
    for b, w in basis:
        if lane ^ b < lane:
            lane, word = lane ^ b, word ^ w
    return lane, word


def _extend(basis: list[tuple[int, int]], lane: int, word: int) -> None:
    basis.append((lane, word))
    basis.sort(reverse=True)


def _answer(fitted: Fitted, by_warp: list[int], by_word: list[int]) -> Answer | None:
    """Exchanges and rounds for A', C' and F."""
    images, chosen = fitted
    basis: list[tuple[int, int]] = []
    for image in images:
        lane, word = _reduced(image & LANES, image >> LANE_BITS, basis)
        if lane:
            _extend(basis, lane, word)
        elif word:
            return None  # two lanes ask one for different words
    offers = []
    for i in range(LANE_BITS):
        lane, word = _reduced(1 << i, 0, basis)
        if lane:
            _extend(basis, lane, 0)
        offers.append(word)

    def offered(lanes: int) -> int:
        out = 0
        for i, column in enumerate(offers):
            if lanes >> i & 1:
                out ^= column
        return out

    before = _exchanges([*offers, *(offered(image & LANES) ^ image >> LANE_BITS for image in by_warp)])
    rounds = []
    for word in range(1 << len(by_word)):
        image = 0
        for i, column in enumerate(by_word):
            if word >> i & 1:
                image ^= column
        lanes = image & LANES
        rounds.append(Round(word, lanes, image >> LANE_BITS ^ offered(lanes)))
    return before, tuple(rounds), _exchanges(chosen), tuple(image & LANES for image in (*images, *by_warp))


def _exchanges(columns: Sequence[int]) -> tuple[Exchange, ...]:
    """The word that a thread's number adds, bit by bit `columns`, as exchanges: as many as there are independent columns."""
    found: list[list[int]] = []  # [threads, words], the words independent
    basis: list[tuple[int, int]] = []  # (reduced column, which of `found` make it up)
    for i, column in enumerate(columns):
        rest, made = _reduced(column, 0, basis)
        if rest:
            _extend(basis, rest, made ^ 1 << len(found))
            found.append([1 << i, column])
        else:
            for j, entry in enumerate(found):
                if made >> j & 1:
                    entry[0] ^= 1 << i
    return tuple(Exchange(threads, words) for threads, words in found)
