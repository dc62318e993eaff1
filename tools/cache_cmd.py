"""tesela cache: what the disk cache holds, and how to empty it.

    tesela cache list                        # the newest use first
    tesela cache list --kind tuning
    tesela cache show 3fa9                   # the one entry whose key begins so: its JSON, or the table of a tuning
    tesela cache show 3fa9 --part ptx        # a binary part of it
    tesela cache clear                       # everything; or --kind code

The folder is TESELA_CACHE_DIR, or `tesela` in the user's folder for caches.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TextIO

from ..dialects.diagnostics import TeselaError
from ..runtime.autotune import Tuning
from ..runtime.cache import KINDS, Cache, Listed, get_cache

SHOWN_KEY = 12
"""How much of a key `list` shows."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="the entries, the one used latest first")
    listing.add_argument("--kind", choices=KINDS, help="of this kind only")
    show = actions.add_parser("show", help="what an entry holds")
    show.add_argument("key", help="the beginning of its key")
    show.add_argument("--part", metavar="NAME", help="write a binary part to standard output: ptx, cubin")
    clear = actions.add_parser("clear", help="remove entries")
    clear.add_argument("--kind", choices=KINDS, help="of this kind only")


def run(arguments: argparse.Namespace, stdout: TextIO, stderr: TextIO) -> int:
    """Do it; returns the exit status. Raises TeselaError where the cache is turned off, and for a key of no entry or of several."""
    cache = get_cache()
    if cache is None:
        raise TeselaError.at(None, "the cache is turned off", "unset TESELA_CACHE")
    if arguments.action == "list":
        entries = [entry for entry in cache.entries() if arguments.kind in (None, entry.kind)]
        stdout.write(describe(cache, entries))
    elif arguments.action == "show":
        show(cache, arguments.key, arguments.part, stdout)
    else:
        count = cache.clear(KINDS if arguments.kind is None else (arguments.kind,))
        stdout.write(f"{count} {'entry' if count == 1 else 'entries'} removed from {cache.folder}\n")
    return 0


def describe(cache: Cache, entries: list[Listed]) -> str:
    """A line for each entry, and a sum."""
    lines = []
    for listed in entries:
        entry = cache.peek(listed.kind, listed.key)
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(listed.used))
        title = "(damaged)" if entry is None else entry.title
        lines.append(f"{listed.kind:8} {listed.key[:SHOWN_KEY]} {listed.nbytes / 1024:8.1f} KiB  {used}  {title}\n")
    total = sum(listed.nbytes for listed in entries)
    return "".join(lines) + f"{len(entries)} entries, {total / 2**20:.1f} of {cache.limit / 2**20:.0f} MiB, in {cache.folder}\n"


def show(cache: Cache, prefix: str, part: str | None, stdout: TextIO) -> None:
    """Write an entry's JSON, or one of its parts, as text or (a cubin) as bytes."""
    found = [entry for entry in cache.entries() if entry.key.startswith(prefix)]
    if len(found) != 1:
        held = "no entry has a key that begins" if not found else f"{len(found)} entries have keys that begin"
        raise TeselaError.at(None, f"{held} with '{prefix}'", "tesela cache list shows keys")
    entry = cache.peek(found[0].kind, found[0].key)
    if entry is None:
        raise TeselaError.at(None, f"'{found[0].path}' is damaged", "it is made anew when it is next asked for")
    if part is None and found[0].kind == "tuning":
        stdout.write(Tuning.from_json(entry.info).table())
    elif part is None:
        sizes = {name: f"{len(data)} bytes" for name, data in entry.parts.items()}
        stdout.write(json.dumps({"kind": found[0].kind, "key": found[0].key, "title": entry.title, **sizes, "info": entry.info}, indent=2) + "\n")
    elif part not in entry.parts:
        raise TeselaError.at(None, f"the entry has no part '{part}'", f"it has: {', '.join(entry.parts) or 'none'}")
    elif stdout is sys.stdout:
        sys.stdout.buffer.write(entry.parts[part])
    else:
        stdout.write(entry.parts[part].decode(errors="backslashreplace"))
