"""Register assignment: nothing moves that need not, what must move moves rightly, and the checker finds what is
wrong."""

from __future__ import annotations

import re

import pytest
from ptx_programs import RandomKernel, run_flat, run_structured

from tesela.dialects.diagnostics import TeselaError
from tesela.dialects.parsing import parse_module, print_module
from tesela.dialects.ptx import ForOp, InstOp, KernelOp, RegsAttr, WhileOp
from tesela.dialects.ptx_text import print_program
from tesela.dialects.verify import verify_module
from tesela.lowering.assign_registers import _sequence, assign_registers
from tesela.lowering.check_registers import check_registers
from tesela.lowering.emit_ptx import emit

SEEDS = range(160)


def kernel(body: str, target: str = "sm_90a") -> KernelOp:
    """A verified kernel with a few values to work with."""
    prelude = """
      %zero = ptx.constant 0 : !ptx.reg<b32>
      %one = ptx.constant 1 : !ptx.reg<b32>
      %true = ptx.constant 1 : !ptx.reg<pred>
      %x = ptx.param "x" : !ptx.reg<b32>
      %y = ptx.param "y" : !ptx.reg<b32>
      %n = ptx.param "n" : !ptx.reg<b32>
      %out = ptx.param "out" : !ptx.reg<b64>
      %p = ptx.inst "setp.lt.s32" %x, %y : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<pred>
    """
    module = parse_module(f"ptx.kernel @k target {target} threads 128 shared 0 {{ {prelude} {body} }}", "k.mlir")
    verify_module(module)
    (op,) = module.body.block.ops
    assert isinstance(op, KernelOp)
    return op


def assigned(body: str, target: str = "sm_90a") -> KernelOp:
    op = kernel(body, target)
    assign_registers(op)
    verify_module(op.parent_op())  # type: ignore[arg-type]
    check_registers(op)
    return op


def moves(op: KernelOp) -> int:
    """Registers that explicit moves copy, not counting immediates."""
    count = 0
    for inst in op.walk():
        if (
            isinstance(inst, InstOp)
            and inst.opcode.data.startswith("mov.")
            and inst.args[0].owner.name != "ptx.constant"
        ):
            count += inst.repeats()
    return count


def names(op, attribute: str = "regs") -> tuple[tuple[str, ...], ...]:
    found = op.attributes[attribute]
    assert isinstance(found, RegsAttr)
    return found.data


STORE = 'ptx.inst "st.global.b32" %out, {} : (!ptx.reg<b64>, !ptx.reg<b32{}>) -> ()'
WGMMA = (
    '"wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16" {}, %out, %out, %true {{imms = [1, 1, 0, 0]}}'
    " : (!ptx.reg<b32 x 32>, !ptx.reg<b64>, !ptx.reg<b64>, !ptx.reg<pred>) -> !ptx.reg<b32 x 32>"
)
ADD = '"add.s32" {}, {} : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32>'
ZEROS = '%z = ptx.inst "mov.b32" %zero : (!ptx.reg<b32>) -> !ptx.reg<b32 x 32>'


def test_a_carried_accumulator_is_never_moved() -> None:
    """Zero-fill, loop argument, four wgmmas, a conditional fifth, loop results, nested loops: one set of registers."""
    op = assigned(f"""
      {ZEROS}
      %r = ptx.for %i = %zero to %n step %one : !ptx.reg<b32> carried(%a = %z : !ptx.reg<b32 x 32>) {{
        %s = ptx.for %j = %zero to %n step %one : !ptx.reg<b32> carried(%b = %a : !ptx.reg<b32 x 32>) {{
          %b1 = ptx.inst {WGMMA.format("%b")}
          %b2 = ptx.inst {WGMMA.format("%b1")}
          ptx.yield %b2 : !ptx.reg<b32 x 32>
        }}
        %t = ptx.if %p -> (!ptx.reg<b32 x 32>) {{
          %c = ptx.inst {WGMMA.format("%s")}
          ptx.yield %c : !ptx.reg<b32 x 32>
        }} else {{
          ptx.yield %s : !ptx.reg<b32 x 32>
        }}
        ptx.yield %t : !ptx.reg<b32 x 32>
      }}
      {STORE.format("%r", " x 32")}
    """)
    assert moves(op) == 0
    used = {names(inst) for inst in op.walk() if isinstance(inst, InstOp) and inst.opcode.data.startswith("wgmma")}
    assert len(used) == 1


