"""async.roles: warps of one block that run different programs at the same time, and meet only in channels.

A role has whole warps of the block, in the order in which roles are written: the first has warps 0 and up. Its threads count from 0 in
its own layouts, and its barriers hold its own threads only. What one role fills and the other takes goes through a channel, which is first in first
out as ever: a fill waits until a slot is free, a get until one is filled. So there is no other order between roles than the one that
channels make.

    async.roles consumer(warps = 8, registers = 240) {
      scf.for … { %a = async.get %ca   …   async.release %ca after %read }
      tile.store …
    }, producer(warps = 4, registers = 24) {
      scf.for … { async.put %ca, %A[%m, %k] }
    }

**Registers.** With `registers` a role's threads change from the number that every thread of the block starts with to their own
(`setmaxnreg`, PTX ISA 9.0 §9.7.19.5: 24 to 256 in steps of 8, for whole warpgroups). What some take, others must have given: an excess waits
for ever on the hardware, and neither the assembler nor the driver checks it. The verifier does: the sum over all threads must not exceed what
the block starts with, 65536 / threads rounded down to 8, for each.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, StringAttr, i64
from xdsl.ir import Attribute, Block, Operation, Region
from xdsl.irdl import IRDLOperation, irdl_op_definition, opt_prop_def, prop_def, traits_def, var_region_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect, NoTerminator
from xdsl.utils.exceptions import VerifyException

from .target import TARGETS

WARP_THREADS = 32
WARPGROUP_WARPS = 4
LEAST_REGISTERS, MOST_REGISTERS, REGISTER_UNIT = 24, 256, 8
"""What setmaxnreg takes (PTX ISA 9.0 §9.7.19.5)."""
MOST_THREADS = 1024


def entry_registers(threads: int) -> int:
    """Registers with which each thread starts in a block of `threads` that has a multiprocessor to itself: its share of the
    register file, in units of 8 (CUDA C++ Programming Guide, "Compute Capabilities"; what ptxas takes under .maxntid and .minnctapersm 1)."""
    target = TARGETS["sm_90a"]
    return min(target.registers_per_sm // threads, MOST_REGISTERS) // REGISTER_UNIT * REGISTER_UNIT


def roles_fault(names: Sequence[str], warps: Sequence[int], registers: Sequence[int] | None) -> tuple[int, str] | None:
    """What is wrong with the numbers of a block's roles, if anything: (the role that it shows at, a message)."""
    for role, (name, count) in enumerate(zip(names, warps)):
        if name in names[:role]:
            return role, f"the roles' names must differ, found {', '.join(names)}"
        if count < 1:
            return role, f"a role has at least one warp, found {', '.join(map(str, warps))}"
    threads = WARP_THREADS * sum(warps)
    if threads > MOST_THREADS:
        return len(names) - 1, f"a block has at most {MOST_THREADS} threads, the roles have {threads}"
    if registers is None:
        return None
    for role, (name, count, wanted) in enumerate(zip(names, warps, registers)):
        if count % WARPGROUP_WARPS:
            return role, f"role {name} changes its registers, so it must have whole warpgroups of {WARPGROUP_WARPS} warps, found {count}"
        if not LEAST_REGISTERS <= wanted <= MOST_REGISTERS or wanted % REGISTER_UNIT:
            return role, f"role {name}: registers must be a multiple of {REGISTER_UNIT} from {LEAST_REGISTERS} to {MOST_REGISTERS}, found {wanted}"
    entry = entry_registers(threads)
    total = sum(WARP_THREADS * count * wanted for count, wanted in zip(warps, registers))
    if total > threads * entry:
        return len(names) - 1, (
            f"the roles' registers sum to {total}, but the block starts with {threads * entry} ({threads} threads of {entry}): the role that asks last would wait for ever; give "
            "some of them fewer"
        )
    return None


