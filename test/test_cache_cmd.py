"""tools/cache_cmd.py: what the cache holds, as a user sees it."""

from __future__ import annotations

import io
import json
import re

import pytest

from tesela.runtime.cache import Cache, Entry, digest
from tesela.tools.cli import main

KEYS = [digest(str(i)) for i in range(3)]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TESELA_CACHE", "1")
    monkeypatch.setenv("TESELA_CACHE_DIR", str(tmp_path))
    made = Cache(tmp_path)
    made.store("program", KEYS[0], Entry("gemm(A: bf16[M, K])", {"ir": "abc"}, {}))
    made.store("variant", KEYS[1], Entry("gemm for sm_90a: A aligned to 16", {"plan": {}}, {"ptx": b"ret;\n"}))
    made.store("code", KEYS[2], Entry("gemm for sm_90a", {}, {"cubin": b"\x7fELF\xff"}))
    return made


def tesela(*argv: str) -> tuple[int, str, str]:
    stdout, stderr = io.StringIO(), io.StringIO()
    return main(argv, io.StringIO(), stdout, stderr), stdout.getvalue(), stderr.getvalue()


def test_list(cache):
    cache.path("code", KEYS[2]).write_bytes(b"nonsense")
    status, text, _ = tesela("cache", "list")
    lines = text.splitlines()
    assert status == 0 and len(lines) == 4
    for kind, key, title in (("program", KEYS[0], "gemm(A: bf16[M, K])"), ("variant", KEYS[1], "gemm for sm_90a: A aligned to 16"), ("code", KEYS[2], "(damaged)")):
        (line,) = [line for line in lines if key[:12] in line]
        assert re.fullmatch(rf"{kind} +{key[:12]} +[\d.]+ KiB  \d{{4}}-\d\d-\d\d \d\d:\d\d  {re.escape(title)}", line)
    assert lines[-1] == f"3 entries, 0.0 of 1024 MiB, in {cache.folder}"
    assert tesela("cache", "list", "--kind", "program")[1].count("\n") == 2


def test_show(cache):
    found = json.loads(tesela("cache", "show", KEYS[1][:6])[1])
    assert found == {"kind": "variant", "key": KEYS[1], "title": "gemm for sm_90a: A aligned to 16", "ptx": "5 bytes", "info": {"plan": {}}}
    assert tesela("cache", "show", KEYS[1], "--part", "ptx")[1] == "ret;\n"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("show", "zz"), "error: no entry has a key that begins with 'zz'\n  hint: tesela cache list shows keys\n"),
        (("show", ""), "error: 3 entries have keys that begin with ''\n  hint: tesela cache list shows keys\n"),
        (("show", KEYS[1], "--part", "cubin"), "error: the entry has no part 'cubin'\n  hint: it has: ptx\n"),
    ],
)
def test_wrong_words(cache, argv, message):
    assert tesela("cache", *argv) == (1, "", message)


def test_clear(cache):
    assert tesela("cache", "clear", "--kind", "code")[1] == f"1 entry removed from {cache.folder}\n"
    assert [entry.kind for entry in cache.entries() if entry.kind == "code"] == []
    assert tesela("cache", "clear")[1] == f"2 entries removed from {cache.folder}\n"


def test_without_a_cache(monkeypatch):
    monkeypatch.setenv("TESELA_CACHE", "0")
    assert tesela("cache", "list") == (1, "", "error: the cache is turned off\n  hint: unset TESELA_CACHE\n")
