"""PTX text: `print_program` writes a Program, `read_program` reads one, both from the instruction table.

The printer writes one statement a line. The reader takes that text back (`read(print(p)) == p`, but for the line
numbers) and also PTX as people write it: several statements on a line, comments, `.reg .f32 %d<128>;`, nested `{ }`
scopes with registers and labels of their own, typed moves (`mov.u32`, `ld.global.f32`: read as `mov.b32`,
`ld.global.b32`), labels with and without `$`. It checks each instruction against its row: number, kind and class of
the operands, declared registers, defined labels. Registers are *bit classes* (pred, b16, b32, b64), so `.f32`, `.s32`
and `.b32` declare the same thing, which ptxas accepts for every instruction that the table spells.

A statement is read in two steps: the tokens (one regular expression, `_TOKEN`, which takes a braced list of names
whole because a wgmma has 128 of them), then the operands one by one, matched with each form of the row; the error
tells about the form that got furthest. Grammar: PTX ISA 9.0 §4 (syntax), §5.4 (variables), §11 (directives).
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

from .diagnostics import Location, TeselaError
from .ptx_isa import CLASS_OF_TYPE, SPECIAL_REGISTERS, Row, UnknownInstruction, canonical, lookup
from .ptx_isa import Operand as Form
from .ptx_program import (
    Addr,
    Entry,
    Imm,
    Instr,
    Label,
    LabelDef,
    Operand,
    Pair,
    ParamDecl,
    Pragma,
    Program,
    Reg,
    SharedDecl,
    Sink,
    Special,
    Symbol,
    TensorAddr,
    Vec,
)

# ---- printing ---------------------------------------------------------------------------------------------------------


def _print_imm(imm: Imm) -> str:
    if imm.kind == "f32":
        return f"0f{imm.bits:08X}"
    if imm.kind == "f64":
        return f"0d{imm.bits:016X}"
    return str(imm.bits) if imm.bits < 1 << 63 else hex(imm.bits)


def _print_addr(addr: Addr) -> str:
    base = addr.base
    text = base.name if type(base) is Reg else _PRINT[type(base)](base)
    return f"[{text}+{addr.offset}]" if addr.offset else f"[{text}]"


def _print_vec(vec: Vec) -> str:
    return "{" + ", ".join([i.name if type(i) is Reg else _PRINT[type(i)](i) for i in vec.items]) + "}"


_PRINT: dict[type, Callable[[Any], str]] = {
    Reg: lambda reg: reg.name,
    Special: lambda special: special.name,
    Imm: _print_imm,
    Symbol: lambda symbol: f"{symbol.name}+{symbol.offset}" if symbol.offset else symbol.name,
    Addr: _print_addr,
    TensorAddr: lambda t: f"[{_PRINT[type(t.base)](t.base)}, {_print_vec(Vec(t.coords))}]",
    Vec: _print_vec,
    Label: lambda label: f"${label.name}",
    Pair: lambda pair: f"{_PRINT[type(pair.first)](pair.first)}|{_PRINT[type(pair.second)](pair.second)}",
    Sink: lambda sink: "_",
}


def print_instr(instr: Instr) -> str:
    """One instruction as text, without indentation or newline."""
    operands = ", ".join([o.name if type(o) is Reg else _PRINT[type(o)](o) for o in instr.operands])
    text = f"{instr.opcode} {operands};" if operands else f"{instr.opcode};"
    if instr.guard is None:
        return text
    return f"@!{instr.guard} {text}" if instr.negated else f"@{instr.guard} {text}"


def print_program(program: Program) -> str:
    """The whole module's text, one statement a line, a newline at its end."""
    major, minor = program.version
    lines = [f".version {major}.{minor}", f".target {program.target}", ".address_size 64", ""]
    lines += [f'.file {number} "{name}"' for number, name in enumerate(program.files, 1)]
    lines += [_print_shared(shared) for shared in program.shared]
    for entry in program.entries:
        lines += _print_entry(entry)
    return "\n".join(lines) + "\n"


def _print_shared(shared: SharedDecl) -> str:
    extern, size = (".extern ", "") if shared.extern else ("", str(shared.size))
    return f"{extern}.shared .align {shared.align} .b8 {shared.name}[{size}];"