@irdl_op_definition
class RolesOp(IRDLOperation):
    """`async.roles NAME(warps = W, registers = R) {…}, NAME(warps = …) {…}`; see the module's docstring. Either all roles state
    registers or none does. Stands in a kernel's own block, and ends it."""

    name = "async.roles"
    names = prop_def(ArrayAttr[StringAttr])
    warps = prop_def(DenseArrayBase)
    registers = opt_prop_def(DenseArrayBase)
    bodies = var_region_def("single_block")
    traits = traits_def(NoTerminator(), MemoryReadEffect(), MemoryWriteEffect())

    @staticmethod
    def make(roles: Sequence[tuple[str, int, int | None, Block]]) -> RolesOp:
        """Roles as (name, warps, registers, body); registers are None for all or for none."""
        properties: dict[str, Attribute] = {
            "names": ArrayAttr([StringAttr(name) for name, _, _, _ in roles]),
            "warps": DenseArrayBase.from_list(i64, [warps for _, warps, _, _ in roles]),
        }
        registers = [count for _, _, count, _ in roles if count is not None]
        if registers:
            properties["registers"] = DenseArrayBase.from_list(i64, registers)
        return RolesOp.create(properties=properties, regions=[Region(body) for _, _, _, body in roles])

    @property
    def role_names(self) -> tuple[str, ...]:
        return tuple(entry.data for entry in self.names.data)

    @property
    def role_warps(self) -> tuple[int, ...]:
        return tuple(self.warps.get_values())

    @property
    def role_registers(self) -> tuple[int, ...] | None:
        """Registers of a thread by role; None where they stay as they are."""
        return None if self.registers is None else tuple(self.registers.get_values())

    @property
    def total_warps(self) -> int:
        return sum(self.role_warps)

    def first_warp(self, role: int) -> int:
        """The first warp of a role among the block's."""
        return sum(self.role_warps[:role])

    def verify_(self) -> None:
        names, warps, registers = self.role_names, self.role_warps, self.role_registers
        if not names or len(warps) != len(names) or len(self.bodies) != len(names):
            raise VerifyException("each role has a name, a number of warps and a body")
        if registers is not None and len(registers) != len(names):
            raise VerifyException("either all roles state their registers or none does")
        if (fault := roles_fault(names, warps, registers)) is not None:
            raise VerifyException(fault[1])
        parent = self.parent_op()
        if parent is None or parent.name != "tile.kernel":
            raise VerifyException("roles stand in the kernel's own block: they are whole warps for all of its time")
        if self.next_op is None or self.next_op.name != "tile.return":
            raise VerifyException("roles end the kernel: what comes after them belongs into one of them")

    def print(self, printer: Printer) -> None:
        registers = self.role_registers
        for index, (name, warps, region) in enumerate(zip(self.role_names, self.role_warps, self.bodies)):
            stated = f", registers = {registers[index]}" if registers is not None else ""
            printer.print_string(f"{',' if index else ''} {name}(warps = {warps}{stated}) ")
            printer.print_region(region, print_entry_block_args=False, print_empty_block=False)
        printer.print_op_attributes(self.attributes, print_keyword=True)

    @classmethod
    def parse(cls, parser: Parser) -> RolesOp:
        names: list[str] = []
        warps: list[int] = []
        registers: list[int] = []
        bodies: list[Region] = []
        while True:
            names.append(parser.parse_identifier())
            with parser.in_parens():
                parser.parse_keyword("warps")
                parser.parse_punctuation("=")
                warps.append(parser.parse_integer(allow_boolean=False))
                if parser.parse_optional_punctuation(",") is not None:
                    parser.parse_keyword("registers")
                    parser.parse_punctuation("=")
                    registers.append(parser.parse_integer(allow_boolean=False))
            body = parser.parse_region()
            if not body.blocks:
                body.add_block(Block())
            bodies.append(body)
            if parser.parse_optional_punctuation(",") is None:
                break
        attributes = parser.parse_optional_attr_dict_with_keyword()
        properties: dict[str, Attribute] = {
            "names": ArrayAttr([StringAttr(text) for text in names]),
            "warps": DenseArrayBase.from_list(i64, warps),
        }
        if registers:
            properties["registers"] = DenseArrayBase.from_list(i64, registers)
        return cls.create(properties=properties, regions=bodies, attributes=dict(attributes.data) if attributes is not None else {})


def role_of(op: Operation) -> tuple[RolesOp, int] | None:
    """The roles round an op, and which of them it is in; None if it is in none."""
    inner: Operation = op
    while (parent := inner.parent_op()) is not None:
        if isinstance(parent, RolesOp):
            region = inner.parent_region()
            return parent, next(index for index, body in enumerate(parent.bodies) if body is region)
        inner = parent
    return None
