"""The command-line tools in process: options, exit statuses, expected diagnostics, and never a traceback."""

from __future__ import annotations

import io
import sys
import types
from pathlib import Path

import pytest

from tesela import __version__
from tesela.passes import PASSES
from tesela.tools import cli, opt

GOOD = """func.func @f(%a: i32) -> i32 {
  %0 = arith.addi %a, %a : i32
  %1 = arith.addi %a, %a : i32
  func.return %1 : i32
}
"""
BAD = "func.func @f(%a: i32) -> i32 {\n  func.return %b : i32\n}\n"


def run(*argv: str, stdin: str = "", main=opt.main) -> tuple[int, str, str]:
    stdout, stderr = io.StringIO(), io.StringIO()
    status = main(list(argv), io.StringIO(stdin), stdout, stderr)
    assert "Traceback" not in stderr.getvalue()
    return status, stdout.getvalue(), stderr.getvalue()


def test_reads_standard_input_and_prints() -> None:
    status, out, err = run("-p", "cse,dce", stdin=GOOD)
    assert (status, err) == (0, "")
    assert out.count("arith.addi") == 1
    assert run(stdin=out)[1] == out


def test_output_file(tmp_path: Path) -> None:
    source, target = tmp_path / "in.mlir", tmp_path / "out.mlir"
    source.write_text(GOOD)
    assert run(str(source), "-o", str(target)) == (0, "", "")
    assert target.read_text() == run(str(source))[1]
    status, _, err = run(str(source), "-o", str(tmp_path / "no" / "out.mlir"))
    assert status == 1 and err.startswith("error: cannot write '") and err.endswith("No such file or directory\n")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert run(str(tmp_path / "no.mlir")) == (
        1,
        "",
        f"error: cannot read '{tmp_path / 'no.mlir'}': No such file or directory\n",
    )
    assert run(str(tmp_path))[2] == f"error: cannot read '{tmp_path}': Is a directory\n"
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    assert run(str(tmp_path / "binary"))[2] == f"error: cannot read '{tmp_path / 'binary'}': it is not UTF-8 text\n"


def test_errors_show_the_line_and_a_caret() -> None:
    status, out, err = run(stdin=BAD)
    assert (status, out) == (1, "")
    assert err == "<stdin>:2:15: error: use of undefined value %b\n    func.return %b : i32\n                ^\n"


def test_wrong_pipelines_and_targets() -> None:
    status, _, err = run("-p", "cse,foo", stdin=GOOD)
    assert status == 1 and err.startswith("<pipeline>:1:5: error: unknown pass 'foo'\n  cse,foo\n      ^\n")
    status, _, err = run("--target", "sm_90b", stdin=GOOD)
    assert status == 1
    assert err == "error: unknown target 'sm_90b'\n  hint: did you mean sm_90? known targets: sm_80, sm_90, sm_90a\n"
    assert run("--no-such-option")[0] == 2
    assert run("--help")[0] == 0


def test_dumps_and_times() -> None:
    status, out, err = run(
        "-p", "cse,dce", "--print-ir-before-all", "--print-ir-after-all", "--time-passes", stdin=GOOD
    )
    assert status == 0
    heads = [line for line in err.splitlines() if line.startswith("// -----//")]
    assert heads == [f"// -----// IR {w} {p} //----- //" for p in ("cse", "dce") for w in ("before", "after")]
    assert [line.split()[0] for line in err.splitlines() if line.endswith(" ms")] == ["cse", "dce", "total"]
    assert "loc(" not in out and 'loc("<stdin>":2:3)' in run("--print-debuginfo", stdin=GOOD)[1]


def test_verification_can_be_left_out() -> None:
    wrong = "func.func @f() -> i32 {\n  func.return\n}\n"
    assert run(stdin=wrong)[0] == 1
    assert run("--no-verify", stdin=wrong)[0] == 0


