"""The disk cache: what was compiled before, found again by what it was compiled from.

Six kinds of entries, each by a key that is a digest of all that it depends on:

| kind | key: a digest of | holds |
|---|---|---|
| `program` | the sources that a kernel is made from (compile.py; for Python frontend/fingerprint.py) | contract, digest of its tile IR |
| `variant` | that IR, the facts, the target, pinned choices | launch plan, PTX, what the compiler said |
| `work` | the sources of a kernel's programs, the facts, the target | the counts that one of them is chosen by (dialects/work.py) |
| `code` | the PTX, the architecture, the assembler | cubin, what the assembler said |
| `tuning` | a kernel, its space, the device, the class of shapes | what was measured |
| `sources` | names, sizes and times of the compiler's own files | the digest of their contents |

`program`, `work` and `variant` keys include `compiler_fingerprint()`, a digest of the compiler's own sources and of the versions it runs on, so that
no entry outlives the compiler that made it. A warm start reads a program, a variant and a code entry, and imports neither xDSL nor a solver.

**An entry is one file**, `FOLDER/KIND/ab/abcdef…`: a line with the SHA-256 of the rest, a line of JSON, then binary parts whose lengths the JSON
states. Nothing of it is executed but the cubin. It is written to a temporary file and renamed, so that a reader sees all of it or
nothing; a machine that loses power may still leave a damaged file, which the digest tells (so nothing waits for the disk), and
which is then as good as none. A file that cannot be written (a full disk, a read-only folder) is a warning, once; the program goes on without.

**Who compiles?** `fetch` takes a lock file before it makes what is missing, so that of many threads and processes one does and the others
find it. The lock is the operating system's (`flock`): it ends with the process that holds it. There are 256 lock files of each kind, by the
key's first byte; whoever waits too long compiles for itself. Locks are taken in one order, tuning, program, variant, code, and those of one
kind never inside each other.

**How much?** Above the limit the entries that were used longest ago go. A read sets its file's modification time, which is what "used" means.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar

from ..dialects.diagnostics import TeselaError

try:
    import fcntl
except ImportError:  # Windows: entries are still whole, but two processes may make the same one
    fcntl = None

log = logging.getLogger("tesela")

FOLDER_VARIABLE = "TESELA_CACHE_DIR"
SWITCH_VARIABLE = "TESELA_CACHE"
"""'0' turns the cache off."""
LIMIT_VARIABLE = "TESELA_CACHE_MB"

KINDS = ("program", "work", "variant", "code", "tuning", "sources")
DEFAULT_LIMIT = 1024 * 2**20
KEPT_SHARE = 0.8
"""How much of the limit is left when entries are evicted."""
LOCK_SECONDS = 300.0
STALE_SECONDS = 3600.0
"""Temporary files older than this were left by a process that was killed."""
MAGIC = b"tesela cache 1 "

T = TypeVar("T")


@dataclass(frozen=True)
class Entry:
    """What is stored under a key. `title`: one line for readers; `info`: JSON; `parts`: binary data by name."""

    title: str
    info: Any
    parts: Mapping[str, bytes]


@dataclass(frozen=True)
class Listed:
    """An entry as `entries` finds it. `used`: seconds since the epoch."""

    kind: str
    key: str
    path: Path
    nbytes: int
    used: float


def digest(*parts: str | bytes) -> str:
    """SHA-256 of some texts, as hexadecimal; how they are split matters.

    >>> digest("ab", "c") == digest("a", "bc")
    False
    """
    state = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(b"%d:" % len(data))
        state.update(data)
    return state.hexdigest()


class Cache:
    """A cache in a folder, which need not exist yet, of at most `limit` bytes."""

    def __init__(self, folder: Path, limit: int = DEFAULT_LIMIT):
        self.folder = folder
        self.limit = limit
        self._total: int | None = None
        self._warned = False

    def path(self, kind: str, key: str) -> Path:
        return self.folder / kind / key[:2] / key

    def load(self, kind: str, key: str) -> Entry | None:
        """The entry of a key, or None. One that is damaged is removed, with a warning."""
        path = self.path(kind, key)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn(f"cannot read '{path}': {error.strerror}")
            return None
        with contextlib.suppress(OSError):  # a folder that is read only, or the entry was evicted meanwhile
            os.utime(path)
        entry = read_entry(data, kind, key)
        if entry is None:
            self.discard(kind, key)
        return entry

    def peek(self, kind: str, key: str) -> Entry | None:
        """The same for a reader who is only curious: nothing is marked as used, or removed."""
        try:
            return read_entry(self.path(kind, key).read_bytes(), kind, key)
        except OSError:
            return None

    def store(self, kind: str, key: str, entry: Entry) -> bool:
        """Write an entry; False, and a warning once, where that is not possible."""
        path = self.path(kind, key)
        data = write_entry(entry, kind, key)
        temporary = ""
        try:
            self._make_folder(path.parent)
            handle, temporary = tempfile.mkstemp(prefix=".new-", dir=path.parent)
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(temporary, path)
        except OSError as error:
            if temporary:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
            self._warn(f"cannot write to '{self.folder}': {error.strerror or error}")
            return False
        self._bound(len(data))
        return True

    def discard(self, kind: str, key: str) -> None:
        """Remove an entry that is of no use."""
        path = self.path(kind, key)
        log.warning("the cache's entry '%s' is damaged; it is made anew", path)
        with contextlib.suppress(OSError):
            path.unlink()

    def fetch(self, kind: str, key: str, decode: Callable[[Entry], T], make: Callable[[], T], encode: Callable[[T], Entry | None]) -> T:
        """What is stored under a key, or else what `make` gives, which is then stored (unless `encode` gives None). Of all threads and
        processes that ask at the same time, one makes it. `decode` raises KeyError, TypeError or ValueError for what it cannot read."""
        found = self.find(kind, key, decode)
        if found is not None:
            return found
        with self.lock(kind, key):
            found = self.find(kind, key, decode)
            if found is None:
                found = make()
                entry = encode(found)
                if entry is not None:
                    self.store(kind, key, entry)
            return found

    def find(self, kind: str, key: str, decode: Callable[[Entry], T]) -> T | None:
        """What is stored under a key, or None."""
        entry = self.load(kind, key)
        if entry is None:
            return None
        try:
            return decode(entry)
        except (KeyError, TypeError, ValueError):
            self.discard(kind, key)
            return None

    @contextlib.contextmanager
    def lock(self, kind: str, key: str, timeout: float = LOCK_SECONDS) -> Iterator[None]:
        """Within it, no other thread or process is within it for this key; after `timeout` seconds of waiting, a warning, and no lock."""
        if fcntl is None:
            yield
            return
        folder = self.folder / "locks"
        try:
            self._make_folder(folder)
            handle = os.open(folder / f"{kind}-{key[:2]}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self._warn(f"cannot lock in '{folder}': {error.strerror}")
            yield
            return
        try:
            deadline, pause = time.monotonic() + timeout, 0.001
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        log.warning("another process has been compiling for %.0f s; this one goes on by itself", timeout)
                        break
                except OSError as error:  # a file system without locks
                    self._warn(f"cannot lock in '{folder}': {error.strerror}")
                    break
                time.sleep(pause)
                pause = min(2 * pause, 0.05)
            yield
        finally:
            with contextlib.suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_UN)  # a child process may have a copy of the handle
            os.close(handle)

    def entries(self) -> list[Listed]:
        """All entries, the one used latest first."""
        found = []
        for kind in KINDS:
            for path in (self.folder / kind).glob("??/*"):
                with contextlib.suppress(OSError):  # evicted meanwhile
                    status = path.stat()
                    if not path.name.startswith(".new-"):
                        found.append(Listed(kind, path.name, path, status.st_size, status.st_mtime))
        return sorted(found, key=lambda entry: (-entry.used, entry.kind, entry.key))

    def clear(self, kinds: tuple[str, ...] = KINDS) -> int:
        """Remove all entries of some kinds; how many there were. Raises TeselaError for one that cannot be removed."""
        count = 0
        for entry in self.entries():
            if entry.kind in kinds:
                try:
                    entry.path.unlink(missing_ok=True)
                except OSError as error:
                    raise TeselaError.at(None, f"cannot remove '{entry.path}': {error.strerror}") from None
                count += 1
        self._total = None
        return count

    def _make_folder(self, folder: Path) -> None:
        """Machine code is loaded from here, so that others must not write to it."""
        if not folder.is_dir():
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            inner = self.folder
            for name in folder.relative_to(self.folder).parts:
                inner = inner / name
                inner.mkdir(mode=0o700, exist_ok=True)

    def _bound(self, added: int) -> None:
        """Evict what was used longest ago, if there is too much. The total is counted at the first write, and then again when it would
        be exceeded: other processes write too."""
        if self._total is not None:
            self._total += added
            if self._total <= self.limit:
                return
        entries = self.entries()
        total = sum(entry.nbytes for entry in entries)
        if total > self.limit:
            for entry in reversed(entries):
                if total <= self.limit * KEPT_SHARE:
                    break
                with contextlib.suppress(OSError):
                    entry.path.unlink()
                    total -= entry.nbytes
        self._total = total
        old = time.time() - STALE_SECONDS
        for path in self.folder.glob("*/??/.new-*"):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < old:
                    path.unlink()

    def _warn(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            log.warning("%s; the program goes on without the cache (%s=0 turns it off)", text, SWITCH_VARIABLE)


def write_entry(entry: Entry, kind: str, key: str) -> bytes:
    """The bytes of an entry's file."""
    header = {
        "kind": kind,
        "key": key,
        "title": entry.title,
        "info": entry.info,
        "parts": [[name, len(data)] for name, data in entry.parts.items()],
    }
    body = json.dumps(header).encode() + b"\n" + b"".join(entry.parts.values())
    return MAGIC + hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def read_entry(data: bytes, kind: str, key: str) -> Entry | None:
    """The entry that `write_entry` made the bytes of, for this kind and key; None for anything else."""
    head, _, body = data.partition(b"\n")
    if head != MAGIC + hashlib.sha256(body).hexdigest().encode():
        return None
    line, _, rest = body.partition(b"\n")
    header = json.loads(line)
    if (header["kind"], header["key"]) != (kind, key):
        return None
    parts = {}
    for name, length in header["parts"]:
        parts[name], rest = rest[:length], rest[length:]
    return Entry(header["title"], header["info"], parts)


