"""The explicit level: channels and roles that an author writes instead of leaving them to the compiler.

    ch = tesela.channel((128, 64), bf16, depth=3)     a ring of buffers in shared memory
    ch.put(A[m : m + 128, k : k + 64])                 fills the next slot: from an array, by TMA or cp.async, or from a tile
    with ch.get() as a:                                the oldest filled slot as a tile; given back at the end
        acc += a @ b.T                                 a dot reads it where it lies

    with tesela.role("load", warps=4): …               warps of the block that run a program of their own, and meet others in channels
    with tesela.role("compute", warps=8): …

These are `async.channel`, `put`, `write`, `get`, `release` and `roles` one for one. What the tile of a slot is used for decides whether it is read into registers
(plan-dataflow). Layouts, mbarriers, phases, byte counts and fences stay the compiler's, and where a channel's puts, gets and releases cannot go
together, check-async, the compiler's first pass, says so at the line.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import StringAttr, TensorType, UnitAttr
from xdsl.ir import Block

from ..dialects import async_copy, pins
from ..dialects.async_roles import RolesOp, roles_fault
from ..dialects.diagnostics import TeselaError
from ..dialects.layout import SharedLayout
from ..dialects.layout_attrs import shared_layout_fault, with_layout
from .control import in_block
from .hints import similar
from .operations import COPIES, builds, parsed_layout, tile_dtype
from .source import stored_names
from .subscripts import array_slice
from .types import i1
from .values import ATTRIBUTES, ArrayRef, ChannelRef, Method, Undefined, Value, describe, type_text
from .words import WORDS

if TYPE_CHECKING:
    from .trace import Tracer

CHANNEL_METHODS = ("put", "get", "release")
MOST_DEPTH = 64


@dataclass
class Role:
    """A role that has been traced."""

    name: str
    warps: int
    registers: int | None
    body: Block
    node: ast.AST


@builds("channel")
def channel(t: Tracer, shape: Any, dtype: Any, depth: Any, shared: Any) -> ChannelRef:
    extents = t.b.extents(shape, t.at("shape"))
    dtype = tile_dtype(t, dtype, extents)
    if dtype is i1:
        raise t.error("a channel of i1 is not in the language", "put bytes: x.to(tesela.i8)", t.at("dtype"))
    if t.b.block is not t.b.entry:
        raise t.error("a channel is made inside a run-time conditional, loop or role", "make it at the beginning of the kernel: it lives as long as its block")
    if depth is not None and (not isinstance(depth, int) or isinstance(depth, bool) or not 1 <= depth <= MOST_DEPTH):
        raise t.error(f"depth is a number of buffers from 1 to {MOST_DEPTH}, known when compiling, found {describe(depth)}", at=t.at("depth"))
    kind = TensorType(ATTRIBUTES[dtype], extents)
    if shared is not None:
        found = parsed_layout(t, "shared", shared, SharedLayout, len(extents))
        if (fault := shared_layout_fault(found, extents)) is not None:
            raise t.error(f"shared, {found}: {fault}", at=t.at("shared"))
        kind = with_layout(kind, found)
    op = async_copy.ChannelOp.make(kind, depth or 1)
    if depth is not None:
        op.attributes[pins.DEPTH] = UnitAttr()
    t.b.add(op)
    return ChannelRef(op.res, dtype, extents)


def channel_call(t: Tracer, node: ast.Call, method: Method) -> Any:
    """A call of a channel's method."""
    owner = method.owner
    assert isinstance(owner, ChannelRef)
    if method.name != "put" and (node.args or node.keywords):
        raise t.error(f"{method.name} of a channel takes no arguments", at=(node.args or [keyword.value for keyword in node.keywords])[0])
    t.b.node = node
    if method.name == "get":
        return _get(t, owner)
    if method.name == "release":
        t.b.add(async_copy.ReleaseOp.make(owner.ssa))
        return None
    return _put(t, node, owner)


def _get(t: Tracer, owner: ChannelRef) -> Value:
    get = async_copy.GetOp.make(owner.ssa)
    t.b.add(get)
    return t.b.emit(async_copy.ReadOp.make(get.res), owner.dtype, owner.shape)


def _put(t: Tracer, node: ast.Call, owner: ChannelRef) -> None:
    copy = None
    for keyword in node.keywords:
        if keyword.arg != "copy":
            raise t.error(f"put of a channel has no argument {keyword.arg}", similar(str(keyword.arg), ("copy",)) or "it has copy", keyword.value)
        copy = t.eval(keyword.value)
        if copy not in COPIES:
            raise t.error(f"copy is one of {', '.join(COPIES)}, found {describe(copy)}", at=keyword.value)
    if len(node.args) != 1 or isinstance(node.args[0], ast.Starred):
        raise t.error(f"put of a channel takes what goes into its next slot, found {len(node.args)} arguments", "write ch.put(A[i : i + 64, j : j + 64])", node)
    (what,) = node.args
    wanted = type_text(owner.dtype, owner.shape)
    if isinstance(what, ast.Subscript) and isinstance(t.eval(what.value), ArrayRef):
        place = array_slice(t, what)
        t.b.node = node
        if place.computed:
            raise t.error("a put copies a slice, not elements at places of a tile", f"load them, and put the tile: x = {ast.unparse(what)}", what)
        if place.shape != owner.shape or place.array.dtype is not owner.dtype:
            raise t.error(f"the channel carries {wanted}, found the slice {type_text(place.array.dtype, place.shape)}", at=what)
        op = async_copy.PutOp.make(owner.ssa, place.array.ssa, place.starts, place.dims)
        if copy is not None:
            op.properties["via"] = StringAttr(copy)
        t.b.add(op)
        return
    value = t.eval(what)
    t.b.node = node
    if copy is not None:
        raise t.error(f"copy says how a slice of an array is copied, found {describe(value)}", "leave it out", what)
    if not isinstance(value, Value):
        hint = f"put a slice of it: {value.name}[i : i + 64]" if isinstance(value, ArrayRef) else None
        raise t.error(f"the channel carries {wanted}, found {describe(value)}", hint, what)
    if value.shape != owner.shape or value.dtype is not owner.dtype:
        hint = f"convert it: x.to({owner.dtype.name})" if value.shape == owner.shape else None
        raise t.error(f"the channel carries {wanted}, found {describe(value)}", hint, what)
    t.b.add(async_copy.WriteOp.make(owner.ssa, value.ssa))


