"""PTX text to machine code, and what the assembler says about it as diagnostics.

Three assemblers, tried in this order (`find_assembler`): `ptxas` of the `nvidia-cuda-nvcc` wheel, which is newer than most drivers
and needs no GPU; the driver's own just-in-time compiler, where there is a driver; `ptxas` on PATH. The environment variable
TESELA_PTXAS names an executable that comes before all of them. A just-in-time compiler has no cubin to give: its `Assembled` holds
the PTX text, and `driver.load_module` compiles it while loading.

What ptxas prints becomes diagnostics. An error names a line of the PTX text; the nearest `.loc` before it says which source line that
came from, so the diagnostic stands there and carries the PTX line as a note. Two things that ptxas merely mentions are
warnings here, and errors under `strict`: a serialised `wgmma` (C7510 … C7520) and registers spilled to local memory.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Literal

from ..dialects.diagnostics import Diagnostic, Location, TeselaError

PTX_FILE = "<ptx>"
"""The file name of diagnostics that stand in the PTX text itself."""

PTXAS_VARIABLE = "TESELA_PTXAS"
TIMEOUT_SECONDS = 600

WHEEL = "nvidia-cuda-nvcc"

Kind = Literal["environment", "wheel", "driver", "path"]


@dataclass(frozen=True, slots=True)
class Assembler:
    """One way to assemble. `path`: the ptxas executable; empty for the driver's compiler."""

    kind: Kind
    path: str = ""

    def version(self) -> str:
        """'13.5.37' of a ptxas; for the driver 'driver 13.0', the newest CUDA version that it supports."""
        if self.kind == "driver":
            from . import driver

            return "driver {}.{}".format(*driver.driver_version())
        return _ptxas_version(self.path)

    def identity(self) -> str:
        """What tells ptxas executables apart without starting them: path, size, time of modification."""
        status = os.stat(self.path)
        return f"{self.path} {status.st_size} {status.st_mtime_ns}"


@dataclass(frozen=True, slots=True)
class Resources:
    """What one kernel takes, as the assembler reports it. Bytes, but for `registers` (per thread) and `barriers`."""

    registers: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    stack: int = 0
    static_shared: int = 0
    barriers: int = 0


@dataclass(slots=True)
class Assembled:
    """The outcome: `image` is a cubin, or (`is_cubin` False) PTX text ended by a zero byte, for the driver to compile."""

    image: bytes
    is_cubin: bool
    assembler: Assembler
    log: str = ""
    messages: list[Diagnostic] = field(default_factory=list)
    resources: dict[str, Resources] = field(default_factory=dict)

    @property
    def cubin(self) -> bytes:
        """The machine code. Raises TeselaError where the driver's compiler was the assembler."""
        if not self.is_cubin:
            raise TeselaError.at(
                None,
                "no ptxas was found, and the driver's own compiler gives no cubin",
                f"pip install 'tesela[ptxas]', or name a ptxas in {PTXAS_VARIABLE}",
            )
        return self.image

    @property
    def registers(self) -> int:
        """Registers per thread, the most of any kernel in the module."""
        return max((entry.registers for entry in self.resources.values()), default=0)

    @property
    def spills(self) -> int:
        """Bytes of spill stores and loads of all kernels."""
        return sum(entry.spill_stores + entry.spill_loads for entry in self.resources.values())


def find_ptxas() -> list[Assembler]:
    """Every ptxas executable there is, first choice first. Raises TeselaError where TESELA_PTXAS names none."""
    return list(_each_ptxas())


def _each_ptxas() -> Iterator[Assembler]:
    """`find_ptxas` one by one, so that nobody looks further than to the one that is wanted."""
    if named := os.environ.get(PTXAS_VARIABLE):
        path = shutil.which(named)
        if path is None:
            raise TeselaError.at(None, f"{PTXAS_VARIABLE} names '{named}', which is no executable file", "unset it, or correct it")
        yield Assembler("environment", path)
    if (path := wheel_executable(WHEEL, "ptxas")) is not None:
        yield Assembler("wheel", path)
    if (path := shutil.which("ptxas")) is not None:
        yield Assembler("path", path)


