"""The tracer: reads a kernel's syntax tree and builds its tile-level IR.

It is an interpreter of Python in which some values are known only at run time. What is known when compiling (numbers, shapes, tuples,
constexpr parameters, captured constants) is computed as Python would; operations on tiles and scalars become IR; helper functions are
entered, so that their operations stand in the kernel. A condition known when compiling picks a branch; control.py has the others.

Expressions are handled by `_expr_…` methods, statements by `_stmt_…` ones, named as the classes of `ast`; what has no method is not in
the language, and REJECTED says what to write instead.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    IndexType,
    IntegerAttr,
    MemRefType,
    ModuleOp,
    NoneAttr,
    StridedLayoutAttr,
    StringAttr,
    UnitAttr,
    i64,
)
from xdsl.ir import Attribute, Block, Region

from ..dialects import tile
from ..dialects.diagnostics import TeselaError
from ..dialects.dim_expr import DimExpr
from . import combining, inline, packing  # noqa: F401 -- they register their words
from .assumptions import assume
from .builder import MOST_BITS, Builder
from .control import conditional, for_statement, if_statement, while_statement
from .explicit import (
    CHANNEL_METHODS,
    Role,
    channel_call,
    finish_explicit,
    rejected_after_roles,
    with_statement,
)
from .hints import similar
from .kernel import InlineFunction, KernelFunction, Parameter
from .operations import BUILDERS
from .reports import run_time_assert
from .source import Capture, SourceFunction, snapshot
from .subscripts import array_slice, load_slice, place_argument, store_slice, subscript
from .types import Array, Dim, DType, DTypeVariable, i1, index
from .values import (
    ATTRIBUTES,
    MOST_UNROLLED,
    ArrayRef,
    ChannelRef,
    Method,
    Tracing,
    Undefined,
    Value,
    describe,
    is_number,
    leaves,
)
from .words import WORDS, Word

BINARY: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}

REJECTED: dict[str, tuple[str, str]] = {
    "ListComp": ("a list comprehension", "write a loop over tesela.static_range, or operate on whole tiles"),
    "SetComp": ("a set comprehension", "write a loop over tesela.static_range"),
    "DictComp": ("a dict comprehension", "write a loop over tesela.static_range"),
    "GeneratorExp": ("a generator expression", "write a loop over tesela.static_range"),
    "Dict": ("a dict", "use variables or a tuple"),
    "Set": ("a set", "use a tuple"),
    "Lambda": ("a lambda", "define a function outside the kernel and call it"),
    "JoinedStr": ("an f-string", "print takes text and values as arguments: print('n =', n)"),
    "NamedExpr": ("':='", "assign in a statement of its own"),
    "Await": ("await", "a block runs from beginning to end"),
    "Yield": ("yield", "store results to an array"),
    "YieldFrom": ("yield from", "store results to an array"),
    "Try": ("try", "a kernel raises no exceptions; test with if"),
    "TryStar": ("try", "a kernel raises no exceptions; test with if"),
    "Raise": ("raise", "a kernel raises no exceptions; assert checks what is known when compiling"),
    "AsyncWith": ("async with", "a kernel manages no resources"),
    "AsyncFor": ("async for", "write for … in tesela.range(…)"),
    "FunctionDef": ("a nested function", "define it outside the kernel: functions that a kernel calls are inlined"),
    "AsyncFunctionDef": ("a nested function", "define it outside the kernel: functions that a kernel calls are inlined"),
    "ClassDef": ("a class", "use tuples"),
    "Import": ("import", "import at the top of the file"),
    "ImportFrom": ("import", "import at the top of the file"),
    "Global": ("global", "a kernel changes no Python variables; store results to an array"),
    "Nonlocal": ("nonlocal", "a kernel changes no Python variables; store results to an array"),
    "Delete": ("del", "variables end with the kernel"),
    "Match": ("match", "write if … elif … else"),
    "Break": ("break", "loop with while, with the condition in its head"),
    "Continue": ("continue", "put the rest of the body under an if"),
    "Starred": ("a starred expression here", "write the items out"),
}
"""Class of syntax -> what it is, what to write instead."""

METHODS = {
    "to": "cast",
    "astype": "cast",
    **{name: name for name in ("sum", "prod", "max", "min", "argmax", "argmin", "reshape", "transpose")},
}
"""Method of a tile -> the word that it is."""

MAX_INLINE_DEPTH = 50


class Frame:
    """One function being traced: the kernel, or a helper that it calls."""

    def __init__(self, source: SourceFunction):
        self.source = source
        self.names: dict[str, Any] = {}
        self.places: dict[str, ast.AST] = {}
        """Where each variable was assigned last."""
        self.dynamic = 0
        """How many run-time conditionals and loops are open."""
        self.result: Any = None
        self.returned = False


class Tracer:
    """Traces one kernel; `trace_kernel` is the way in."""

    def __init__(self, source: SourceFunction, entry: Block, symbols: Mapping[str, Any]):
        self.b = Builder(source, entry, [name for name, value in symbols.items() if isinstance(value, Dim)])
        self.frame = Frame(source)
        self.symbols = dict(symbols)
        """Names of dimensions and type variables of the signature."""
        self.grid: list[DimExpr] | None = None
        self.coordinates: tuple[Value, ...] = ()
        """Those of the block in the grid, once it is declared."""
        self.divisors: dict[str, int] = {}
        self.captures: dict[tuple[int, str], Capture] = {}
        """What the program depends on outside of its functions; the functions that it calls are among it."""
        self.depth = 0
        self.nesting = 0
        """How many run-time conditionals and loops are open, in all frames."""
        self.unrolled = 0
        """How many trips of unrolled loops the program has so far."""
        self._arguments: dict[str, ast.AST] = {}
        self.roles: list[Role] = []
        self.entering_role = False

    def error(self, message: str, hint: str | None = None, at: ast.AST | None = None) -> TeselaError:
        """The error at `at`, or at the expression being traced."""
        return self.b.error(message, hint, at)

    def at(self, parameter: str) -> ast.AST | None:
        """The expression given for a parameter of the word being built."""
        return self._arguments.get(parameter)

    # Statements

    def run(self, statements: Sequence[ast.stmt]) -> None:
        """Trace statements up to the end or to a return."""
        for statement in statements:
            self.b.node = statement
            if self.roles and self.b.block is self.b.entry and not isinstance(statement, ast.With | ast.Pass):
                raise rejected_after_roles(self, statement)
            handler = _STATEMENTS.get(type(statement))
            if handler is None:
                raise self.rejected(statement)
            handler(self, statement)
            if self.frame.returned:
                return

    def rejected(self, node: ast.AST) -> TeselaError:
        """The error for syntax that is not in the language."""
        kind = type(node).__name__
        what, hint = REJECTED.get(kind, (f"'{kind}'", None))
        return self.error(f"{what} is not in the kernel language", hint, node)

    def _stmt_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring, or an ellipsis
            self.eval(node.value)

    def _stmt_Pass(self, node: ast.Pass) -> None:
        pass

    def _stmt_Assign(self, node: ast.Assign) -> None:
        value = self.eval(node.value)
        for target in node.targets:
            self.assign(target, value, node.value)

    def _stmt_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is None:
            raise self.error("a declaration without a value", "assign one")
        dtype = self.eval(node.annotation)
        if not isinstance(dtype, DType):
            raise self.error(f"the annotation must be an element type, found {describe(dtype)}", at=node.annotation)
        value = self.eval(node.value)
        self.b.node = node.value
        self.assign(node.target, self.b.of_dtype(value, dtype))

    def _stmt_AugAssign(self, node: ast.AugAssign) -> None:
        target = node.target
        if isinstance(target, ast.Name):
            current = self.lookup(target)
            self.assign(target, self._binary(node, node.op, current, node.value))
            return
        if not isinstance(target, ast.Subscript):
            raise self.error(f"{ast.unparse(target)} cannot be assigned", "assign to a variable, or to a slice of an array", target)
        place = array_slice(self, target)
        value = self._binary(node, node.op, load_slice(self, place), node.value)
        self.b.node = node
        store_slice(self, place, value, node.value)

    def assign(self, target: ast.AST, value: Any, at: ast.AST | None = None) -> None:
        """Bind a target of an assignment; `at` is the expression whose value it is."""
        match target:
            case ast.Name(id=name):
                if isinstance(value, Tracing):
                    raise self.error("tesela.range is for loops", "write for i in tesela.range(…)", target)
                if isinstance(value, Value | ChannelRef) and value.ssa.name_hint is None:
                    value.ssa.name_hint = name if name.isascii() else None
                self.frame.names[name] = value
                self.frame.places[name] = target
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                if not isinstance(value, tuple):
                    raise self.error(f"{describe(value)} cannot be unpacked into {len(targets)} variables", at=target)
                if len(targets) != len(value):
                    raise self.error(f"{len(value)} values are unpacked into {len(targets)} variables", at=target)
                for inner, item in zip(targets, value):
                    self.assign(inner, item, at)
            case ast.Subscript():
                place = array_slice(self, target)
                self.b.node = target
                store_slice(self, place, value, at)
            case _:
                raise self.error(f"{ast.unparse(target)} cannot be assigned", "assign to a variable, or to a slice of an array", target)

    def _stmt_Assert(self, node: ast.Assert) -> None:
        fact = self.eval(node.test)
        text = self.eval(node.msg) if node.msg is not None else None
        if isinstance(fact, Value):
            self.b.node = node.test
            run_time_assert(self, fact, ast.unparse(node.test) if text is None else text, node.msg)
            return
        if not self.as_condition(fact, node.test):
            raise self.error(f"assertion failed: {text if text is not None else ast.unparse(node.test)}", at=node.test)

    def _stmt_Return(self, node: ast.Return) -> None:
        frame = self.frame
        if frame.dynamic:
            raise self.error(
                "return inside a run-time conditional or loop",
                "assign to a variable there, and return it at the end of the function",
            )
        if self.depth == 0 and node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            raise self.error("a kernel returns nothing", "store results to an array argument: tesela.store(C, starts, value)")
        frame.result = self.eval(node.value) if node.value is not None else None
        frame.returned = True

    def _stmt_If(self, node: ast.If) -> None:
        if_statement(self, node)

    def _stmt_For(self, node: ast.For) -> None:
        for_statement(self, node)

    def _stmt_With(self, node: ast.With) -> None:
        with_statement(self, node)

    def _stmt_While(self, node: ast.While) -> None:
        while_statement(self, node)

    # Conditions

    def condition(self, node: ast.expr) -> bool | Value:
        """A condition: a bool where it is known, else a scalar i1."""
        return self.as_condition(self.eval(node), node)

    def as_condition(self, value: Any, node: ast.AST) -> bool | Value:
        """A value as a condition."""
        if isinstance(value, Dim):
            raise self.error(f"{describe(value)} as a condition", "compare it: N > 0", node)
        if isinstance(value, ArrayRef | Method | Tracing):
            raise self.error(f"{describe(value)} as a condition", at=node)
        if not isinstance(value, Value):
            return bool(value)
        if value.shape:
            hint = "choose elementwise with tesela.where(condition, x, y); combine with & | ~"
            raise self.error(f"a condition must be a scalar, found {describe(value)}", hint, node)
        if value.dtype is not i1:
            raise self.error(f"a condition must be i1, found {describe(value)}", "compare it: x != 0", node)
        return value

    def _expr_BoolOp(self, node: ast.BoolOp) -> Any:
        return self._bool_op(node, isinstance(node.op, ast.And), node.values)

    def _bool_op(self, node: ast.BoolOp, conjunction: bool, operands: list[ast.expr]) -> Any:
        """`a and b and …`: later operands are evaluated only where earlier ones leave the result open."""
        left = self.eval(operands[0])
        if len(operands) == 1:
            return left
        condition = self.as_condition(left, operands[0])
        if isinstance(condition, bool):
            return self._bool_op(node, conjunction, operands[1:]) if condition == conjunction else left

        def rest() -> Any:
            return self.b.value(self.as_condition(self._bool_op(node, conjunction, operands[1:]), operands[1]))

        branches = (rest, lambda: False) if conjunction else (lambda: True, rest)
        return conditional(self, condition, node, *branches, f"'{'and' if conjunction else 'or'}'")

    def _expr_IfExp(self, node: ast.IfExp) -> Any:
        condition = self.condition(node.test)
        if isinstance(condition, bool):
            return self.eval(node.body if condition else node.orelse)
        return conditional(
            self, condition, node, lambda: self.eval(node.body), lambda: self.eval(node.orelse), "the conditional expression"
        )

    # Names

    def lookup(self, node: ast.Name) -> Any:
        """The value of a name: a variable, a captured one, a symbol of the signature, or a builtin."""
        name, frame = node.id, self.frame
        if name in frame.names:
            value = frame.names[name]
            if isinstance(value, Undefined):
                raise self.error(value.message, value.hint, node)
            return value
        if name in frame.source.text.locals:
            raise self.error(f"{name} is read before it is assigned", at=node)
        if self.depth == 0 and name in self.symbols:
            return self.symbols[name]
        if (capture := frame.source.captured(name)) is not None:
            return self._record(node, capture)
        if name in BUILTINS:
            return BUILTINS[name]
        if hasattr(builtins, name):
            hint = BUILTIN_HINTS.get(name)
            raise self.error(f"Python's {name} is not in the kernel language", hint, node)
        known = {*frame.names, *frame.source.visible(), *BUILTINS, *(self.symbols if self.depth == 0 else ())}
        hint = similar(name, known, 2)
        if name in WORDS:
            hint = f"write tesela.{name}, or import it"
        raise self.error(f"the name {name} is not defined", hint, node)

    def _record(self, node: ast.AST, capture: Capture) -> Any:
        """The value of a captured name; remembered, so that a later change of it can be seen."""
        value = self._captured(node, capture.value)
        if not isinstance(value, Word | DType | ModuleType | BuiltinFunctionType | type):
            self.captures[id(capture.scope), capture.name] = Capture(capture.scope, capture.name, snapshot(capture.value))
        return value

    def _captured(self, node: ast.AST, value: Any) -> Any:
        """A value of the Python world as one of the kernel's compile-time values."""
        if isinstance(value, bool | int | float | str | DType | Dim | Word | ModuleType | FunctionType) or value is None:
            return value
        if isinstance(value, DTypeVariable):
            if value.name not in self.symbols:
                raise self.error(f"no array of the kernel has the element type {value.name}", at=node)
            return self.symbols[value.name]
        if isinstance(value, tuple | list):
            return tuple(self._captured(node, item) for item in value)
        if isinstance(value, InlineFunction):
            return value.function
        if any(value is function for function in _BUILTIN_VALUES):
            return value
        if getattr(value, "shape", None) == () and hasattr(value, "item"):  # a NumPy scalar
            return self._captured(node, value.item())
        if isinstance(value, BuiltinFunctionType) and value.__module__ == "math":
            return value
        what = f"{ast.unparse(node)} is of type {type(value).__name__}"  # type: ignore[arg-type]
        if isinstance(value, KernelFunction):
            raise self.error(f"{ast.unparse(node)} is a kernel; a kernel cannot call one", "share code as a plain function", node)
        is_array = hasattr(value, "shape") and not isinstance(value, type)
        hint = "pass it as an argument of the kernel" if is_array else "numbers, strings, dtypes and tuples can be captured"
        name = getattr(value, "__name__", None)
        if name in WORDS or name in _ELEMENT_TYPES:
            hint = f"write tesela.{_ELEMENT_TYPES.get(name, name)}"
        raise self.error(f"{what}, which a kernel cannot capture", hint, node)

    # Expressions

    def eval(self, node: ast.expr) -> Any:
        """The value of an expression."""
        handler = _EXPRESSIONS.get(type(node))
        if handler is None:
            raise self.rejected(node)
        outer, self.b.node = self.b.node, node
        value = handler(self, node)
        self.b.node = outer
        return value

    def eval_callee(self, node: ast.expr) -> Any:
        """What a call calls, where that is a name or an attribute."""
        return self.eval(node) if isinstance(node, ast.Name | ast.Attribute) else None

    def _expr_Constant(self, node: ast.Constant) -> Any:
        if isinstance(node.value, bool | int | float | str) or node.value is None:
            return node.value
        raise self.error(f"a constant of type {type(node.value).__name__} is not in the kernel language")

    def _expr_Name(self, node: ast.Name) -> Any:
        return self.lookup(node)

    def _expr_Tuple(self, node: ast.Tuple | ast.List) -> Any:
        items: list[Any] = []
        for item in node.elts:
            if isinstance(item, ast.Starred):
                inner = self.eval(item.value)
                if not isinstance(inner, tuple):
                    raise self.error(f"{describe(inner)} cannot be unpacked", at=item)
                items += inner
                self._bounded(len(items))
            else:
                items.append(self.eval(item))
        return tuple(items)

    def _bounded(self, length: int) -> None:
        """Refuse what is made of tuples or texts where it is longer than any loop could run over: twice itself again and again has no end."""
        if length > MOST_UNROLLED:
            raise self.error(f"a tuple or text of {length} parts, more than {MOST_UNROLLED}")

    def _expr_BinOp(self, node: ast.BinOp) -> Any:
        return self._binary(node, node.op, self.eval(node.left), node.right)

    def _binary(self, node: ast.AST, op: ast.operator, left: Any, right: ast.expr) -> Any:
        """`left op right`, at `node`. `acc + a @ b` is one dot that starts from acc."""
        if isinstance(op, ast.MatMult):
            value = self.eval(right)
            self.b.node = node
            return BUILDERS["dot"](self, left, value, None)
        if isinstance(op, ast.Add) and isinstance(right, ast.BinOp) and isinstance(right.op, ast.MatMult) and isinstance(left, Value):
            a, b = self.eval(right.left), self.eval(right.right)
            self.b.node = right
            if all(isinstance(v, Value) and len(v.shape) >= 2 for v in (a, b)) and left.shape == (*a.shape[:-1], b.shape[-1]):
                return BUILDERS["dot"](self, a, b, left)
            product = BUILDERS["dot"](self, a, b, None)
            self.b.node = node
            return self.b.binary("+", left, product)
        value = self.eval(right)
        self.b.node = node
        joined: tuple[Any, ...] | str | None = None
        if isinstance(op, ast.Add) and isinstance(left, tuple) and isinstance(value, tuple):
            joined = left + value
        elif isinstance(op, ast.Add) and isinstance(left, str) and isinstance(value, str):
            joined = left + value
        if joined is not None:
            self._bounded(len(joined))
            return joined
        return self.b.binary(BINARY[type(op)], left, value)

    def _expr_UnaryOp(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.op, ast.Not):
            condition = self.condition(node.operand)
            return not condition if isinstance(condition, bool) else self.b.invert(condition)
        x = self.eval(node.operand)
        if is_number(x):
            if isinstance(node.op, ast.Invert) and isinstance(x, float | bool):
                raise self.error(f"'~' is not defined on {describe(x)}", "write not x" if isinstance(x, bool) else None)
            return -x if isinstance(node.op, ast.USub) else ~x if isinstance(node.op, ast.Invert) else +x  # type: ignore[operator]
        if isinstance(x, Dim) and isinstance(node.op, ast.USub):
            return 0 - x
        if isinstance(node.op, ast.Invert):
            return self.b.invert(x)
        return self.b.unary("-", x) if isinstance(node.op, ast.USub) else x

    def _expr_Compare(self, node: ast.Compare) -> Any:
        if len(node.ops) == 1:
            return self._compare(node, node.ops[0], self.eval(node.left), self.eval(node.comparators[0]))
        values = [self.eval(operand) for operand in (node.left, *node.comparators)]
        result: Any = True
        for op, left, right in zip(node.ops, values, values[1:]):
            part = self._compare(node, op, left, right)
            if isinstance(part, Value) and part.shape:
                raise self.error("a chain of comparisons of tiles", "write (a < b) & (b < c)")
            if not isinstance(part, Value):
                if not part:
                    return False
                continue
            result = part if result is True else self.b.arithmetic("&", result, part)
        return result

    def _compare(self, node: ast.Compare, op: ast.cmpop, left: Any, right: Any) -> Any:
        self.b.node = node
        if isinstance(op, ast.Is | ast.IsNot):
            if isinstance(left, Value | ArrayRef) and isinstance(right, Value | ArrayRef):
                raise self.error("'is' compares Python objects", "compare values with ==")
            return (left is right) == isinstance(op, ast.Is)
        if isinstance(op, ast.In | ast.NotIn):
            if not isinstance(right, tuple | str) or any(isinstance(x, Value | Dim) for x in (left, *right)):
                raise self.error("'in' is for compile-time values", "compare with == and |")
            return (left in right) == isinstance(op, ast.In)
        run_time = any(isinstance(x, Value) for x in (left, right))
        if not run_time and isinstance(left, Dim) and left == right:
            return isinstance(op, ast.Eq | ast.LtE | ast.GtE)
        if not run_time and not any(isinstance(x, Dim) for x in (left, right)):
            if is_number(left) and is_number(right):
                return self.b.binary(BINARY[type(op)], left, right)
            if any(isinstance(part, Value | Dim | ArrayRef) for part in (*leaves(left), *leaves(right))):
                raise self.error("a comparison of values known only at run time", "compare the items of tuples one by one")
            if isinstance(op, ast.Eq | ast.NotEq):
                return (left == right) == isinstance(op, ast.Eq)
        return self.b.binary(BINARY[type(op)], left, right)

    def _expr_Attribute(self, node: ast.Attribute) -> Any:
        owner = self.eval(node.value)
        name = node.attr
        match owner:
            case ModuleType():
                try:
                    return self._record(node, Capture(vars(owner), name, getattr(owner, name)))
                except AttributeError:
                    # Of tesela only the words: its decorators and classes have no meaning here.
                    known = WORDS if owner.__name__ == __package__.partition(".")[0] else dir(owner)
                    hint = similar(name, known, 2)
                    raise self.error(f"the module {owner.__name__} has no {name}", hint) from None
            case Dim() if name in ("to", "astype"):
                return Method(self.b.dim(owner), name)
            case Value() | ArrayRef():
                if name in ("shape", "dtype"):
                    return getattr(owner, name)
                if name == "ndim":
                    return len(owner.shape)
                if isinstance(owner, Value):
                    if name == "T":
                        return BUILDERS["transpose"](self, owner, None)
                    if name in METHODS:
                        return Method(owner, name)
        if isinstance(owner, ChannelRef):
            if name in CHANNEL_METHODS:
                return Method(owner, name)
            raise self.error(f"{describe(owner)} has no attribute {name}", similar(name, CHANNEL_METHODS) or f"it has {', '.join(CHANNEL_METHODS)}")
        known = ["shape", "dtype", "ndim", *(["T", *METHODS] if isinstance(owner, Value) else [])]
        hint = None
        if isinstance(owner, Value | ArrayRef):
            hint = f"write tesela.{name}" if name in WORDS else similar(name, known) or f"it has {', '.join(known)}"
            if hint == f"write {ast.unparse(node)}":  # as it stands there
                hint = f"a variable is called {ast.unparse(node.value)} here: give it another name"
        raise self.error(f"{describe(owner)} has no attribute {name}", hint)

    def _expr_Subscript(self, node: ast.Subscript) -> Any:
        return subscript(self, node)

    # Calls

    def _expr_Call(self, node: ast.Call) -> Any:
        function = self.eval(node.func)
        if function is WORDS["assume"]:
            return assume(self, node)
        if isinstance(function, Method) and isinstance(function.owner, ChannelRef):
            return channel_call(self, node, function)
        args: list[Any] = []
        arg_nodes: list[ast.expr] = []
        for item in node.args:
            if isinstance(function, Word) and function.takes_place and not args:
                args.append(place_argument(self, item, function.name))
                arg_nodes.append(item)
            elif isinstance(item, ast.Starred):
                inner = self.eval(item.value)
                if not isinstance(inner, tuple):
                    raise self.error(f"{describe(inner)} cannot be unpacked", at=item)
                args += inner
                arg_nodes += [item] * len(inner)
            else:
                args.append(self.eval(item))
                arg_nodes.append(item)
        kwargs: dict[str, Any] = {}
        kwarg_nodes: dict[str, ast.expr] = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                raise self.error("'**' in a call is not in the kernel language", "write the arguments out", keyword.value)
            kwargs[keyword.arg] = self.eval(keyword.value)
            kwarg_nodes[keyword.arg] = keyword.value
        self.b.node = node
        if isinstance(function, Method):
            word = WORDS[METHODS[function.name]]
            owner = node.func.value if isinstance(node.func, ast.Attribute) else node.func
            if function.name in ("reshape", "transpose") and len(args) > 1:
                args, arg_nodes = [tuple(args)], arg_nodes[:1]
            return self._word(word, [function.owner, *args], kwargs, [owner, *arg_nodes], kwarg_nodes)
        if isinstance(function, Word):
            return self._word(function, args, kwargs, arg_nodes, kwarg_nodes)
        if isinstance(function, DType):
            return self._word(WORDS["cast"], [*args, function], kwargs, arg_nodes, kwarg_nodes)
        if isinstance(function, FunctionType):
            return self._inline(node, function, args, kwargs)
        if isinstance(function, BuiltinFunctionType) or any(function is f for f in _BUILTIN_VALUES):
            return self._builtin(node, function, args, kwargs)
        raise self.error(f"{describe(function)} cannot be called", at=node.func)

    def _word(
        self, word: Word, args: list[Any], kwargs: dict[str, Any], arg_nodes: Sequence[ast.AST], kwarg_nodes: Mapping[str, ast.AST]
    ) -> Any:
        """Call a word: bind its arguments and build it."""
        if kwargs and word.variadic and not word.keywords:
            raise self.error(f"tesela.{word.name} takes no keyword arguments")
        if len(args) > len(word.positional) and not word.variadic:
            raise self.error(f"tesela.{word.name}{word.signature} takes {len(word.positional)} positional arguments, found {len(args)}")
        bound = dict(zip(word.positional, args))
        nodes = dict(zip(word.positional, arg_nodes))
        for name, value in kwargs.items():
            if name not in (*word.positional, *word.keywords):
                hint = similar(name, word.names)
                raise self.error(f"tesela.{word.name}{word.signature} has no argument {name}", hint, kwarg_nodes[name])
            if name in bound:
                raise self.error(f"tesela.{word.name}: {name} is given twice", at=kwarg_nodes[name])
            bound[name] = value
            nodes[name] = kwarg_nodes[name]
        values = []
        for name in (*word.positional, *word.keywords):
            if name not in bound and name not in word.defaults:
                raise self.error(f"tesela.{word.name}{word.signature}: the argument {name} is missing")
            values.append(bound[name] if name in bound else word.defaults[name])
        self._arguments = nodes  # type: ignore[assignment]
        positional = len(word.positional)
        return BUILDERS[word.name](self, *values[:positional], *args[positional:], *values[positional:])

    def _builtin(self, node: ast.Call, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """A builtin of Python, or a function of its math module."""
        name = function.__name__
        if function in (min, max) and len(args) >= 2 and not kwargs:
            result = args[0]
            for item in args[1:]:
                result = self.b.binary("maximum" if function is max else "minimum", result, item)
            return result
        if function is abs and len(args) == 1 and not is_number(args[0]):
            return self.b.unary("abs", args[0])
        if function is print:
            return self._word(WORDS["print"], args, kwargs, node.args, {})
        if function is range:
            return self._word(WORDS["range"], args, kwargs, node.args, {})
        if function is len and len(args) == 1 and isinstance(args[0], Value | ArrayRef) and args[0].shape:
            return args[0].shape[0]
        if any(isinstance(x, Value | Dim | ArrayRef) for x in (*args, *kwargs.values())):
            what = f"math.{name}" if function.__module__ == "math" else f"Python's {name}"
            hint = f"write tesela.{name}" if name in WORDS else "use x.to(…) to convert" if name in ("int", "float", "bool") else None
            found = next(x for x in (*args, *kwargs.values()) if isinstance(x, Value | Dim | ArrayRef))
            raise self.error(f"{what} takes compile-time values, found {describe(found)}", hint)
        if function is pow and len(args) == 2 and not kwargs and all(map(is_number, args)):
            return self.b.binary("**", *args)
        factors = FACTORS[function](*args) if function in FACTORS and all(isinstance(x, int) for x in args) else 0
        if factors > MOST_BITS:
            raise self.error(f"math.{name} multiplies {factors} numbers, more than {MOST_BITS}")
        try:
            return self._captured(node, function(*args, **kwargs))
        except (TypeError, ValueError, ArithmeticError) as error:
            raise self.error(f"{name}: {error}") from None

    def _inline(self, node: ast.Call, function: FunctionType, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Trace a helper function in place of its call."""
        if self.depth >= MAX_INLINE_DEPTH:
            raise self.error(f"{function.__name__} calls itself, or calls are nested deeper than {MAX_INLINE_DEPTH}", "write a loop")
        source = SourceFunction(function)
        try:
            bound = inspect.signature(function, follow_wrapped=False).bind(*args, **kwargs)
        except TypeError as error:
            raise self.error(f"{function.__name__}: {error}") from None
        bound.apply_defaults()
        for capture in Capture.of_defaults(function):
            self.captures[id(function), capture.name] = capture
        outer = self.frame
        frame = Frame(source)
        for name, value in bound.arguments.items():
            frame.names[name] = value if name in kwargs or not _is_default(function, name, value) else self._captured(node, value)
        self.b.calls.append((self.b.source, node))
        self.frame, self.b.source = frame, source
        self.depth += 1
        self.run(source.tree.body)
        self.depth -= 1
        self.frame = outer
        self.b.source, _ = self.b.calls.pop()
        self.b.node = node
        return frame.result

    # The contract

    def declare_grid(self, extents: Sequence[Any]) -> Any:
        """`tesela.grid(…)`."""
        if self.grid is not None:
            raise self.error("the grid is declared a second time", "call tesela.grid once")
        if self.b.block is not self.b.entry:
            raise self.error("the grid is declared inside a run-time conditional or loop", "call tesela.grid at the beginning")
        if not 1 <= len(extents) <= 3:
            raise self.error(f"a grid has one to three extents, found {len(extents)}")
        self.grid = []
        coordinates: list[Value] = []
        for extent in extents:
            if isinstance(extent, Dim):
                self.b.check_symbols(extent.expr)
                self.grid.append(extent.expr)
            elif isinstance(extent, int) and not isinstance(extent, bool) and extent >= 0:
                self.grid.append(DimExpr("int", extent))
            else:
                self.grid = None
                raise self.error(
                    f"an extent of the grid is an integer or an expression of dimensions, found {describe(extent)}",
                    "compute it from the dimensions of the signature: tesela.ceildiv(M, 128)",
                )
            argument = self.b.entry.insert_arg(IndexType(), len(self.b.entry.args))
            argument.location = self.b.location(self.b.node)
            coordinates.append(Value(argument, index, nonneg=True))
        self.coordinates = tuple(coordinates)
        return self.coordinates if len(coordinates) > 1 else coordinates[0]


@cache
def _array_type(dtype: DType, shape: tuple[int, ...], strides: tuple[int | None, ...]) -> MemRefType:
    return MemRefType(ATTRIBUTES[dtype], shape, StridedLayoutAttr([NoneAttr() if s is None else s for s in strides]))


def trace_kernel(
    source: SourceFunction, params: Sequence[Parameter], bound: Mapping[str, Any], amounts: Mapping[str, str] | None = None
) -> tuple[ModuleOp, tuple[Capture, ...]]:
    """The module of one tile.kernel, and what it captures. `bound` gives the values of constexpr parameters and of type variables, `amounts`
    what the kernel states of a launch.

    Raises TeselaError at the first expression that is not in the language.
    """
    symbols: dict[str, Any] = {}
    names: dict[str, Any] = {}
    entry = Block()
    arguments: list[tuple[str, Attribute, Sequence[DimExpr] | None, dict[str, Attribute]]] = []
    nodes = {arg.arg: arg for arg in ast.walk(source.tree.args) if isinstance(arg, ast.arg)}
    for param in params:
        kind: Attribute
        array: Array | None = None
        match param.annotation:
            case Array() as array:
                dtype = array.bind(bound)
                if isinstance(array.dtype, str):
                    symbols[array.dtype] = dtype
                extents = tuple(int(expr.value) if expr.op == "int" else DYNAMIC_INDEX for expr in array.shape)
                kind = _array_type(dtype, extents, array.strides)
                attributes: dict[str, Attribute] = {}
                if array.align is not None:
                    attributes["align"] = IntegerAttr(array.align, i64)
                if array.noalias:
                    attributes["noalias"] = UnitAttr()
                arguments.append((param.name, kind, array.shape, attributes))
                for name in (name for expr in array.shape for name in expr.symbols()):
                    symbols[name] = Dim(name)
            case DType() as dtype:
                kind = ATTRIBUTES[dtype]
                arguments.append((param.name, kind, None, {}))
            case _:
                constant = bound[param.name]
                names[param.name] = constant.function if isinstance(constant, InlineFunction) else constant
                continue
        ssa = entry.insert_arg(kind, len(entry.args))
        ssa.name_hint = param.name
        names[param.name] = Value(ssa, dtype) if array is None else ArrayRef(param.name, ssa, dtype, array)
    t = Tracer(source, entry, symbols)
    for argument in arguments:
        names[argument[0]].ssa.location = t.b.location(nodes[argument[0]])
    extents_of = {str(e.value) for argument in arguments for e in argument[2] or () if e.op == "sym"}
    for argument in arguments:
        for name in (name for expr in argument[2] or () for name in expr.symbols()):
            if name not in extents_of:
                hint = f"state {name} alone as the extent of some argument"
                raise t.error(f"the dimension {name} is the extent of no argument: its value cannot be known at launch", hint,
                              nodes[argument[0]])
    t.frame.names.update(names)
    t.run(source.tree.body)
    t.b.node = source.tree
    if t.grid is None:
        t.declare_grid([1])
    finish_explicit(t)
    t.b.erase_unused_constants()
    t.b.add(tile.ReturnOp.create())
    dims = t.b.used_dims()
    kernel = tile.KernelOp.make(source.name, arguments, dims, t.grid or [], Region(entry), t.divisors)
    kernel.attributes.update({name: StringAttr(text) for name, text in (amounts or {}).items()})
    kernel.location = t.b.location(source.tree)
    module = ModuleOp([kernel])
    module.location = kernel.location
    return module, tuple(t.captures.values())


def _is_default(function: FunctionType, name: str, value: Any) -> bool:
    """Whether an argument has the function's default for it, a value of the Python world."""
    return inspect.signature(function, follow_wrapped=False).parameters[name].default is value


BUILTINS: dict[str, Any] = {
    function.__name__: function for function in (abs, min, max, len, range, print, int, float, bool, round, pow, divmod, tuple)
}
"""The builtins of Python that a kernel may call."""
_BUILTIN_VALUES = frozenset(BUILTINS.values())

FACTORS: dict[Any, Callable[..., int]] = {
    math.factorial: lambda n=0, *_: n,
    math.perm: lambda n=0, k=None, *_: n if k is None else min(n, k),
    math.comb: lambda n=0, k=0, *_: min(k, n - k),
}
"""How many numbers those functions of Python's math module multiply that can take as long as they like."""

BUILTIN_HINTS = {
    "sum": "write tesela.sum(x, axis)",
    "input": "pass values as arguments",
    "open": "pass arrays as arguments",
    "enumerate": "loop over tesela.static_range(len(x))",
    "zip": "loop over tesela.static_range(len(x))",
    "map": "write a loop over tesela.static_range",
    "list": "use a tuple",
    "dict": "use variables or a tuple",
    "isinstance": "compare dtypes: x.dtype == tesela.f32",
    "type": "compare dtypes: x.dtype == tesela.f32",
    "any": "write tesela.max(x.to(tesela.i32)) != 0",
    "all": "write tesela.min(x.to(tesela.i32)) != 0",
}

_ELEMENT_TYPES = {f"float{n}": f"f{n}" for n in (16, 32, 64)} | {f"int{n}": f"i{n}" for n in (8, 16, 32, 64)}
_ELEMENT_TYPES |= {"bfloat16": "bf16", "bool": "i1", "bool_": "i1", "uint8": "ui8", "float8_e4m3fn": "f8E4M3FN", "float8_e5m2": "f8E5M2"}
"""What NumPy and ml_dtypes call the element types."""

_STATEMENTS = {
    getattr(ast, name.removeprefix("_stmt_")): method for name, method in vars(Tracer).items() if name.startswith("_stmt_")
}
_EXPRESSIONS = {
    getattr(ast, name.removeprefix("_expr_")): method for name, method in vars(Tracer).items() if name.startswith("_expr_")
}
_EXPRESSIONS[ast.List] = Tracer._expr_Tuple