def with_statement(t: Tracer, node: ast.With) -> None:
    """`with ch.get() as a:` and `with tesela.role(…):`."""
    first = node.items[0].context_expr
    if isinstance(first, ast.Call) and t.eval_callee(first.func) is WORDS["role"]:
        _role(t, node, first)
        return
    held: list[ChannelRef] = []
    names: list[str] = []
    for item in node.items:
        call = item.context_expr
        method = t.eval(call.func) if isinstance(call, ast.Call) else None
        if not isinstance(method, Method) or not isinstance(method.owner, ChannelRef) or method.name != "get":
            raise t.error("with takes slots of channels, or one role", "write with ch.get() as a:, or with tesela.role('load', warps=4):", call)
        value = channel_call(t, call, method)  # type: ignore[arg-type]
        held.append(method.owner)
        if item.optional_vars is not None:
            if not isinstance(item.optional_vars, ast.Name):
                raise t.error("a slot is one tile", "write with ch.get() as a:", item.optional_vars)
            t.assign(item.optional_vars, value)
            names.append(item.optional_vars.id)
    t.run(node.body)
    if t.frame.returned:
        raise t.error("return before the slots are given back", "assign to a variable there, and return it after the with", node)
    for owner, item in zip(held, node.items):
        t.b.node = item.context_expr
        t.b.add(async_copy.ReleaseOp.make(owner.ssa))
    for name in names:
        message = f"{name} is the tile of a slot that was given back at the end of the with of line {node.lineno}"
        t.frame.names[name] = Undefined(message, "use it inside, or keep what you computed of it")


def _role(t: Tracer, node: ast.With, call: ast.Call) -> None:
    t.b.node = call
    if len(node.items) != 1 or node.items[0].optional_vars is not None:
        raise t.error("a role stands alone in its with, without a name", "write with tesela.role('load', warps=4):", call)
    if t.depth or t.b.block is not t.b.entry:
        raise t.error("a role inside a helper, conditional, loop or role", "roles stand at the end of the kernel itself: they are whole warps for all of its time", call)
    t.entering_role = True
    name, warps, registers = t.eval(call)
    t.entering_role = False
    outer, places = dict(t.frame.names), dict(t.frame.places)
    body = Block()
    in_block(t, body, lambda: t.run(node.body))
    t.b.node = call
    t.roles.append(Role(name, warps, registers, body, call))
    t.frame.names, t.frame.places = outer, places
    for inner in stored_names(node.body):
        if inner not in outer:
            t.frame.names[inner] = Undefined(f"{inner} is a variable of the role {name}", "roles meet in channels: put it into one")


@builds("role")
def role(t: Tracer, name: Any, warps: Any, registers: Any) -> tuple[str, int, int | None]:
    if not t.entering_role:
        raise t.error("a role is the head of a with", "write with tesela.role('load', warps=4):")
    if not isinstance(name, str) or not name.isidentifier():
        raise t.error(f"a role's name is a text that is a name, found {describe(name)}", at=t.at("name"))
    if any(role.name == name for role in t.roles):
        raise t.error(f"there are two roles called {name}", at=t.at("name"))
    for what, number in (("warps", warps), ("registers", registers)):
        if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < 1):
            raise t.error(f"{what} must be a positive number known when compiling, found {describe(number)}", at=t.at(what))
    if warps is None:
        raise t.error("a role needs its number of warps", "write tesela.role('load', warps=4)")
    return name, warps, registers


def finish_explicit(t: Tracer) -> None:
    """Ends the kernel's body with its roles. Raises TeselaError where they do not go together."""
    if not t.roles:
        return
    stated = {role.registers is not None for role in t.roles}
    if len(stated) > 1:
        odd = next(role for role in t.roles if role.registers is None)
        raise t.error(f"the role {odd.name} states no registers, another does", "state them for all roles or for none", odd.node)
    registers = [role.registers for role in t.roles if role.registers is not None]
    if (fault := roles_fault([role.name for role in t.roles], [role.warps for role in t.roles], registers or None)) is not None:
        raise t.error(fault[1], at=t.roles[fault[0]].node)
    op = RolesOp.make([(role.name, role.warps, role.registers, role.body) for role in t.roles])
    t.b.node = t.roles[0].node
    t.b.add(op)


def rejected_after_roles(t: Tracer, node: ast.stmt) -> TeselaError:
    """The error for a statement behind the roles of a kernel."""
    return t.error("a statement after the kernel's roles", "roles end the kernel: what comes after them belongs into one of them", node)