def find_assembler() -> Assembler:
    """The first of: TESELA_PTXAS, the wheel's ptxas, the driver's compiler (with a GPU), ptxas on PATH. TeselaError if there is none."""
    first = next(_each_ptxas(), None)
    if first is not None and first.kind != "path":
        return first
    from . import driver

    if driver.device_available():
        return Assembler("driver")
    if first is not None:
        return first
    raise TeselaError.at(
        None, "no assembler for PTX was found: no ptxas, and no GPU driver", f"pip install 'tesela[ptxas]', or name a ptxas in {PTXAS_VARIABLE}"
    )


class Ptxas:
    """A ptxas that was started, for a text, or before there is one: to load it takes 10 ms or more, a third of what it takes for a small kernel. Without
    a text it waits for one on its standard input, while the compiler works."""

    def __init__(self, assembler: Assembler, arch: str, ptx: str | None = None, line_info: bool = True, options: Sequence[str] = ()):
        """Raises TeselaError where it cannot be started."""
        import socket  # which no warm start needs

        self.assembler, self.arch = assembler, arch
        self._folder = tempfile.TemporaryDirectory(prefix="tesela-")
        self._output = Path(self._folder.name, "kernel.cubin")
        self._source, self._input = "-", None
        given = None
        if ptx is not None:
            path = Path(self._folder.name, "kernel.ptx")
            path.write_text(ptx, encoding="utf-8")
            self._source = str(path)
        else:
            # Not a pipe: that ends when nobody has it open any more, and a process that another thread forks meanwhile would have.
            self._input, given = socket.socketpair()
        command = [assembler.path, "-v", f"-arch={arch}", *(["-lineinfo"] if line_info else []), *options, self._source, "-o", str(self._output)]
        try:
            standard_input = subprocess.DEVNULL if given is None else given.fileno()
            self._process = subprocess.Popen(command, stdin=standard_input, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        except OSError as error:
            self._folder.cleanup()
            raise TeselaError.at(None, f"{assembler.path} could not be started: {error.strerror}") from None
        finally:
            if given is not None:
                given.close()

    def assemble(self, ptx: str) -> tuple[int, bytes, str]:
        """(exit status, cubin, what it said) of the text. Raises TeselaError where it does not end."""
        try:
            if self._input is not None:
                from socket import SHUT_WR

                self._input.settimeout(TIMEOUT_SECONDS)
                with suppress(ConnectionError):  # it has ended, and said why
                    self._input.sendall(ptx.encode())
                    self._input.shutdown(SHUT_WR)
            said, _ = self._process.communicate(timeout=TIMEOUT_SECONDS)
            image = self._output.read_bytes() if self._process.returncode == 0 and self._output.exists() else b""
            text = said.decode(errors="replace")
            return self._process.returncode, image, text if self._source == "-" else text.replace(self._source, "kernel.ptx")
        except (subprocess.TimeoutExpired, TimeoutError):
            raise TeselaError.at(None, f"{self.assembler.path} did not finish within {TIMEOUT_SECONDS} s") from None
        finally:
            self.close()

    def close(self) -> None:
        """End it; for one that is not needed, too."""
        if self._input is not None:
            self._input.close()
        if self._process.returncode is None:
            self._process.kill()
            self._process.communicate()
        self._folder.cleanup()


_wanted: ContextVar[str | None] = ContextVar("wanted", default=None)


@contextmanager
def assembled_soon(arch: str) -> Iterator[None]:
    """Within it, what is compiled will be assembled at once, for this architecture."""
    token = _wanted.set(arch)
    try:
        yield
    finally:
        _wanted.reset(token)


def started_ahead() -> Ptxas | None:
    """A ptxas for what is being compiled, started now; None unless that is wanted (`assembled_soon`) and can be done."""
    arch = _wanted.get()
    if arch is None or os.name != "posix":
        return None
    assembler = find_assembler()
    return None if assembler.kind == "driver" else Ptxas(assembler, arch)


def assemble(
    ptx: str,
    arch: str | None = None,
    *,
    assembler: Assembler | None = None,
    line_info: bool = True,
    options: Sequence[str] = (),
    strict: bool = False,
    waiting: Ptxas | None = None,
) -> Assembled:
    """Assemble PTX text for the architecture `arch` ('sm_90a'; by default the text's own `.target`).

    `line_info` keeps `.loc` lines for profilers; `options` are passed to ptxas as they are; `waiting`: one that was started ahead, for all of this.
    Raises TeselaError with one diagnostic for each thing ptxas rejects; with `strict` also for serialised wgmma, spilled registers and warnings.
    """
    assembler = assembler or find_assembler()
    if assembler.kind == "driver":
        return Assembled(ptx.encode() + b"\0", False, assembler)
    arch = arch or target_of(ptx)
    status, image, log = (waiting or Ptxas(assembler, arch, ptx, line_info, options)).assemble(ptx)
    assembled = judged(Assembled(image, True, assembler, log, [], read_resources(log)), ptx, strict)
    if not image:
        raise TeselaError(f"ptxas ended with status {status} and wrote no cubin:\n{log.strip()}")
    return assembled


def judged(assembled: Assembled, ptx: str, strict: bool) -> Assembled:
    """The same with the messages that its log holds. Raises TeselaError where one is an error."""
    assembled.messages = read_messages(assembled.log, ptx, strict)
    if errors := [message for message in assembled.messages if message.severity == "error"]:
        raise TeselaError(errors, {PTX_FILE: ptx})
    return assembled


def target_of(ptx: str) -> str:
    """The architecture that a PTX text states, 'sm_90a'; TeselaError where it states none."""
    match = re.search(r"^\s*\.target\s+(\w+)", ptx, re.MULTILINE)
    if match is None:
        raise TeselaError.at(Location(PTX_FILE, 1, 1), "the PTX text has no .target line", "a PTX module begins with .version and .target")
    return match.group(1)


_MESSAGE = re.compile(
    r"^(?:ptxas\s+)?(?P<where>[^;:]*?,\s*line\s+(?P<line>\d+);\s*)?(?P<severity>info|warning|error|fatal)\s*:\s*(?P<text>.*)$"
)
_ADVICE = re.compile(r"\((?P<code>C\d+)\)\s*(?P<text>.*)")
_SPILL = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_ENTRY = re.compile(r"(?:Compiling entry function|Function properties for) '?(\w[\w$]*)'?")
_IN_FUNCTION = re.compile(r"in (?:the )?function '([\w$]+)'")
_LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)")
_KERNEL = re.compile(r"^\s*(?:\.\w+\s+)*\.entry\s+([\w$]+)")
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"')