def test_split_input_keeps_line_numbers_and_goes_on() -> None:
    status, out, err = run("--split-input-file", stdin=GOOD + "// -----\n" + BAD + "// -----\n" + GOOD)
    assert status == 1
    assert err.startswith("<stdin>:8:15: error: use of undefined value %b\n    func.return %b")
    first, second = out.split("// -----\n")
    assert first == second == run(stdin=GOOD)[1]


def test_unregistered_dialects() -> None:
    text = '"foo.bar"() : () -> ()\n'
    assert run(stdin=text)[0] == 1
    assert '"foo.bar"() : () -> ()' in run("--allow-unregistered-dialect", stdin=text)[1]


@pytest.mark.parametrize(
    "comment, problem",
    [
        ("// expected-error {{use of undefined value %b}}", None),
        ("// expected-error {{use of ... value %b}}", None),
        ("// expected-error {{use of undefined value}}", "unexpected error: use of undefined value %b"),
        ("// expected-error {{other}}", "expected error on line 2 did not come: other"),
        ("// expected-error@-1 {{use of undefined value %b}}", "expected error on line 1 did not come: use"),
        ("// expected-error@unknown {{use}}", "expected error without a place did not come: use"),
        ("// expected-warning {{use of undefined value %b}}", "expected warning on line 2 did not come"),
        ("", "unexpected error: use of undefined value %b"),
        ("// expected-error {{use...}} expected-error {{use...}}", "expected error on line 2 did not come: use..."),
        ("// expected-error {{use...}} expected-hint {{no hint}}", "expected hint on line 2 did not come: no hint"),
        ("// expected-error@here {{use...}}", "'@here' is none of @+N, @-N and @unknown"),
        ("// expected-error use of undefined value", "expected-error is not followed by {{message}}"),
    ],
)
def test_verify_diagnostics(comment: str, problem: str | None) -> None:
    text = BAD.replace(" : i32\n}", f" : i32 {comment}\n}}")
    status, out, err = run("--verify-diagnostics", stdin=text)
    assert out == ""
    if problem is None:
        assert (status, err) == (0, "")
    else:
        assert status == 1 and problem in err


def test_lists_and_descriptions() -> None:
    status, out, _ = run("--list-passes")
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()] == list(PASSES)
    assert "merge equal operations without effects" in out
    assert run("--show", "cse")[1].startswith("cse: merge equal operations")
    assert run("--show", "csee")[2].startswith("error: unknown pass 'csee'\n  hint: did you mean cse")


def broken(*_: object) -> int:
    raise ZeroDivisionError("oops\nmore")


def test_internal_errors_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opt, "read_input", broken)
    monkeypatch.delenv("TESELA_DEBUG", raising=False)
    status, _, err = run(stdin=GOOD)
    assert status == 70
    assert err == "tesela-opt: internal error: ZeroDivisionError: oops (set TESELA_DEBUG=1 for the traceback)\n"
    monkeypatch.setenv("TESELA_DEBUG", "1")
    stderr = io.StringIO()
    assert opt.main([], io.StringIO(GOOD), io.StringIO(), stderr) == 70
    assert "Traceback" in stderr.getvalue()


def test_tesela_subcommands(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("--version", main=cli.main)[:2] == (0, f"tesela {__version__}\n")
    status, out, _ = run("--help", main=cli.main)
    assert status == 0 and all(name in out for name in cli.COMMANDS)
    assert run("nonsense", main=cli.main)[0] == 2
    assert run(main=cli.main)[0] == 2
    assert run("passes", main=cli.main)[1] == opt.list_passes()
    assert run("passes", "cse", main=cli.main)[1] == opt.describe_pass("cse")
    assert run("passes", "nope", main=cli.main)[0] == 1
    command = types.SimpleNamespace(add_arguments=lambda parser: None, run=broken)
    monkeypatch.setitem(sys.modules, "broken_command", command)
    monkeypatch.setitem(cli.COMMANDS, "broken", cli.Command("broken_command", "fails"))
    assert run("broken", main=cli.main)[0] == 70
