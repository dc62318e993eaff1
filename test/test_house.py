"""The rules of the house: layers, the package list, docstrings, doctests, tables that agree with the tree, links."""

from __future__ import annotations

import ast
import doctest
import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("dialects", "passes", "lowering", "runtime", "frontend", "kernels", "tools")
"""Imports point left only; `simulator` stands beside them."""
MAX_LINES = 900


@lru_cache(maxsize=1)
def tracked_files() -> tuple[Path, ...]:
    """The files of the repository: what git tracks or would track."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return tuple(path for name in sorted(listed.stdout.splitlines()) if (path := ROOT / name).is_file())


def package_modules() -> Iterator[Path]:
    """The modules of the import package."""
    for path in tracked_files():
        top = path.relative_to(ROOT).parts[0]
        if path.suffix == ".py" and (top in (*LAYERS, "simulator") or path.parent == ROOT) and top != "typecheck":
            yield path


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("tesela", *(parts[:-1] if parts[-1] == "__init__" else parts)))


def imported_modules(path: Path) -> Iterator[tuple[str, int]]:
    """(absolute name, line) of all that a module imports, also inside functions."""
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            name = ".".join([*base, *((node.module or "").split(".") if node.module else [])])
            for alias in node.names:
                yield f"{name}.{alias.name}", node.lineno


def named_modules(path: Path) -> Iterator[tuple[str, int]]:
    """(absolute name, line) of the modules that strings of a module name, as lazy tables do."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if match := re.fullmatch(r"(tesela(?:\.\w+)+)(?::\w+)?", node.value):
                yield match[1], node.lineno


def layer_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "tesela" and len(parts) > 1 and parts[1] in (*LAYERS, "simulator") else None


def allowed(importer: str) -> set[str]:
    """The layers that a layer may import from."""
    if importer == "simulator":
        return {"dialects", "simulator"}
    seen = set(LAYERS[: LAYERS.index(importer) + 1])
    return seen | {"simulator"} if LAYERS.index(importer) >= LAYERS.index("runtime") else seen


def test_imports_point_left() -> None:
    wrong = []
    for path in package_modules():
        own = layer_of(module_name(path))
        if own is None:
            continue
        relative = str(path.relative_to(ROOT))
        for name, line in [*imported_modules(path), *named_modules(path)]:
            other = layer_of(name)
            if other is not None and other not in allowed(own):
                wrong.append(f"{relative}:{line}: {own} must not import {name}")
    assert not wrong, "\n".join(wrong)


LAYOUT_MODULES = {
    f"tesela.dialects.{name}" for name in ("layout", "tv_layout", "shared_layout", "linear_layout", "cute", "layout_attrs")
}
"""The layout algebra, and where layouts are attributes."""
TABLE_MODULES = {
    f"tesela.dialects.{path.stem}" for path in (ROOT / "dialects").glob("ptx_*.py") if path.stem.startswith(("ptx_isa", "ptx_rows"))
}
"""The instruction table."""


def test_simulator_knows_no_layout_algebra() -> None:
    """The simulator judges layouts, so it must not compute with the code that made them; nor look into the instruction table, whose rows say which
    operands and layouts an instruction has: its meanings are read from the ISA a second time."""
    assert len(LAYOUT_MODULES) == sum((ROOT / "dialects" / f"{name.split('.')[-1]}.py").exists() for name in LAYOUT_MODULES)
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in package_modules()
        if layer_of(module_name(path)) == "simulator"
        for name, line in [*imported_modules(path), *named_modules(path)]
        if any(name == other or name.startswith(f"{other}.") for other in LAYOUT_MODULES | TABLE_MODULES)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_machine_runs_without_the_compiler() -> None:
    """Running, judging and profiling a program that is data loads no module of the layouts, of the table, or of any layer but `dialects`: not by way
    of others either. (The block interpreter, which runs tile programs, loads the dialects that these are written in.)"""
    code = """
import sys
from tesela.dialects.ptx_program import Entry, Instr, Program
from tesela.simulator import judge, launch, profile
program = Program((8, 0), "sm_80", entries=[Entry("k", body=[Instr("ret")])])
assert not judge(program)
launch(program, observer=profile.Profile())
print(*sorted(name for name in sys.modules if name.startswith("tesela.")))
"""
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    wrong = [name for name in loaded if name in LAYOUT_MODULES | TABLE_MODULES or layer_of(name) not in ("dialects", "simulator", None)]
    assert not wrong, wrong
    assert {"tesela.simulator.races", "tesela.simulator.matrix_ops", "tesela.simulator.tensor_copies"} <= set(loaded)