def test_accumulator_in_two_halves() -> None:
    """An accumulator that two instructions update in halves, picked and put together again, is not moved either."""
    half = WGMMA.replace("m64n64", "m64n32").replace("x 32", "x 16")
    first, second = list(range(16)), list(range(16, 32))
    op = assigned(f"""
      {ZEROS}
      %r = ptx.for %i = %zero to %n step %one : !ptx.reg<b32> carried(%a = %z : !ptx.reg<b32 x 32>) {{
        %lo = ptx.pick %a {first} : !ptx.reg<b32 x 32>
        %hi = ptx.pick %a {second} : !ptx.reg<b32 x 32>
        %lo1 = ptx.inst {half.format("%lo")}
        %hi1 = ptx.inst {half.format("%hi")}
        %b = ptx.concat %lo1, %hi1 : (!ptx.reg<b32 x 16>, !ptx.reg<b32 x 16>) -> !ptx.reg<b32 x 32>
        ptx.yield %b : !ptx.reg<b32 x 32>
      }}
      {STORE.format("%r", " x 32")}
    """)
    assert moves(op) == 0


def test_two_accumulators_from_one_zero_fill() -> None:
    """One of the two takes over the zeros' registers; the other gets a copy before the loop, none within."""
    op = assigned(f"""
      {ZEROS}
      %r, %s = ptx.for %i = %zero to %n step %one : !ptx.reg<b32> carried(%a = %z : !ptx.reg<b32 x 32>, %b = %z : !ptx.reg<b32 x 32>) {{
        %a1 = ptx.inst {WGMMA.format("%a")}
        %b1 = ptx.inst {WGMMA.format("%b")}
        ptx.yield %a1, %b1 : !ptx.reg<b32 x 32>, !ptx.reg<b32 x 32>
      }}
      {STORE.format("%r", " x 32")}
      {STORE.format("%s", " x 32")}
    """)
    (loop,) = [inner for inner in op.walk() if isinstance(inner, ForOp)]
    assert moves(op) == 32
    assert not any(isinstance(inner, InstOp) and inner.opcode.data == "mov.b32" for inner in loop.body.block.ops)


def test_an_operand_used_again_is_copied() -> None:
    op = assigned(f"""
      {ZEROS}
      %a = ptx.inst {WGMMA.format("%z")}
      {STORE.format("%z", " x 32")}
      {STORE.format("%a", " x 32")}
    """)
    assert moves(op) == 32


def test_swapped_values_go_through_a_temporary() -> None:
    """Swapping three carried values in a ring takes four moves, not six."""
    op = assigned(f"""
      %a0, %b0, %c0 = ptx.for %i = %zero to %n step %one : !ptx.reg<b32> carried(%a = %x : !ptx.reg<b32>, %b = %y : !ptx.reg<b32>, %c = %n : !ptx.reg<b32>) {{
        ptx.yield %b, %c, %a : !ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<b32>
      }}
      {STORE.format("%a0", "")}
      {STORE.format("%b0", "")}
      {STORE.format("%c0", "")}
    """)
    (loop,) = [inner for inner in op.walk() if isinstance(inner, ForOp)]
    inside = sum(i.repeats() for i in loop.body.block.ops if isinstance(i, InstOp) and i.opcode.data == "mov.b32")
    assert inside == 4


def test_registers_are_taken_over_within_a_fat_instruction() -> None:
    """Register k of a result may take the place of register k of an operand; reversed it may not."""
    body = """
      %v = ptx.inst "mov.b32" %x : (!ptx.reg<b32>) -> !ptx.reg<b32 x 4>
      %r = ptx.for %i = %zero to %n step %one : !ptx.reg<b32> carried(%a = %v : !ptx.reg<b32 x 4>) {{
        %b = ptx.pick %a {} : !ptx.reg<b32 x 4>
        %c = ptx.inst "add.s32" %b, %y : (!ptx.reg<b32 x 4>, !ptx.reg<b32>) -> !ptx.reg<b32 x 4>
        ptx.yield %c : !ptx.reg<b32 x 4>
      }}
    """ + STORE.format("%r", " x 4")
    assert moves(assigned(body.format([0, 1, 2, 3]))) - 4 == 0  # the moves that fill %v
    assert moves(assigned(body.format([3, 2, 1, 0]))) - 4 == 2  # 3 and 2 are read after 0 and 1 are written