def read_messages(log: str, ptx: str, strict: bool = False) -> list[Diagnostic]:
    """What an assembler's log holds beyond plain information, as diagnostics; with `strict` warnings are errors."""
    lines = _SourceLines(ptx)
    warning = "error" if strict else "warning"
    messages: list[Diagnostic] = []
    entry = ""
    for text in log.splitlines():
        if match := _ENTRY.search(text):
            entry = match.group(1)
        if (match := _SPILL.search(text)) and (int(match.group(2)) or int(match.group(3))):
            message = f"kernel {entry}: registers are spilled to local memory: {match.group(2)} bytes stored, {match.group(3)} bytes loaded"
            place = next(lines.of_kernel(entry), None)
            messages.append(Diagnostic(warning, message, place, hint="smaller tiles, more warps or fewer stages take fewer registers"))
        match = _MESSAGE.match(text)
        if match is None:
            continue
        severity, message = match.group("severity"), match.group("text").strip()
        if severity == "info":
            if advice := _ADVICE.match(message):
                named = _IN_FUNCTION.search(message)
                dots = list(lines.of_kernel(named.group(1), "wgmma.mma_async")) if named else []
                notes = [Diagnostic("note", "the kernel's wgmma are also of this dot", place) for place in dots[1:]]
                messages.append(Diagnostic(warning, f"ptxas {advice.group('code')}: {advice.group('text')}", dots[0] if dots else None, notes=notes))
        elif severity == "warning":
            messages.append(lines.diagnostic(warning, f"ptxas: {message}", match.group("line")))
        elif "aborted due to errors" not in message:
            messages.append(lines.diagnostic("error", f"ptxas: {message}", match.group("line")))
    return messages