def test_no_stray_packages_of_xdsl() -> None:
    """The xdsl wheel also installs top-level packages with common names; nothing may import them by accident."""
    stray = {"tests", "docs", "benchmarks", "scripts", "typings"}
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in package_modules()
        for name, line in imported_modules(path)
        if name.split(".")[0] in stray
    ]
    assert not wrong, "\n".join(wrong)


def test_imports_inside_the_package_are_relative() -> None:
    """But for `kernels/`, which is written as its users write: `import tesela`."""
    wrong = []
    for path in package_modules():
        if layer_of(module_name(path)) == "kernels":
            continue  # kernels are written as a user writes them: import tesela
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            wrong += [f"{path.relative_to(ROOT)}:{node.lineno}: {n}" for n in names if n.split(".")[0] == "tesela"]
    assert not wrong, "\n".join(wrong)


def test_light_modules_do_not_import_xdsl() -> None:
    """A warm start of the runtime, and listing passes or subcommands, must not pay for xDSL."""
    light = [
        "tesela",
        "tesela.dialects.diagnostics",
        "tesela.dialects.target",
        "tesela.passes",
        "tesela.passes.base",
        "tesela.tools.cli",
        "tesela.tools.opt",
        "tesela.kernels.attention",
    ]
    code = f"import sys\nfor m in {light}:\n    __import__(m)\n    assert 'xdsl' not in sys.modules, m"
    environment = {"PYTHONPATH": str(ROOT / "tools" / "typecheck")}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_package_list_agrees_with_the_tree() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    found = {module_name(path) for path in package_modules() if path.name == "__init__.py"}
    assert set(listed) == found
    folders = {path.parent for path in package_modules()}
    assert not [f for f in folders if not (f / "__init__.py").exists()]


def test_every_file_says_its_purpose_first() -> None:
    wrong = []
    for path in tracked_files():
        if path.suffix != ".py":
            continue
        text = path.read_text()
        tree = ast.parse(text)
        if not tree.body and path.name == "__init__.py":
            continue
        if not ast.get_docstring(tree) or tree.body[0].lineno != 1:
            wrong.append(f"{path.relative_to(ROOT)}: no docstring on the first line")
    assert not wrong, "\n".join(wrong)


def test_files_are_not_too_long() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {lines} lines, more than {MAX_LINES}: split it by idea"
        for path in tracked_files()
        if path.suffix == ".py" and (lines := path.read_text().count("\n")) > MAX_LINES
    ]
    assert not wrong, "\n".join(wrong)


def test_doctests() -> None:
    failures = []
    for path in package_modules():
        if ">>> " in path.read_text():
            module = importlib.import_module(module_name(path))
            result = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
            assert result.attempted, f"{path}: the doctests were not found"
            if result.failed:
                failures.append(f"{path.relative_to(ROOT)}: {result.failed} of {result.attempted} doctests fail")
    assert not failures, "\n".join(failures)


def test_pass_table() -> None:
    """Every row names a pass of that name with options that have defaults, and every pass is run by some IR test."""
    import tesela.lowering  # noqa: F401 - adds its passes to the table
    from tesela.passes import PASSES, get_pass, pass_options
    from tesela.passes.base import Pass

    run_lines = "\n".join(
        line
        for path in (ROOT / "test" / "ir").rglob("*.mlir")
        for line in path.read_text().split("\n")
        if "RUN:" in line
    )
    for name, entry in PASSES.items():
        pass_class = get_pass(name)
        assert issubclass(pass_class, Pass) and pass_class.name == name
        assert pass_class.__doc__ and entry.summary
        pass_options(pass_class)
        assert re.search(rf"(?<![\w-]){name}(?![\w-])", run_lines), f"no RUN line of test/ir runs the pass {name}"


