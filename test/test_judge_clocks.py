"""Vector clocks against their definition: random synchronisation, and what everyone knows as plain sets."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tesela.simulator.clocks import BULK_READ, Clocks

WARP = 32


def machine(blocks: int, threads: int, cluster: int) -> Any:
    stride = -(-threads // WARP) * WARP
    alive = np.tile(np.arange(stride) < threads, blocks)
    return SimpleNamespace(
        thread_count=blocks * stride,
        block_stride=stride,
        block_threads=threads,
        cluster_size=cluster,
        block_count=blocks,
        alive=alive,
    )


class Model:
    """Every thread's knowledge as {agent: time}."""

    def __init__(self, count: int):
        self.known: list[dict[int, int]] = [{} for _ in range(count)]

    def row(self, threads: Any, time: int) -> dict[int, int]:
        row: dict[int, int] = {}
        for t in threads:
            for agent, when in {**self.known[t], int(t): time}.items():
                row[agent] = max(row.get(agent, 0), when)
        return row

    def acquire(self, threads: Any, row: dict[int, int]) -> None:
        for t in threads:
            for agent, when in row.items():
                self.known[t][agent] = max(self.known[t].get(agent, 0), when)

    def knows(self, t: int, agent: int, time: int) -> bool:
        return t == agent or self.known[t].get(agent, 0) >= time


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize(("blocks", "threads", "cluster"), [(2, 64, 1), (4, 48, 2), (3, 96, 1)])
def test_against_sets(seed: int, blocks: int, threads: int, cluster: int) -> None:
    rng = random.Random(seed)
    m = machine(blocks, threads, cluster)
    clocks, model = Clocks(m, 1, 1), Model(m.thread_count)
    live = np.nonzero(m.alive)[0]
    held: dict[int, tuple[Any, dict[int, int]]] = {}  # per cluster: a row that somebody published
    accesses: list[tuple[int, int]] = []
    for _ in range(60):
        what = rng.choice(["access", "access", "block", "warp", "lanes", "publish", "acquire", "blocks"])
        block = rng.randrange(blocks)
        mine = live[live // m.block_stride == block]
        warp = mine[mine // WARP == rng.choice(sorted(set((mine // WARP).tolist())))]
        some = np.array(sorted(rng.sample(warp.tolist(), rng.randint(1, len(warp)))))
        if what == "access":
            accesses.append((int(rng.choice(live.tolist())), clocks.tick()))
        elif what == "blocks":
            time = clocks.tick()
            if clocks.whole_blocks(np.arange(blocks), time):
                for b in range(blocks):
                    threads_of = live[live // m.block_stride == b]
                    model.acquire(threads_of, model.row(threads_of, time))
        elif what == "block":
            time = clocks.tick()
            clocks.meet(mine, time)
            model.acquire(mine, model.row(mine, time))
        elif what in ("warp", "lanes"):
            group = warp if what == "warp" else some
            time = clocks.now
            clocks.meet_in_warps(group)
            model.acquire(group, model.row(group, time))
        elif what == "publish":
            time = clocks.tick()
            row = clocks.publish(some, time), model.row(some, time)
            held[block // cluster] = row
        elif block // cluster in held:
            row = held[block // cluster]
            clocks.acquire(some, row[0])
            model.acquire(some, row[1])
        for agent, time in accesses[-12:]:
            asked = np.array(rng.sample(live.tolist(), 8))
            found = clocks.knows(asked, np.full(8, agent), np.full(8, time))
            assert found.tolist() == [model.knows(int(t), agent, time) for t in asked]


def test_what_a_lane_has_waited_for_spreads_when_its_warp_meets() -> None:
    clocks = Clocks(machine(1, 64, 1), 1, 1)
    agent = clocks.agent(BULK_READ, 0, 0)
    time = clocks.tick()
    asked = np.array([0, 1, 33])
    agents, times = np.full(3, agent), np.full(3, time)
    assert clocks.knows(asked, agents, times).tolist() == [False, False, False]
    clocks.complete(BULK_READ, 0, time)
    assert clocks.knows(asked, agents, times).tolist() == [True, False, False]
    clocks.meet_in_warps(np.arange(32))
    assert clocks.knows(asked, agents, times).tolist() == [True, True, False]
    clocks.meet(np.arange(64), clocks.tick())
    assert clocks.knows(asked, agents, times).all()


def test_rows_nobody_stands_on_are_dropped() -> None:
    clocks = Clocks(machine(4, 64, 1), 1, 1)
    for _ in range(1000):
        for block in range(4):
            clocks.meet(np.arange(64 * block, 64 * block + 64), clocks.tick())
    assert len(clocks.rows) <= 128
    assert clocks.knows(np.array([3]), np.array([60]), np.array([clocks.now - 10])).all()
    assert not clocks.knows(np.array([3]), np.array([64]), np.array([1])).any()


@pytest.mark.parametrize(("blocks", "threads", "cluster"), [(3, 64, 1), (6, 48, 2)])
def test_what_clusters_tell_one_another_against_sets(blocks: int, threads: int, cluster: int) -> None:
    assert sum(_cross_clusters(seed, machine(blocks, threads, cluster)) for seed in range(8)) > 40


def _cross_clusters(seed: int, m: Any) -> int:
    """Random synchronisation among and in clusters; how often a thread was asked of another cluster and knew."""
    rng = random.Random(seed)
    clocks, model = Clocks(m, 1, 1), Model(m.thread_count)
    live = np.nonzero(m.alive)[0]
    variables: list[tuple[dict[int, Any], dict[int, int]]] = []
    accesses: list[tuple[int, int]] = []
    spread = 0
    for _ in range(80):
        what = rng.choice(["access", "block", "warp", "release", "acquire", "acquire"])
        thread = int(rng.choice(live.tolist()))
        mine = live[live // m.block_stride == thread // m.block_stride]
        if what == "access":
            accesses.append((thread, clocks.tick()))
        elif what in ("block", "warp"):
            group = mine if what == "block" else mine[mine // WARP == thread // WARP]
            time = clocks.tick() if what == "block" else clocks.now
            if what == "block":
                clocks.meet(group, time)
            else:
                clocks.meet_in_warps(group)
            model.acquire(group, model.row(group, time))
        elif what == "release":
            one, time = np.array([thread]), clocks.tick()
            row = clocks.publish(one, time)
            own = thread // clocks.width
            variables.append(({**clocks.far_rows(row, own), own: row}, model.row(one, time)))
        elif variables:
            rows, known = rng.choice(variables)
            own = thread // clocks.width
            if own in rows:
                clocks.acquire(np.array([thread]), rows[own])
            clocks.learn_far(thread, {other: row for other, row in rows.items() if other != own})
            model.acquire([thread], known)
        for agent, time in rng.sample(accesses, min(8, len(accesses))):
            asked = np.array(rng.sample(live.tolist(), 24))
            wanted = [model.knows(int(t), agent, time) for t in asked]
            assert clocks.knows(asked, np.full(24, agent), np.full(24, time)).tolist() == wanted
            spread += sum(w and int(t) // clocks.width != agent // clocks.width for t, w in zip(asked, wanted))
    return spread


def test_threads_that_know_the_same_of_other_clusters_are_asked_once(monkeypatch) -> None:
    """A block of 256 of which one thread has learnt of another cluster: two looks, whatever the number of threads and of accesses."""
    clocks = Clocks(machine(2, 256, 1), 1, 1)
    time = clocks.tick()
    clocks.meet(np.arange(256), time)
    clocks.learn_far(300, {0: clocks.publish(np.array([7]), clocks.tick())})
    clocks.meet(np.arange(256, 512), clocks.tick())
    looks = []
    publish = clocks.publish

    def looked(threads: Any, time: int, tell: bool = True) -> Any:
        looks.append(threads)
        return publish(threads, time, tell)

    monkeypatch.setattr(clocks, "publish", looked)
    asked = np.repeat(np.arange(256, 512), 4)
    assert clocks.knows(asked, np.tile(np.arange(4), 256), np.full(1024, time)).all()
    assert len(looks) == 2
