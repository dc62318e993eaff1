"""A compiled kernel as a folder, and back: for programs that ship kernels and have no compiler.

    gemm.warmup((8192, 8192), (8192, 8192))      # compile what is to be shipped
    gemm.export("gemm.kernel")
    ...
    gemm = tesela.load("gemm.kernel")            # imports neither xDSL nor the compiler
    C = gemm(A, B)

The folder holds `manifest.json` (the contract; of each variant its facts, launch plan and the SHA-256 of its files) beside PTX and cubins, all
plain, for launchers in other languages too. A call takes the exported variant that assumes most of what holds for its arrays. One that
assumes nothing is always among them, so that every call finds one. Where programs were exported among which calls choose by size (variants.py),
the counts that they choose by are there as well.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..dialects.diagnostics import TeselaError
from ..dialects.launch_plan import LaunchPlan
from ..dialects.target import Target
from ..dialects.work import Work, estimate
from .assemble import Assembled, Assembler, Resources, find_ptxas
from .contract import Contract
from .entries import contract_from_json, contract_to_json, facts_from_json, facts_to_json
from .kernel import Kernel
from .launch import Variant
from .specialize import Facts
from .variants import Choice, Row, best

FORMAT = 2
MANIFEST = "manifest.json"
EXPORTED = Assembler("wheel", "exported")
"""The assembler of a cubin that was loaded."""

log = logging.getLogger("tesela")


def export(
    contract: Contract,
    variants: Sequence[Variant],
    folder: str | os.PathLike[str],
    archs: Sequence[str] = (),
    works: Mapping[int, Work] | None = None,
) -> None:
    """Write a folder. `works`: by the id of a variant the counts that calls choose by, where there is a choice. Each variant's cubin is for its target, and for those of `archs` that run it; without a ptxas there is PTX only.

    Raises TeselaError for one of `archs` that is none or that runs no variant, and where the folder cannot be written, or holds something else.
    """
    _check_archs(archs, [variant.plan.target for variant in variants])
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise TeselaError.at(None, f"'{path}' is a file", "name a folder")
    if path.exists() and not (path / MANIFEST).exists() and any(path.iterdir()):
        raise TeselaError.at(None, f"'{path}' is no exported kernel, and not empty", "name another folder")
    entries = []
    has_ptxas = bool(find_ptxas())
    if not has_ptxas:
        log.warning("%s is exported as PTX only: there is no ptxas (pip install 'tesela[ptxas]')", contract.name)
    files: dict[str, bytes] = {}
    for number, variant in enumerate(variants):
        target = variant.plan.target
        ptx = f"{contract.name}.{number}.ptx"
        files[ptx] = variant.ptx.encode()
        cubins = []
        for arch in (target, *[a for a in archs if a != target and runs_on(target, a)]) if has_ptxas else ():
            assembled = variant.assembled(arch)
            name = f"{contract.name}.{number}.{arch}.cubin"
            files[name] = assembled.cubin
            resources = dataclasses.asdict(assembled.resources.get(variant.plan.name, Resources()))
            cubins.append({"arch": arch, "file": name, "sha256": _sha256(files[name]), "resources": resources})
        entries.append(
            {
                "facts": facts_to_json(variant.facts),
                "plan": variant.plan.to_json(),
                "ptx": {"file": ptx, "sha256": _sha256(files[ptx])},
                "cubins": cubins,
            }
            | _choice(variant, works.get(id(variant)) if works else None)
        )
    manifest = {"format": FORMAT, "contract": contract_to_json(contract), "variants": entries}
    files[MANIFEST] = (json.dumps(manifest | {"sha256": _sha256(canonical(manifest))}, indent=1) + "\n").encode()  # last, so that a folder with one is whole
    try:
        path.mkdir(parents=True, exist_ok=True)
        for old in path.glob(f"{contract.name}.*"):
            old.unlink()
        for name, data in files.items():
            (path / name).write_bytes(data)
    except OSError as error:
        raise TeselaError.at(None, f"cannot write to '{path}': {error.strerror}") from None


def _choice(variant: Variant, work: Work | None) -> dict[str, Any]:
    """What an entry says of a variant among which calls choose."""
    if work is None:
        return {}
    return {"choice": {**dataclasses.asdict(variant.choice), "label": variant.label, "work": work.to_json()}}


def load(folder: str | os.PathLike[str]) -> Kernel:
    """The kernel that `Kernel.export` wrote to a folder. Raises TeselaError for a folder that holds none, and for a damaged one."""
    path = Path(folder)
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
        if manifest["format"] != FORMAT:
            raise TeselaError.at(None, f"'{path}' has format {manifest['format']}, but {FORMAT} is required", "export the kernel again")
        if manifest.pop("sha256") != _sha256(canonical(manifest)):
            raise TeselaError.at(None, f"'{path / MANIFEST}' is damaged: its SHA-256 is not what it states", "export the kernel again")
        contract = contract_from_json(manifest["contract"])
        variants = [_read_variant(path, entry) for entry in manifest["variants"]]
        works = {id(variant): Work.from_json(entry["choice"]["work"]) for variant, entry in zip(variants, manifest["variants"]) if "choice" in entry}
    except OSError as error:
        raise TeselaError.at(None, f"cannot read '{error.filename}': {error.strerror}", "name a folder that Kernel.export wrote") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise TeselaError.at(None, f"'{path / MANIFEST}' is no manifest of a kernel", "export the kernel again") from None
    return Kernel(contract, ExportedVariants(contract, variants, works))


def _read_variant(path: Path, entry: Mapping[str, Any]) -> Variant:
    plan = LaunchPlan.from_json(entry["plan"])
    variant = Variant(facts_from_json(entry["facts"]), plan, _read(path, entry["ptx"]).decode())
    if (chosen := entry.get("choice")) is not None:
        variant.choice, variant.label = Choice(chosen["program"], chosen["parts"]), chosen["label"]
    for cubin in entry["cubins"]:
        resources = {plan.name: Resources(**cubin["resources"])}
        variant.add_code(cubin["arch"], Assembled(_read(path, cubin), True, EXPORTED, resources=resources))
    return variant


def _read(path: Path, entry: Mapping[str, str]) -> bytes:
    """A file that the manifest names. Raises TeselaError for one that is not what it was."""
    name = entry["file"]
    if Path(name).name != name:
        raise TeselaError.at(None, f"'{path / MANIFEST}' names the file '{name}', which is not in the folder", "export the kernel again")
    data = (path / name).read_bytes()
    if _sha256(data) != entry["sha256"]:
        raise TeselaError.at(None, f"'{path / name}' is damaged: its SHA-256 is not what the manifest states", "export the kernel again")
    return data


def _check_archs(archs: Sequence[str], targets: Sequence[str]) -> None:
    if isinstance(archs, str):
        raise TeselaError.at(None, f"archs is a text, {archs!r}, but several architectures are required", f"write archs=({archs!r},)")
    for arch in archs:
        if not isinstance(arch, str) or re.fullmatch(r"sm_\d+[a-z]?", arch) is None:
            raise TeselaError.at(None, f"{arch!r} is no architecture", "write 'sm_89'")
        if not any(runs_on(target, arch) for target in targets):
            made = ", ".join(dict.fromkeys(targets))
            hint = "code for sm_90a runs there alone; compile for sm_80, and code runs on all later ones" if "sm_90a" in targets else "compile for an earlier target"
            raise TeselaError.at(None, f"nothing that is exported runs on {arch}: it is for {made}", hint)


def canonical(manifest: Mapping[str, Any]) -> bytes:
    """A manifest, without its own SHA-256, in one form whatever its layout: what is hashed."""
    return json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass
class ExportedVariants:
    """The Compiler of a kernel that was loaded: it picks."""

    contract: Contract
    variants: Sequence[Variant]
    works: Mapping[int, Work] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """Whether there is a choice."""
        return bool(self.works)

    def _fitting(self, facts: Facts, target: Target) -> list[Variant]:
        fitting = [v for v in self.variants if runs_on(v.plan.target, target.name) and facts.imply(v.facts)]
        if not fitting:
            offered = ", ".join(dict.fromkeys(variant.plan.target for variant in self.variants)) or "nothing"
            raise self.contract.error(f"it was exported for {offered}, and no variant runs on {target.name} with {facts}", "export more variants")
        return fitting

    def choose(self, facts: Facts, target: Target, dims: Mapping[str, int], multiprocessors: int, nbytes: int) -> Choice:
        """The fastest of the programs that were exported with variants for `facts` (variants.py)."""
        rows: dict[Choice, Row] = {}
        for variant in self._fitting(facts, target):
            if (work := self.works.get(id(variant))) is not None:
                rows[variant.choice] = Row(variant.choice, variant.label, estimate(work, dims, multiprocessors, nbytes, variant.choice.parts))
        return best([rows[choice] for choice in sorted(rows)]).choice if rows else Choice()

    def __call__(self, facts: Facts, target: Target, choice: Choice = Choice()) -> Variant:  # noqa: B008 - it is immutable
        """The variant that assumes most of `facts`, of those that `target` runs; of the program that was chosen, and its own target's first."""
        fitting = self._fitting(facts, target)
        return max(fitting, key=lambda v: (v.choice == choice, v.plan.target == target.name, v.facts.strength))


def runs_on(target: str, arch: str) -> bool:
    """Whether code for `target` runs on a GPU of `arch`: 'a' is for exactly one architecture, others for later ones too.

    >>> runs_on("sm_80", "sm_90a"), runs_on("sm_90a", "sm_100a"), runs_on("sm_90", "sm_80")
    (True, False, False)
    """
    if target == arch or target.endswith("a"):
        return target == arch
    return _number(target) <= _number(arch)


def _number(arch: str) -> int:
    return int(arch.removeprefix("sm_").rstrip("abcdefghijklmnopqrstuvwxyz"))