def test_every_pass_class_is_in_the_table() -> None:
    import tesela.lowering  # noqa: F401 - adds its passes to the table
    from tesela.passes import PASSES

    declared = set()
    for path in package_modules():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and any(isinstance(b, ast.Name) and b.id == "Pass" for b in node.bases):
                declared.add(f"{module_name(path)}:{node.name}")
    assert declared == {entry.target for entry in PASSES.values()}


def test_command_table() -> None:
    from tesela.tools.cli import COMMANDS

    for name, command in COMMANDS.items():
        module = importlib.import_module(command.module)
        assert callable(module.add_arguments) and callable(module.run), name
        assert command.summary


def test_every_op_is_in_some_ir_test() -> None:
    """Every operation of our dialects stands in a test file that prints it and reads it back."""
    from tesela.dialects import DIALECTS

    texts = "\n".join(
        path.read_text() for folder in ("test/ir", "examples") for path in sorted((ROOT / folder).rglob("*.mlir"))
    )
    missing = []
    for target in DIALECTS.values():
        module, attribute = target.split(":")
        if module.startswith("tesela."):
            dialect = getattr(importlib.import_module(module), attribute)
            missing += [
                op.name for op in dialect.operations if not re.search(rf"(?<![\w.]){re.escape(op.name)}\b", texts)
            ]
    assert not missing, f"no IR test has: {', '.join(missing)}"


def test_no_unfinished_business() -> None:
    marks = re.compile("|".join(["TO" + "DO", "FIX" + "ME", "X" + "XX", "^" + "<" * 7, "^" + ">" * 7]))
    wrong = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked_files()
        if path.suffix in (".py", ".md", ".mlir", ".toml")
        for number, line in enumerate(path.read_text().split("\n"), 1)
        if marks.search(line)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_project_speaks_of_itself_only() -> None:
    """Nothing refers to one machine's folders, to documents that are not in the tree, or to who asked for what."""
    words = re.compile(r"(?<![\w.])/(?:work|home|root|Users)/\w|\bissue #?\d|\bthe (?:lead|brief)\b|\bshared/ptx\b")
    documents = {path.name for path in tracked_files() if path.suffix == ".md"}
    wrong = []
    for path in tracked_files():
        if path == Path(__file__) or path.suffix not in (".py", ".md", ".mlir", ".ptx", ".toml", ".cfg", ".cu", ""):
            continue
        for number, line in enumerate(path.read_text(errors="replace").split("\n"), 1):
            found = [match[0] for match in words.finditer(line)]
            found += [match[0] for match in re.finditer(r"\b[A-Z_]+\.md\b", line) if match[0] not in documents]
            paths = re.finditer(r"(?<![\w/])docs/[\w/-]+\.md\b", line)
            found += [match[0] for match in paths if not (ROOT / match[0]).exists()]
            wrong += [f"{path.relative_to(ROOT)}:{number}: {word}" for word in found]
    assert not wrong, "\n".join(wrong)


def test_paths_in_documents() -> None:
    """A path in backquotes that starts with one of our folders is there; `<name>` stands for what the reader chooses."""
    folders = "|".join(sorted(path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")))
    wrong = [
        f"{path.relative_to(ROOT)}: {found}"
        for path in tracked_files()
        if path.suffix == ".md"
        for found in re.findall(rf"`((?:{folders})/[\w./-]*)`", path.read_text())
        if not (ROOT / found).exists()
    ]
    assert not wrong, "\n".join(wrong)


def test_decisions_are_numbered() -> None:
    """One number for each page, without gaps, in its name and in its title."""
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1)), [page.name for page in pages]
    for number, page in enumerate(pages, 1):
        assert page.read_text().startswith(f"# {number}. "), f"{page.name}: the title must begin with '# {number}. '"


def test_links_in_documents() -> None:
    wrong = []
    for path in tracked_files():
        if path.suffix == ".md":
            for target in re.findall(r"\]\(([^)\s#]+)(?:#[^)]*)?\)", path.read_text()):
                if not re.match(r"[a-z]+:", target) and not (path.parent / target).exists():
                    wrong.append(f"{path.relative_to(ROOT)}: {target}")
    assert not wrong, "\n".join(wrong)


def test_the_test_script_has_its_own_help() -> None:
    """It needs no environment and starts nothing."""
    done = subprocess.run([ROOT / "tools" / "test", "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("usage: tools/test ") and "TESELA_TEST_WORKERS" in done.stdout