def test_a_value_broadcast_to_all_is_not_overwritten_by_the_first() -> None:
    op = assigned(f"""
      %v = ptx.inst "mov.b32" %x : (!ptx.reg<b32>) -> !ptx.reg<b32 x 2>
      %r, %s = ptx.for %i = %zero to %n step %one : !ptx.reg<b32> carried(%a = %v : !ptx.reg<b32 x 2>, %k = %y : !ptx.reg<b32>) {{
        %c = ptx.inst "add.s32" %a, %k : (!ptx.reg<b32 x 2>, !ptx.reg<b32>) -> !ptx.reg<b32 x 2>
        %k1 = ptx.pick %c [0] : !ptx.reg<b32 x 2>
        %k2 = ptx.inst {ADD.format("%k1", "%x")}
        ptx.yield %c, %k2 : !ptx.reg<b32 x 2>, !ptx.reg<b32>
      }}
      {STORE.format("%r", " x 2")}
      {STORE.format("%s", "")}
    """)
    (loop,) = [inner for inner in op.walk() if isinstance(inner, ForOp)]
    assert not any(isinstance(i, InstOp) and i.opcode.data == "mov.b32" for i in loop.body.block.ops)


def test_a_loop_condition_survives_what_it_hands_on() -> None:
    """ptx.condition hands its own predicate on, and swaps: its register is still read by the branch after the moves."""
    op = assigned(f"""
      %q0, %r0 = ptx.while carried(%q = %p : !ptx.reg<pred>, %r = %true : !ptx.reg<pred>) {{
        ptx.condition %q (%r, %q) : !ptx.reg<pred>, !ptx.reg<pred>
      }} do (%s: !ptx.reg<pred>, %t: !ptx.reg<pred>) {{
        ptx.yield %s, %t : !ptx.reg<pred>, !ptx.reg<pred>
      }}
      %v = ptx.inst "selp.b32" %x, %y, %q0 : (!ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> !ptx.reg<b32>
      %w = ptx.inst "selp.b32" %v, %y, %r0 : (!ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> !ptx.reg<b32>
      {STORE.format("%w", "")}
    """)
    (loop,) = [inner for inner in op.walk() if isinstance(inner, WhileOp)]
    carried = names(loop, "arg_regs")
    assert carried[0] not in carried[2:]


def test_a_guard_on_an_in_place_instruction_wants_the_same_else() -> None:
    op = kernel(f"""
      {ZEROS}
      %w = ptx.inst "mov.b32" %one : (!ptx.reg<b32>) -> !ptx.reg<b32 x 32>
      %a = ptx.inst "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16" %z, %out, %out, %true if %p else %w
        {{imms = [1, 1, 0, 0]}} : (!ptx.reg<b32 x 32>, !ptx.reg<b64>, !ptx.reg<b64>, !ptx.reg<pred>, !ptx.reg<pred>, !ptx.reg<b32 x 32>) -> !ptx.reg<b32 x 32>
    """)
    with pytest.raises(TeselaError, match="works in place, but its 'else' is another value than its operand 1"):
        assign_registers(op)


def test_constants_stay_immediates_where_they_can() -> None:
    op = assigned(f"""
      %c = ptx.constant 5 : !ptx.reg<b32>
      %d = ptx.constant 6 : !ptx.reg<b32>
      %s = ptx.inst {ADD.format("%x", "%c")}
      %v = ptx.concat %s, %d : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32 x 2>
      {STORE.format("%v", " x 2")}
    """)
    with_registers = [c.value.value.data for c in op.walk() if c.name == "ptx.constant" and "regs" in c.attributes]
    assert with_registers == [6]


def test_a_constant_worked_on_in_place_is_an_immediate_elsewhere() -> None:
    """Its register may be taken over by a result, since uses as an immediate are no uses of the register."""
    op = assigned(f"""
      %c = ptx.constant 3 : !ptx.reg<b32>
      %d = ptx.concat %c : (!ptx.reg<b32>) -> !ptx.reg<b32>
      %l = ptx.inst "ld.global.b32" %out if %p else %d : (!ptx.reg<b64>, !ptx.reg<pred>, !ptx.reg<b32>) -> !ptx.reg<b32>
      %r = ptx.for %i = %zero to %c step %c : !ptx.reg<b32> carried(%a = %l : !ptx.reg<b32>) {{
        %b = ptx.inst {ADD.format("%a", "%i")}
        ptx.yield %b : !ptx.reg<b32>
      }}
      {STORE.format("%r", "")}
    """)
    text = print_program(emit(op.parent_op()))
    assert "ld.global.b32" in text
    assert re.search(r"setp.lt.s32 %p\d+, %r\d+, 3;", text), text


