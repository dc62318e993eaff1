"""The verifier: dominance against its definition by paths, all errors in order, operations built by hand."""

from __future__ import annotations

import random

import pytest
from xdsl.dialects import test
from xdsl.dialects.builtin import ModuleOp, i32
from xdsl.ir import Block, Region

from tesela.dialects.diagnostics import TeselaError
from tesela.dialects.parsing import parse_module
from tesela.dialects.verify import dominator_tree, verify_module


def random_region(rng: random.Random, size: int) -> Region:
    blocks = [Block() for _ in range(size)]
    for block in blocks:
        block.add_op(
            test.TestTermOp(successors=rng.sample(blocks[1:], min(rng.randrange(3), size - 1)) if size > 1 else [])
        )
    return Region(blocks)


def reachable(region: Region, without: Block | None) -> set[Block]:
    """Blocks on paths from the entry that avoid `without`."""
    seen: set[Block] = set()
    stack = [region.blocks[0]]
    while stack:
        block = stack.pop()
        if block is not without and block not in seen:
            seen.add(block)
            stack += block.last_op.successors
    return seen


@pytest.mark.parametrize("seed", range(60))
def test_dominator_tree_agrees_with_the_definition(seed: int) -> None:
    """a dominates b if every path from the entry to b goes through a."""
    rng = random.Random(seed)
    region = random_region(rng, rng.randrange(1, 12))
    children, unreachable = dominator_tree(region)
    parents = {child: parent for parent, below in children.items() for child in below}
    alive = reachable(region, None)
    assert set(unreachable) == set(region.blocks) - alive
    for block in alive:
        chain = [block]
        while chain[-1] in parents:
            chain.append(parents[chain[-1]])
        assert set(chain) == {a for a in alive if block not in reachable(region, a)}


@pytest.mark.parametrize("seed", range(60))
def test_uses_are_accepted_exactly_where_definitions_dominate(seed: int) -> None:
    rng = random.Random(seed)
    region = random_region(rng, rng.randrange(2, 8))
    blocks = list(region.blocks)
    definition, use = rng.choice(blocks), rng.choice(blocks)
    op = test.TestOp(result_types=[i32])
    user = test.TestOp(operands=[op.results[0]])
    definition.insert_op_before(op, definition.first_op)
    if definition is use and rng.random() < 0.5:
        use.insert_op_before(user, op)
        dominates = use not in reachable(region, None)
    else:
        use.insert_op_before(user, use.last_op)
        dominates = use not in reachable(region, definition) or definition is use
    module = ModuleOp([test.TestOp(regions=[region])])
    if dominates:
        verify_module(module)
    else:
        with pytest.raises(TeselaError):
            verify_module(module)


def test_errors_come_all_and_in_the_order_of_the_text() -> None:
    text = """func.func @f(%a: i32) {
  %0 = "arith.addi"(%a) : (i32) -> i32
  %1 = arith.addi %a, %2 : i32
  %2 = "arith.muli"() : () -> i32
  %3 = arith.addi %4, %2 : i32
  %4 = arith.addi %a, %a : i32
}
"""
    with pytest.raises(TeselaError) as caught:
        verify_module(parse_module(text))
    assert [d.location.line for d in caught.value.diagnostics] == [2, 3, 4, 5, 6]


def test_a_value_used_twice_by_one_operation_is_one_error() -> None:
    text = "func.func @f() {\n  %0 = arith.addi %1, %1 : i32\n  %1 = arith.constant 1 : i32\n  func.return\n}"
    with pytest.raises(TeselaError) as caught:
        verify_module(parse_module(text))
    assert len(caught.value.diagnostics) == 1


def test_long_chains_of_blocks() -> None:
    """Thousands of blocks, as lowered control flow may have, in linear time and without recursion."""
    count = 3000
    text = "func.func @f(%a: i32) {\n  cf.br ^b0\n"
    text += "".join(f"^b{i}:\n  %{i} = arith.addi %a, %a : i32\n  cf.br ^b{i + 1}\n" for i in range(count))
    text += f"^b{count}:\n  %r = arith.addi %0, %{count - 1} : i32\n  func.return\n}}"
    verify_module(parse_module(text))


def test_successors_and_terminators() -> None:
    inner = Region([Block([test.TestTermOp()])])
    outside = inner.blocks[0]
    jump = test.TestTermOp(successors=[outside])
    module = ModuleOp([test.TestOp(regions=[Region([Block([jump, test.TestOp()])]), inner])])
    with pytest.raises(TeselaError) as caught:
        verify_module(module)
    assert [d.message for d in caught.value.diagnostics] == [
        "a block of 'test.op' ends with 'test.op', which is no terminator; it must end with a terminator",
        "'test.termop' branches to a block of another region",
        "'test.termop': 'test.termop' must be the last operation in its parent block",
    ]
