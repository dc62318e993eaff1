"""What is kept on disk, as JSON and bytes: contracts, facts, diagnostics, variants, machine code. For the cache and for exported kernels.

Each `…_to_json` has a `…_from_json` that restores an equal object, and raises KeyError, TypeError or ValueError for data that it did not make.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ..dialects.diagnostics import Diagnostic, Location
from ..dialects.launch_plan import LaunchPlan, arg_from_json
from .assemble import Assembled, Assembler, Resources
from .cache import Entry
from .contract import Contract
from .specialize import Facts


def contract_to_json(contract: Contract) -> dict[str, Any]:
    return {
        "name": contract.name,
        "args": [dataclasses.asdict(arg) for arg in contract.args],
        "grid": list(contract.grid),
        "align": dict(contract.align),
        "divisors": dict(contract.divisors),
        "flops": contract.flops,
        "nbytes": contract.nbytes,
    }


def contract_from_json(data: dict[str, Any]) -> Contract:
    args = tuple(map(arg_from_json, data["args"]))
    return Contract(
        data["name"], args, tuple(data["grid"]), dict(data["align"]), dict(data["divisors"]), data["flops"], data["nbytes"]
    )


def facts_to_json(facts: Facts) -> dict[str, Any]:
    return {"aligned": dict(facts.aligned), "noalias": list(facts.noalias), "divisors": dict(facts.divisors), "alone": facts.alone}


def facts_from_json(data: dict[str, Any]) -> Facts:
    return Facts(tuple(data["aligned"].items()), tuple(data["noalias"]), tuple(data["divisors"].items()), data["alone"])


def diagnostic_to_json(diagnostic: Diagnostic) -> dict[str, Any]:
    return dataclasses.asdict(diagnostic)


def diagnostic_from_json(data: dict[str, Any]) -> Diagnostic:
    place = data["location"]
    notes = [diagnostic_from_json(note) for note in data["notes"]]
    return Diagnostic(data["severity"], data["message"], None if place is None else Location(**place), data["hint"], notes)


def variant_entry(title: str, plan: LaunchPlan, ptx: str, messages: list[Diagnostic], times: dict[str, float]) -> Entry:
    """What the compiler made of a kernel under some facts."""
    info = {"plan": plan.to_json(), "messages": list(map(diagnostic_to_json, messages)), "times": times}
    return Entry(title, info, {"ptx": ptx.encode()})


def read_variant(entry: Entry) -> tuple[LaunchPlan, str, list[Diagnostic]]:
    """(plan, PTX, messages) of `variant_entry`."""
    info = entry.info
    return LaunchPlan.from_json(info["plan"]), entry.parts["ptx"].decode(), list(map(diagnostic_from_json, info["messages"]))


def code_entry(title: str, assembled: Assembled) -> Entry:
    """A cubin. What is a warning and what an error is not decided by it: the log is."""
    info = {
        "assembler": dataclasses.asdict(assembled.assembler),
        "log": assembled.log,
        "resources": {name: dataclasses.asdict(resources) for name, resources in assembled.resources.items()},
    }
    return Entry(title, info, {"cubin": assembled.image})


def read_code(entry: Entry) -> Assembled:
    """What `code_entry` stored, without messages."""
    resources = {name: Resources(**found) for name, found in entry.info["resources"].items()}
    return Assembled(entry.parts["cubin"], True, Assembler(**entry.info["assembler"]), entry.info["log"], [], resources)