@pytest.mark.parametrize("seed", SEEDS)
def test_random_kernels(seed: int) -> None:
    """The assignment is proven, the module still means the same, and so does the flat program by its registers."""
    made = RandomKernel(seed)
    verify_module(made.module)
    params = {"x0": seed % 7, "x1": seed * 5 % 11, "x2": 3, "out": 4096}
    expected = run_structured(made.kernel, params)
    assign_registers(made.kernel)
    verify_module(made.module)
    check_registers(made.kernel)
    assert run_structured(made.kernel, params) == expected
    assert run_flat(emit(made.module), params) == expected
    text = print_module(made.module)
    assert print_module(parse_module(text)) == text


def test_random_kernels_exercise_what_matters() -> None:
    """The generator makes loops of both kinds, branches, guards, and moves in cycles."""
    seen = set()
    for seed in SEEDS:
        made = RandomKernel(seed)
        assign_registers(made.kernel)
        seen |= {op.name for op in made.kernel.walk()}
        seen |= {"guard" for op in made.kernel.walk() if isinstance(op, InstOp) and op.guard}
        seen |= {"move" for op in made.kernel.walk() if isinstance(op, InstOp) and op.opcode.data == "mov.b32"}
    assert {"ptx.for", "ptx.while", "ptx.if", "ptx.pick", "ptx.concat", "guard", "move"} <= seen


def _swap(op, attribute: str, old: str, new: str) -> None:
    values = [tuple(new if name == old else name for name in value) for value in names(op, attribute)]
    op.attributes[attribute] = RegsAttr(tuple(values))


def test_checker_is_sound_on_wrong_registers() -> None:
    """Each value's first register in turn is renamed to another's: either the checker objects, or the program still
    computes the same."""
    rejected = accepted = 0
    for seed in range(24):
        made = RandomKernel(seed)
        params = {"x0": 5, "x1": 2, "x2": 3, "out": 4096}
        expected = run_structured(made.kernel, params)
        assign_registers(made.kernel)
        renames = ("ptx.pick", "ptx.concat")
        ops = [op for op in made.kernel.walk() if "regs" in op.attributes and op.name not in renames]
        registers = sorted(
            {name for op in ops for value in names(op) for name in value if name[:2] == "%r" and name[2] != "d"}
        )
        for op in ops:
            old = names(op)[0][0]
            if old not in registers:
                continue
            saved = op.attributes["regs"]
            _swap(op, "regs", old, registers[(registers.index(old) + 1) % len(registers)])
            try:
                check_registers(made.kernel)
            except TeselaError:
                rejected += 1
            else:
                accepted += 1
                assert run_flat(emit(made.module), params) == expected
            op.attributes["regs"] = saved
    assert rejected > 200 and accepted > 0


def test_checker_says_which_value_is_where() -> None:
    op = assigned(f"""
      %a = ptx.inst {ADD.format("%x", "%y")}
      %b = ptx.inst {ADD.format("%a", "%y")}
      %c = ptx.inst {ADD.format("%a", "%b")}
      {STORE.format("%c", "")}
    """)
    (inst,) = [i for i in op.walk() if isinstance(i, InstOp) and i.res and i.res[0].name_hint == "b"]
    a = next(names(i)[0][0] for i in op.walk() if isinstance(i, InstOp) and i.res and i.res[0].name_hint == "a")
    inst.attributes["regs"] = RegsAttr(((a,),))
    with pytest.raises(TeselaError) as error:
        check_registers(op)
    assert f"reads register 0 of %a in {a}, which holds register 0 of %b" in str(error.value)


def test_parallel_copies_in_order() -> None:
    assert _sequence({1: 2, 2: 3}) == ([(1, 2, False), (2, 3, False)], [])
    order, saved = _sequence({1: 2, 2: 3, 3: 1, 5: 1, 7: 8})
    state = {n: n for n in range(10)} | {f"t{n}": n for n in saved}
    for target, source, from_saved in order:
        state[target] = state[f"t{source}"] if from_saved else state[source]
    assert [state[n] for n in (1, 2, 3, 5, 7)] == [2, 3, 1, 1, 8] and len(saved) == 1