def _print_param(param: ParamDecl) -> str:
    if param.size:
        return f"    .param .align {param.align} .b8 {param.name}[{param.size}]"
    return f"    .param .{param.type} {param.name}"


def _print_entry(entry: Entry) -> list[str]:
    params = [_print_param(param) for param in entry.params]
    lines = ["", f".visible .entry {entry.name}("]
    lines += [f"{text}," for text in params[:-1]] + params[-1:] + [")"]
    for directive, sizes in ((".maxntid", entry.max_threads), (".reqntid", entry.required_threads)):
        if sizes is not None:
            lines.append(f"{directive} {', '.join(map(str, sizes))}")
    if entry.min_blocks is not None:
        lines.append(f".minnctapersm {entry.min_blocks}")
    if entry.max_registers is not None:
        lines.append(f".maxnreg {entry.max_registers}")
    if entry.cluster is not None:
        # Without .explicitcluster every cluster barrier would check the cluster's size at run time.
        lines += [".explicitcluster", f".reqnctapercluster {', '.join(map(str, entry.cluster))}"]
    lines.append("{")
    lines += _print_registers(entry.registers)
    lines += [f"  {_print_shared(shared)}" for shared in entry.shared]
    place = None
    for item in entry.body:
        if type(item) is Instr:
            if item.loc is not None and item.loc != place:
                place = item.loc
                lines.append("  .loc {} {} {}".format(*place))
            lines.append(f"  {print_instr(item)}")
        elif type(item) is LabelDef:
            lines.append(f"${item.name}:")
        elif type(item) is Pragma:
            lines.append(f'  .pragma "{item.text}";')
    lines.append("}")
    return lines


_NUMBERED = re.compile(r"(.*?)(0|[1-9]\d*)\Z")


def _print_registers(registers: dict[str, str]) -> list[str]:
    """Declarations by class: `%r<4>` where %r0 to %r3 are all there (and nothing else starts like them), else by
    name."""
    families: dict[tuple[str, str], set[int]] = {}
    single: dict[str, list[str]] = {}
    for name, cls in registers.items():
        match = _NUMBERED.match(name)
        if match is None:
            single.setdefault(cls, []).append(name)
        else:
            families.setdefault((cls, match[1]), set()).add(int(match[2]))
    lines = []
    for (cls, prefix), numbers in families.items():
        if max(numbers) + 1 == len(numbers):
            lines.append(f"  .reg .{cls} {prefix}<{len(numbers)}>;")
        else:
            single.setdefault(cls, []).extend(f"{prefix}{number}" for number in sorted(numbers))
    for cls, names in single.items():
        for start in range(0, len(names), 16):
            lines.append(f"  .reg .{cls} {', '.join(names[start : start + 16])};")
    return lines


# ---- reading ----------------------------------------------------------------------------------------------------------

_NAME = r"[%$_A-Za-z][\w$]*(?:(?:\.|::)\w+)*"
_TOKEN = re.compile(
    rf"""(?P<space>(?:\s+|//[^\n]*|/\*.*?\*/)+)
    |(?P<list>\{{\s*[%$\w]+\s*(?:,\s*[%$\w]+\s*)*\}})
    |(?P<float>0[fF][0-9a-fA-F]{{8}}(?!\w)|0[dD][0-9a-fA-F]{{16}}(?!\w)|\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)
    |(?P<int>0[xX][0-9a-fA-F]+U?(?!\w)|0[bB][01]+U?(?!\w)|\d+U?(?!\w))
    |(?P<name>{_NAME})
    |(?P<directive>\.[A-Za-z_]\w*)
    |(?P<string>"[^"\n]*")
    |(?P<mark>[][(){{}}<>,;:|@!+=-])""",
    re.VERBOSE | re.DOTALL,
)

_DECLARED: dict[str, str] = {name: cls for name, cls in CLASS_OF_TYPE.items() if not name.endswith("8")}
_PARAM_TYPES = {"8": "b8", "16": "b16", "32": "b32", "64": "b64"}


class _Token:
    """A token: its kind (a group of `_TOKEN`, or 'end'), text and offset."""

    __slots__ = ("kind", "text", "at")

    def __init__(self, kind: str, text: str, at: int) -> None:
        self.kind, self.text, self.at = kind, text, at


