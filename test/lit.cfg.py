"""lit's configuration: `lit test/` runs the IR tests as processes; pytest runs the same files in one process."""

import os
import sys
from pathlib import Path

import lit.formats

root = Path(__file__).resolve().parent.parent
config.name = "tesela"  # noqa: F821 - lit defines `config`
config.test_format = lit.formats.ShTest(execute_external=False)  # noqa: F821
config.suffixes = [".mlir", ".ptx"]  # noqa: F821
config.excludes = ["Inputs"]  # noqa: F821
config.test_source_root = str(root / "test" / "ir")  # noqa: F821
config.test_exec_root = str(root / "build" / "lit")  # noqa: F821
config.environment["PYTHONPATH"] = str(root / "tools" / "typecheck")  # noqa: F821
config.environment["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]  # noqa: F821
program = r"(?<![\w/.-]){}(?![\w/.-])"
config.substitutions += [  # noqa: F821
    (program.format("tesela-opt"), f"{sys.executable} -m tesela.tools.opt"),
    (program.format("tesela"), f"{sys.executable} -m tesela.tools.cli"),
    (program.format("FileCheck"), f"{sys.executable} -m filecheck"),
]
