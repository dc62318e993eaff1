"""Canonicalization: constant folding and each operation's own simplifications, to a fixed point, with locations kept.

xDSL's greedy driver gives new operations no location. Here each operation that a pattern or a fold inserts gets the
location of the operation that was being rewritten; the driver tells us of insertions through its listener.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import UNKNOWN_LOC, LocationAttr, ModuleOp
from xdsl.ir import Operation
from xdsl.pattern_rewriter import (
    GreedyRewritePatternApplier,
    PatternRewriter,
    PatternRewriterListener,
    PatternRewriteWalker,
    RewritePattern,
)
from xdsl.transforms.canonicalize import CanonicalizationRewritePattern
from xdsl.transforms.dead_code_elimination import region_dce

from ..dialects.parsing import make_context
from .base import Pass, PassContext

REWRITES_PER_OPERATION = 100
"""The walk gives up, as an internal error, after this many visits per operation: some pattern then undoes another."""


class _LocatingPattern(RewritePattern):
    """Runs a pattern and remembers where the operation that it rewrites stands in the source."""

    def __init__(self, inner: RewritePattern, visits_left: int):
        self.inner = inner
        self.visits_left = visits_left
        self.location: LocationAttr = UNKNOWN_LOC

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        self.visits_left -= 1
        if self.visits_left < 0:
            raise RuntimeError(f"canonicalization of '{op.name}' does not come to an end")
        self.location = op.location
        self.inner.match_and_rewrite(op, rewriter)

    def inserted(self, op: Operation) -> None:
        """Called by the driver for each operation put into the module."""
        for inner in op.walk():
            if inner.location is UNKNOWN_LOC:
                inner.location = self.location


@dataclass
class Canonicalize(Pass):
    """Apply folds and canonicalization patterns until nothing changes, and erase dead code on the way."""

    name: ClassVar[str] = "canonicalize"

    def run(self, module: ModuleOp, context: PassContext) -> None:
        greedy = GreedyRewritePatternApplier(
            [CanonicalizationRewritePattern()], ctx=make_context(), folding_enabled=True
        )
        size = sum(1 for _ in module.walk())
        pattern = _LocatingPattern(greedy, (size + 10) * REWRITES_PER_OPERATION)
        listener = PatternRewriterListener(operation_insertion_handler=[pattern.inserted])
        PatternRewriteWalker(pattern, post_walk_func=region_dce, listener=listener).rewrite_module(module)