class _Scope:
    """Names declared between `{` and `}`: registers and labels, by the name the Program gives them."""

    __slots__ = ("parent", "registers", "labels")

    def __init__(self, parent: _Scope | None = None) -> None:
        self.parent = parent
        self.registers: dict[str, str] = {}
        self.labels: dict[str, str] = {}

    def find(self, table: str, name: str) -> str | None:
        scope: _Scope | None = self
        while scope is not None:
            found = getattr(scope, table).get(name)
            if found is not None:
                return found
            scope = scope.parent
        return None

    def known(self, table: str) -> Iterator[str]:
        scope: _Scope | None = self
        while scope is not None:
            yield from getattr(scope, table)
            scope = scope.parent


def read_program(text: str, filename: str = "<ptx>") -> Program:
    """Read a PTX module. Raises TeselaError, with line and column, for what is no PTX or not in the instruction
    table."""
    return _Reader(text, filename).program()


class _Reader:
    """One pass over the tokens of a module."""

    def __init__(self, text: str, filename: str) -> None:
        self.text, self.filename = text, filename
        self.starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self.tokens = self._scan()
        self.next = 0
        self.token = self.tokens[0]
        self.result = Program((0, 0), "")
        self.variables: set[str] = set()
        self.place: tuple[int, int, int] | None = None

    # -- tokens and errors

    def _scan(self) -> list[_Token]:
        tokens: list[_Token] = []
        at = 0
        for match in _TOKEN.finditer(self.text):
            if match.start() != at:
                self.fail(f"unexpected character {self.text[at]!r}", at)
            kind, at = match.lastgroup, match.end()
            if kind != "space":
                assert kind is not None
                tokens.append(_Token(kind, match[0], match.start()))
        if at != len(self.text):
            self.fail(f"unexpected character {self.text[at]!r}", at)
        tokens.append(_Token("end", "the end of the text", at))
        return tokens

    def fail(self, message: str, at: int | None = None, hint: str | None = None) -> NoReturn:
        offset = self.token.at if at is None else at
        line = bisect_right(self.starts, offset)
        error = TeselaError.at(Location(self.filename, line, offset - self.starts[line - 1] + 1), message, hint)
        error.sources[self.filename] = self.text
        raise error

    def take(self) -> _Token:
        token = self.token
        self.next += 1
        self.token = self.tokens[min(self.next, len(self.tokens) - 1)]
        return token

    def accept(self, text: str) -> bool:
        if self.token.text == text and self.token.kind in ("mark", "directive"):
            self.take()
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            self.fail(f"expected '{text}', found '{self.token.text}'")

    def name(self, what: str) -> _Token:
        if self.token.kind != "name":
            self.fail(f"expected {what}, found '{self.token.text}'")
        return self.take()

    def integer(self, what: str) -> int:
        negative = self.accept("-")
        if self.token.kind != "int":
            self.fail(f"expected {what}, found '{self.token.text}'")
        value = _integer(self.take().text)
        return -value if negative else value

    def integers(self, what: str, count: int = 3) -> tuple[int, ...]:
        """One to `count` integers separated by commas, filled up with ones."""
        values = [self.integer(what)]
        while len(values) < count and self.accept(","):
            values.append(self.integer(what))
        return (*values, *(1,) * (count - len(values)))

    # -- module

    def program(self) -> Program:
        self._header()
        while self.token.kind != "end":
            self._module_item()
        if not self.result.entries:
            self.fail("no .entry in this text")
        return self.result

    def _header(self) -> None:
        self.expect(".version")
        token = self.take()
        parts = token.text.split(".")
        if token.kind != "float" or len(parts) != 2 or not all(part.isdigit() for part in parts):
            self.fail(f"expected a version such as 8.0, found '{token.text}'", token.at)
        self.result.version = (int(parts[0]), int(parts[1]))
        self.expect(".target")
        self.result.target = self.name("a target such as sm_90a").text
        while self.accept(","):
            self.name("a target option")
        if self.accept(".address_size"):
            at = self.token.at
            if (size := self.integer("64")) != 64:
                self.fail(f".address_size {size}: only 64-bit addresses are known here", at)

    def _module_item(self) -> None:
        if self.token.text == ".file":
            self._file()
        elif self.token.text in (".extern", ".shared"):
            self.result.shared.append(self._shared())
        else:
            self.accept(".visible")
            if self.token.text != ".entry":
                self.fail(f"expected .entry, .shared or .file, found '{self.token.text}'")
            self._entry()

    def _file(self) -> None:
        self.take()
        at = self.token.at
        number = self.integer("a file number")
        token = self.take()
        if token.kind != "string":
            self.fail(f"expected a file name in quotes, found '{token.text}'", token.at)
        if number != len(self.result.files) + 1:
            self.fail(f"file {number} stands where file {len(self.result.files) + 1} is due", at)
        self.result.files.append(token.text[1:-1])
        while self.accept(","):
            self.integer("a time stamp or a size")

    def _shared(self) -> SharedDecl:
        extern = self.accept(".extern")
        self.expect(".shared")
        align = self.integer("an alignment") if self.accept(".align") else 1
        self.expect(".b8")
        name = self.name("a variable's name").text
        self.expect("[")
        size = 0 if extern and self.token.text == "]" else self.integer("a size in bytes")
        self.expect("]")
        self.expect(";")
        self.variables.add(name)
        return SharedDecl(name, size, align, extern)

    def _entry(self) -> None:
        self.take()
        entry = Entry(self.name("the entry's name").text)
        self.entry, self.params = entry, set[str]()
        if self.accept("(") and not self.accept(")"):
            entry.params.append(self._param())
            while self.accept(","):
                entry.params.append(self._param())
            self.expect(")")
        while self.token.kind == "directive":
            self._performance_directive(entry)
        self.labels: set[str] = set()
        self.branches: list[tuple[Instr, _Scope, int]] = []
        self.place = None
        outer = set(self.variables)
        self._braces(_Scope())
        self.variables = outer
        for instr, scope, at in self.branches:
            self._resolve_branch(instr, scope, at)
        self.result.entries.append(entry)

    def _param(self) -> ParamDecl:
        self.expect(".param")
        align = self.integer("an alignment") if self.accept(".align") else 0
        token = self.take()
        kind = _PARAM_TYPES.get(token.text.lstrip(".bsuf"))
        if token.kind != "directive" or kind is None:
            self.fail(f"expected a parameter's type such as .b64, found '{token.text}'", token.at)
        name = self.name("a parameter's name").text
        self.params.add(name)
        if not self.accept("["):
            return ParamDecl(name, kind)
        size = self.integer("a size in bytes")
        self.expect("]")
        if kind != "b8":
            self.fail(f"parameter array '{name}' must be of .b8", token.at)
        return ParamDecl(name, kind, size, align or 1)

    def _performance_directive(self, entry: Entry) -> None:
        token = self.take()
        if token.text == ".maxntid":
            entry.max_threads = self.integers("a number of threads")  # type: ignore[assignment]
        elif token.text == ".reqntid":
            entry.required_threads = self.integers("a number of threads")  # type: ignore[assignment]
        elif token.text == ".reqnctapercluster":
            entry.cluster = self.integers("a number of blocks")  # type: ignore[assignment]
        elif token.text == ".minnctapersm":
            entry.min_blocks = self.integer("a number of blocks")
        elif token.text == ".maxnreg":
            entry.max_registers = self.integer("a number of registers")
        elif token.text != ".explicitcluster":
            known = ".maxntid, .reqntid, .minnctapersm, .maxnreg, .explicitcluster, .reqnctapercluster"
            self.fail(f"unknown directive '{token.text}' of an entry", token.at, f"known: {known}")

    # -- bodies

    def _braces(self, scope: _Scope) -> None:
        self.expect("{")
        while not self.accept("}"):
            if self.token.kind == "end":
                self.fail("a '{' is not closed before the end of the text")
            self._statement(scope)

    def _statement(self, scope: _Scope) -> None:
        token = self.token
        if token.text == "{":
            self._braces(_Scope(scope))
        elif token.kind == "directive":
            self._body_directive(scope)
        elif token.kind == "name" and self.tokens[self.next + 1].text == ":":
            self.take()
            self.take()
            self._label(scope, token)
        elif token.kind == "name" or token.text == "@":
            self._instruction(scope)
        else:
            self.fail(f"expected a statement, found '{token.text}'")

    def _label(self, scope: _Scope, token: _Token) -> None:
        name = token.text.removeprefix("$")
        if name in scope.labels:
            self.fail(f"label '{token.text}' is defined twice", token.at)
        unique = _unique(name, self.labels)
        self.labels.add(unique)
        scope.labels[name] = unique
        self.entry.body.append(LabelDef(unique))

    def _body_directive(self, scope: _Scope) -> None:
        token = self.token
        if token.text == ".reg":
            self.take()
            self._registers(scope)
        elif token.text == ".shared":
            self.entry.shared.append(self._shared())
        elif token.text == ".pragma":
            self.take()
            text = self.take()
            if text.kind != "string":
                self.fail(f"expected a pragma in quotes, found '{text.text}'", text.at)
            self.expect(";")
            self.entry.body.append(Pragma(text.text[1:-1]))
        elif token.text == ".loc":
            self.take()
            at = self.token.at
            file, line, column = (self.integer(what) for what in ("a file number", "a line", "a column"))
            if not 1 <= file <= len(self.result.files):
                self.fail(f".loc names file {file}, which no .file declares", at)
            self.place = (file, line, column)
        else:
            self.fail(f"unknown directive '{token.text}'", hint="known in a body: .reg, .shared, .pragma, .loc")

    def _registers(self, scope: _Scope) -> None:
        token = self.take()
        cls = _DECLARED.get(token.text.removeprefix("."))
        if token.kind != "directive" or cls is None:
            self.fail(f"expected a register type such as .b32, found '{token.text}'", token.at)
        while True:
            token = self.name("a register's name")
            if self.accept("<"):
                count = self.integer("a number of registers")
                self.expect(">")
                names: Iterable[str] = [f"{token.text}{number}" for number in range(count)]
            else:
                names = [token.text]
            for name in names:
                if name in SPECIAL_REGISTERS:
                    self.fail(f"'{name}' is a special register and cannot be declared", token.at)
                if name in scope.registers:
                    self.fail(f"register '{name}' is declared twice", token.at)
                unique = _unique(name, self.entry.registers)
                scope.registers[name] = unique
                self.entry.registers[unique] = cls
            if not self.accept(","):
                break
        self.expect(";")

    # -- instructions

    def _instruction(self, scope: _Scope) -> None:
        guard, negated = None, False
        if self.accept("@"):
            negated = self.accept("!")
            token = self.name("a predicate register")
            guard = self._register(scope, token.text, token.at).name
            if self.entry.registers[guard] != "pred":
                self.fail(f"the guard '{token.text}' is of class {self.entry.registers[guard]}, not pred", token.at)
        token = self.name("an instruction")
        opcode = canonical(token.text)
        try:
            row = lookup(opcode)
        except UnknownInstruction as error:
            self.fail(str(error), token.at)
        operands: list[Operand] = []
        places: list[int] = []
        if self.token.text != ";":
            while True:
                places.append(self.token.at)
                operands.append(self._operand(scope))
                if not self.accept(","):
                    break
        if self.token.text != ";":
            self.fail(f"expected ',' or ';' after an operand of {opcode}, found '{self.token.text}'")
        self.take()
        line = bisect_right(self.starts, token.at)
        instr = Instr(opcode, (), guard, negated, self.place, line)
        instr.operands = self._match(row, operands, token.at, places)
        if row.operands and row.operands[0].role == "label":
            self.branches.append((instr, scope, places[0]))
        self.entry.body.append(instr)

    def _register(self, scope: _Scope, name: str, at: int) -> Reg:
        found = scope.find("registers", name)
        if found is None:
            self._unknown("register", name, list(scope.known("registers")), at, "declare it with .reg")
        return Reg(found)

    def _unknown(self, what: str, name: str, known: list[str], at: int, hint: str) -> NoReturn:
        import difflib

        near = difflib.get_close_matches(name, known, 2, 0.7)
        hint = f"did you mean {' or '.join(near)}?" if near else hint
        self.fail(f"unknown {what} '{name}'", at, hint)

    def _resolve_branch(self, instr: Instr, scope: _Scope, at: int) -> None:
        label = instr.operands[0]
        assert isinstance(label, Label)
        found = scope.find("labels", label.name)
        if found is None:
            self._unknown(
                "label", f"${label.name}", [f"${n}" for n in scope.known("labels")], at, "no such label in scope"
            )
        instr.operands = (Label(found),)

    def _operand(self, scope: _Scope) -> Operand:
        token = self.token
        if token.kind == "list":
            self.take()
            names = token.text[1:-1].split(",")
            return Vec(tuple([self._atom(scope, name.strip(), token.at) for name in names]))
        if token.text == "[":
            return self._address(scope)
        if token.text == "{":
            self.take()
            items = [self._operand(scope)]
            while self.accept(","):
                items.append(self._operand(scope))
            self.expect("}")
            return Vec(tuple(items))
        first = self._scalar(scope)
        if self.accept("|"):
            return Pair(first, self._scalar(scope))
        return first

    def _scalar(self, scope: _Scope) -> Operand:
        token = self.token
        if token.kind == "float":
            self.take()
            return _float(token.text)
        if token.kind == "int" or token.text == "-":
            if token.text == "-" and self.tokens[self.next + 1].kind == "float":
                self.take()
                return _float("-" + self.take().text)
            return Imm(self.integer("a number"))
        if token.kind != "name":
            self.fail(f"expected an operand, found '{token.text}'")
        self.take()
        operand = self._atom(scope, token.text, token.at)
        if type(operand) is Symbol and self.token.text in ("+", "-"):
            return Symbol(operand.name, self._offset())
        return operand

    def _atom(self, scope: _Scope, name: str, at: int) -> Operand:
        """What one word means: a register, a special register, a variable or parameter, the sink, a number or a
        label."""
        found = scope.find("registers", name)
        if found is not None:
            return Reg(found)
        if name in SPECIAL_REGISTERS:
            return Special(name)
        if name == "_":
            return Sink()
        if name in self.variables or name in self.params:
            return Symbol(name)
        if name[0].isdigit():
            return Imm(_integer(name))
        if name[0] == "%":
            self._register(scope, name, at)
        return Label(name.removeprefix("$"))

    def _offset(self) -> int:
        """`+8`, `-8` or `+-8`."""
        return self.integer("an offset in bytes") if self.accept("+") else self.integer("an offset in bytes")

    def _address(self, scope: _Scope) -> Operand:
        self.take()
        at = self.token.at
        base = self._scalar(scope)
        if not isinstance(base, Reg | Symbol | Imm):
            self.fail("an address starts with a register, a variable or a number", at)
        if isinstance(base, Label):
            self._register(scope, base.name, at)
        if self.accept(","):
            coords = self._operand(scope)
            self.expect("]")
            if not isinstance(coords, Vec) or isinstance(base, Imm):
                self.fail("a tensor address is written [map, {x, y}]", at)
            return TensorAddr(base, coords.items)
        offset = self._offset() if self.token.text in ("+", "-") else 0
        if isinstance(base, Symbol):
            base, offset = Symbol(base.name), offset + base.offset
        self.expect("]")
        return Addr(base, offset)

    # -- forms

    def _match(self, row: Row, operands: list[Operand], at: int, places: list[int]) -> tuple[Operand, ...]:
        """The operands as the form of the row that fits takes them. Fails with what is wrong for the nearest form."""
        furthest, message = -1, ""
        for form in row.forms:
            if len(form) != len(operands):
                continue
            result: list[Operand] = []
            for number, (wanted, operand) in enumerate(zip(form, operands)):
                taken = self._fits(wanted, operand, row)
                if type(taken) is str:
                    if number > furthest:
                        furthest, message = number, taken
                    break
                result.append(taken)
            else:
                return tuple(result)
        forms = f"form{'s' if len(row.forms) > 1 else ''}: {row}"
        if furthest < 0:
            counts = " or ".join(str(n) for n in sorted({len(form) for form in row.forms}))
            self.fail(f"{row.opcode} takes {counts} operands, found {len(operands)}", at, forms)
        self.fail(f"operand {furthest + 1} of {row.opcode} {message}", places[furthest], forms)

    def _fits(self, form: Form, operand: Operand, row: Row) -> Any:
        """The operand as the form takes it, or a text that says why it does not fit."""
        role = form.role
        if form.after_sink:
            if type(operand) is not Pair or type(operand.first) not in (Sink, Reg):
                return f"must be two destinations, as in _|%p, found {_describe(operand)}"
            second = self._fits(Form(role, form.cls), operand.second, row)
            return second if type(second) is str else Pair(operand.first, second)
        if role in ("d", "s", "r", "io"):
            if form.count:
                return self._fits_vector(form, operand)
            if type(operand) is Reg:
                cls = self.entry.registers[operand.name]
                return operand if cls == form.cls else f"must be of class {form.cls}, but {operand.name} is {cls}"
            if type(operand) is Imm and role == "s":
                return _immediate(operand, row)
            wanted = {"d": "a register to write", "s": "a register or a number"}.get(role, "a register")
            return f"must be {wanted}, found {_describe(operand)}"
        if role == "addr":
            return self._fits_address(form, operand)
        if role == "tma":
            if type(operand) is not TensorAddr or len(operand.coords) != form.count:
                return f"must be a tensor address with {form.count} coordinates, found {_describe(operand)}"
            return operand
        expected, noun = _PLAIN[role]
        return operand if type(operand) is expected else f"must be {noun}, found {_describe(operand)}"

    def _fits_vector(self, form: Form, operand: Operand) -> Any:
        if type(operand) is not Vec or len(operand.items) != form.count:
            return f"must be {form.count} registers in braces, found {_describe(operand)}"
        registers = self.entry.registers
        for item in operand.items:
            if type(item) is not Reg:
                if form.role == "s" and type(item) is Imm:
                    continue
                return f"must hold registers only, found {_describe(item)}"
            if registers[item.name] != form.cls:
                return f"must hold registers of class {form.cls}, but {item.name} is {registers[item.name]}"
        return operand

    def _fits_address(self, form: Form, operand: Operand) -> Any:
        if type(operand) is not Addr:
            return f"must be an address in brackets, found {_describe(operand)}"
        if type(operand.base) is Symbol:
            space = "param" if operand.base.name in self.params else "shared"
            fits = form.cls == space or space == "shared" and form.cls == "cluster"
            return operand if fits else f"is an address in {form.cls} memory, but {operand.base.name} lies in {space}"
        if type(operand.base) is not Reg:
            return operand
        cls = self.entry.registers[operand.base.name]
        wide = form.cls in ("global", "generic", "param")
        if cls == "b64" or cls == "b32" and not wide:
            return operand
        return f"needs a {'b64' if wide else 'b32'} register as its base, but {operand.base.name} is {cls}"