def get_cache() -> Cache | None:
    """The cache that the environment names now; None where it is turned off. Raises TeselaError for a limit that is no number."""
    if os.environ.get(SWITCH_VARIABLE) == "0":
        return None
    limit = os.environ.get(LIMIT_VARIABLE)
    return _open(default_folder(), limit)


@lru_cache(maxsize=16)
def _open(folder: Path, limit: str | None) -> Cache:
    if limit is None:
        return Cache(folder)
    if not limit.isdigit():
        raise TeselaError.at(None, f"{LIMIT_VARIABLE} is '{limit}', but a number of megabytes is required")
    return Cache(folder, int(limit) * 2**20)


def default_folder() -> Path:
    """TESELA_CACHE_DIR, or `tesela` in the user's folder for caches."""
    if named := os.environ.get(FOLDER_VARIABLE):
        return Path(named)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tesela"


COMPILER_FOLDERS = ("dialects", "passes", "lowering", "frontend", "runtime")
"""Where what decides a kernel's code stands."""


@cache
def compiler_fingerprint() -> str:
    """A digest of the compiler's sources, and of the versions of Python and xDSL. The files are read only if one of them, by name, size and time of
    its last change, is another than before: opening them all takes longer than the rest of a warm start."""
    root = Path(__file__).resolve().parent.parent
    versions = ["python {}.{}".format(*sys.version_info), f"xdsl {_xdsl_version()}"]
    files = sorted(file for folder in COMPILER_FOLDERS for file in _python_files(root / folder))

    def read() -> str:
        parts: list[str | bytes] = [*versions]
        for path, _, _ in files:
            parts += [Path(path).relative_to(root).as_posix(), Path(path).read_bytes()]
        return digest(*parts)

    store = get_cache()
    if store is None:
        return read()
    key = digest(*versions, repr(files))
    return store.fetch("sources", key, lambda entry: str(entry.info["digest"]), read, lambda text: Entry("the compiler's sources", {"digest": text}, {}))


def _python_files(folder: Path) -> Iterator[tuple[str, int, int]]:
    """(path, size, time of the last change) of all Python files in a folder and those inside it."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                state = entry.stat()
                yield entry.path, state.st_size, state.st_mtime_ns
            elif entry.name != "__pycache__" and entry.is_dir():
                yield from _python_files(Path(entry.path))


def _xdsl_version() -> str:
    """xDSL's version as its installation's folder states it; importing it, or importlib.metadata, would take too long."""
    import importlib.util

    spec = importlib.util.find_spec("xdsl")
    if spec is None or spec.origin is None:
        return "none"
    return ", ".join(sorted(path.name for path in Path(spec.origin).parent.parent.glob("xdsl-*.dist-info")))