def read_resources(log: str) -> dict[str, Resources]:
    """What each kernel takes, from the log of `ptxas -v` or of the driver's compiler."""
    found: dict[str, dict[str, int]] = {}
    current: dict[str, int] = {}
    for text in log.splitlines():
        if match := _ENTRY.search(text):
            current = found.setdefault(match.group(1), {})
        if match := _SPILL.search(text):
            current.update(zip(("stack", "spill_stores", "spill_loads"), map(int, match.groups())))
        for key, pattern in (
            ("registers", r"Used (\d+) registers"),
            ("barriers", r"used (\d+) barriers"),
            ("static_shared", r"(\d+) bytes smem"),
        ):
            if match := re.search(pattern, text):
                current[key] = int(match.group(1))
    return {name: Resources(**entry) for name, entry in found.items()}


class _SourceLines:
    """PTX lines to places in the sources, through `.file` and `.loc`; the text is read when first needed."""

    def __init__(self, ptx: str):
        self.ptx = ptx

    @cached_property
    def places(self) -> list[tuple[int, Location]]:
        """Each `.loc`: its line, from 1, and the place that it names."""
        texts = self.ptx.split("\n")
        files = {m.group(1): m.group(2) for text in texts if (m := _FILE.match(text))}
        found = []
        for number, text in enumerate(texts, 1):
            if match := _LOC.match(text):
                file, line, column = match.groups()
                found.append((number, Location(files.get(file, "?"), int(line), max(int(column), 1))))
        return found

    def source(self, line: int) -> Location | None:
        """Where PTX line `line` (from 1) came from, by the nearest `.loc` at or before it."""
        index = bisect_right(self.places, line, key=lambda place: place[0]) - 1
        return self.places[index][1] if index >= 0 else None

    def of_kernel(self, kernel: str, instruction: str = "") -> Iterator[Location]:
        """Where a kernel's instructions whose text begins so came from (all of them without a text), each place once, in the order of the PTX."""
        stated = dict(self.places)
        inside, place = False, None
        told: set[Location | None] = {None}
        for number, text in enumerate(self.ptx.split("\n"), 1):
            if match := _KERNEL.match(text):
                inside, place = match.group(1) == kernel, None
            place = stated.get(number, place)
            if inside and place not in told and text.strip().startswith(instruction):
                told.add(place)
                yield place

    def diagnostic(self, severity: Literal["error", "warning"], message: str, line: str | None) -> Diagnostic:
        if line is None:
            return Diagnostic(severity, message)
        texts = self.ptx.split("\n")
        number = int(line)
        text = texts[number - 1] if 0 < number <= len(texts) else ""
        place = Location(PTX_FILE, number, len(text) - len(text.lstrip()) + 1)
        source = self.source(number)
        if source is None:
            return Diagnostic(severity, message, place)
        return Diagnostic(severity, message, source, notes=[Diagnostic("note", "in the PTX text", place)])


@cache
def wheel_executable(distribution: str, name: str) -> str | None:
    """The path of an executable that a wheel of NVIDIA's installed: nvidia/cu13/bin/NAME in current wheels, wherever its RECORD says
    in others. None where there is none."""
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for path in sorted(Path(folder).glob(f"cu*/bin/{name}"), reverse=True):
            if os.access(path, os.X_OK):
                return str(path)
    from importlib import metadata  # slow to import, and rarely needed

    try:
        files = metadata.files(distribution) or ()
    except metadata.PackageNotFoundError:
        return None
    for file in files:
        path = str(file.locate())
        if file.name in (name, f"{name}.exe") and os.access(path, os.X_OK):
            return path
    return None


@cache
def _ptxas_version(path: str) -> str:
    try:
        text = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    match = re.search(r"\bV(\d+(?:\.\d+)*)", text)
    return match.group(1) if match else "unknown"