_PLAIN: dict[str, tuple[type, str]] = {
    "imm": (Imm, "a number"),
    "sym": (Symbol, "a variable"),
    "special": (Special, "a special register"),
    "sink": (Sink, "the sink _"),
    "label": (Label, "a label"),
}


def _unique(name: str, taken: Iterable[str]) -> str:
    """The name itself, or with a number where an inner scope declares it again."""
    candidate, number = name, 1
    while candidate in taken:
        number += 1
        candidate = f"{name}__{number}"
    return candidate


def _integer(text: str) -> int:
    """A PTX integer: decimal, 0x…, 0b… or octal with a leading zero; `U` may follow (PTX ISA 9.0 §4.5.1)."""
    digits = text.rstrip("U")
    if len(digits) > 1 and digits[0] == "0" and digits.isdigit():
        return int(digits, 8)
    return int(digits, 0)


def _float(text: str) -> Imm:
    """`0f…` and `0d…` are bit patterns; a decimal number is a double until an f32 operand takes it."""
    prefix = text[:2].lower()
    if prefix in ("0f", "0d"):
        return Imm(int(text[2:], 16), "f32" if prefix == "0f" else "f64")
    return Imm(struct.unpack("<Q", struct.pack("<d", float(text)))[0], "f64")


def _immediate(imm: Imm, row: Row) -> Any:
    """A float literal takes the width of the instruction's type."""
    type_ = row.args.get("type", "f32" if row.meaning == "createpolicy" else "")
    if imm.kind == "f64" and CLASS_OF_TYPE.get(type_) == "b32":
        value = struct.unpack("<d", struct.pack("<Q", imm.bits))[0]
        try:
            return Imm(struct.unpack("<I", struct.pack("<f", value))[0], "f32")
        except OverflowError:
            return f"{value} does not fit in an f32"
    return imm


def _describe(operand: Operand) -> str:
    noun = {Reg: "register", Special: "special register", Imm: "number", Symbol: "variable", Addr: "address"}
    noun |= {TensorAddr: "tensor address", Vec: "list", Label: "name", Pair: "pair", Sink: "sink"}
    text = _PRINT[type(operand)](operand)
    if type(operand) is Label:
        text = text[1:]
    if type(operand) is Vec:
        return f"a list of {len(operand.items)}"
    return f"the {noun[type(operand)]} {text}"
