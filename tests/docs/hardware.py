"""The tables about GPUs: attributes, classes, fake machines, and what is told when they are sick."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import dataclasses
import functools
import io
import json
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from claimd.node import config
from claimd.node.publish import device as publish
from claimd.node.report import health
from claimd.tools import cli
from claimd_devices import fake, faults, monitor, nvml_health, scan, vendors
from claimd_devices import health as severities
from claimd_devices import xids as xid_table
from claimd_devices.gpu import UNKNOWN, Engines, Fabric, Inventory, Roots, Setup
from tests.docs.common import (
    NONE,
    ROOT,
    WORDS,
    Incomplete,
    code,
    described,
    manifests,
    maybe_code,
    table,
)
from tests.support import nvml_stub

# ---------------------------------------------------------------- attributes


@dataclass
class Fact:
    """An attribute or a capacity, as the devices of the fake trees have it."""

    kinds: set[str] = field(default_factory=set)
    example: str = ""
    holders: set[str] = field(default_factory=set)  # devices, "tree/name"


@dataclass
class Published:
    attributes: dict[str, Fact] = field(default_factory=dict)
    capacities: dict[str, Fact] = field(default_factory=dict)
    counters: dict[str, Fact] = field(default_factory=dict)
    whole: dict[str, set[str]] = field(default_factory=dict)  # whole GPUs by vendor


# What stands for no value, where that is not "unknown".
_NOT_KNOWN: dict[str, object] = {
    "cudaComputeCapability": publish.NO_VERSION,
    "cudaDriverVersion": publish.NO_VERSION,
    "driverVersion": publish.NO_VERSION,
    "linkSpeed": 0,
    "linkWidth": 0,
    "profile": publish.NO_PROFILE,
}


@functools.cache
def published() -> Published:
    """What `claimd slices` shows of every model, every machine and every tree of tests/roots."""
    trees = [[name] for name in (*fake.MODELS, *fake.MACHINES)]
    for path in sorted((ROOT / "tests/roots").glob("*.json")):
        trees.append(json.loads(path.read_text())["tree"])

    published_ = Published()
    with tempfile.TemporaryDirectory() as folder:
        for number, gpus in enumerate(trees):
            root = Path(folder) / str(number)
            fake.write(root, fake.parse(gpus))
            for options in ((), ("--numa-list", "true", "--share", "*=shares:4")):
                for device in _devices(root, options):
                    _collect(published_, f"{number}/{device['name']}", device)
        with_library = _with_nvidias_library(Path(folder) / "0")
    for number, device in enumerate(with_library):
        _collect(published_, f"library/{number}", device)
        published_.whole["nvidia"].discard(f"library/{number}")
    return published_


def _with_nvidias_library(root: Path) -> list[dict[str, Any]]:
    """A GPU and a MIG instance as they are published with the setting nvml. No fake tree has a
    library for it.
    """
    gpu = next(gpu for gpu in scan.scan(Roots.in_folder(root)).gpus if gpu.vendor == "nvidia")
    cluster = "7bd0a2b5-7e15-4ae7-8c7c-5d9b1c1a2f3e"
    described = dataclasses.replace(
        gpu,
        vbios=None,  # makes room for the others
        setup=Setup(
            cuda="13.0",
            kernel_module="open",
            gpu_direct="dmabuf",
            ecc=True,
            power_cap=700,
            retired_pages=0,
        ),
        fabric=Fabric(domain=f"nvlink-{cluster}.32766", state="completed"),
    )
    engines = Engines(copy=1, decoders=1, encoders=1, jpeg=1, optical_flow=1)
    part = dataclasses.replace(gpu, kind="partition", parent=gpu.name, engines=engines)
    found: list[dict[str, Any]] = msgspec.to_builtins(
        [publish.of_gpu(device, []) for device in (described, part)]
    )
    return found


def _devices(root: Path, more: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(io.StringIO()):
        options = ("--vfio", "true", "--node-name", "node-1", *more)
        assert cli.main(["slices", "--root", str(root), "-o", "json", *options]) == 0
    for item in json.loads(text.getvalue())["items"]:
        yield from item["spec"].get("devices", [])


def _collect(published_: Published, holder: str, device: dict[str, Any]) -> None:
    attributes = device["attributes"]
    if attributes["type"]["string"] == "gpu":
        published_.whole.setdefault(attributes["vendor"]["string"], set()).add(holder)

    for name, typed in attributes.items():
        ((kind, value),) = typed.items()
        fact = published_.attributes.setdefault(name, Fact())
        fact.kinds.add({"ints": "list of int"}.get(kind, kind))
        if value == _NOT_KNOWN.get(name, UNKNOWN):
            continue
        fact.holders.add(holder)
        fact.example = fact.example or str(value)

    for name, capacity in device.get("capacity", {}).items():
        fact = published_.capacities.setdefault(name, Fact())
        if capacity["value"] == "0":
            continue
        fact.holders.add(holder)
        fact.example = fact.example or str(capacity["value"])

    for use in device.get("consumesCounters", []):
        for name in use["counters"]:
            published_.counters.setdefault(name, Fact()).holders.add(holder)


def _on_whole_gpus(fact: Fact, vendor: str) -> str:
    gpus = published().whole[vendor]
    if gpus <= fact.holders:
        return "all"
    return "some" if gpus & fact.holders else NONE


def _since(rows: Mapping[str, Any]) -> None:
    """A version that people can look up."""
    text = (ROOT / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## \[?v?([^\]\s]+)", text, re.M)
    for name, row in rows.items():
        if row["since"] not in headings:
            raise Incomplete(f"{name}: since {row['since']!r}, but CHANGELOG has {headings}")


def vendor_titles() -> dict[str, str]:
    """What people call each vendor, by the name that attributes have."""
    rows = described("vendors", [vendor.NAME for vendor in vendors.VENDORS])
    return {name: row["title"] for name, row in rows.items()}


def _facts(topic: str, facts: Mapping[str, Fact], with_kind: bool) -> str:
    rows = described(topic, sorted(facts, key=lambda name: ("/" in name, name)))
    _since(rows)
    lines = []
    for name, row in rows.items():
        fact = facts[name]
        kinds = [" or ".join(sorted(fact.kinds))] if with_kind else []
        on = [_on_whole_gpus(fact, vendor) for vendor in vendor_titles()]
        example = code(fact.example)
        lines.append(
            [code(name), *kinds, *on, row["absent"], row["meaning"], example, row["since"]]
        )
    kinds = ["type"] if with_kind else []
    titles = ["name", *kinds, *vendor_titles().values(), "where it is not known"]
    return table([*titles, "meaning", "example", "since"], lines)


def core() -> str:
    """What is on every device, whatever it is."""
    names = [code(name) for name in publish.CORE]
    capacities = [f"the capacity {code(name)}" for name in publish.CORE_CAPACITIES]
    return f"On every device, always: {', '.join([*names, *capacities])}."


def attributes() -> str:
    return _facts("attributes", published().attributes, with_kind=True)


def capacities() -> str:
    return _facts("capacities", published().capacities, with_kind=False)


def sources() -> str:
    """Where each attribute and capacity comes from, vendor by vendor."""
    rows = []
    for topic, facts in (
        ("attributes", published().attributes),
        ("capacities", published().capacities),
    ):
        names = sorted(facts, key=lambda name: ("/" in name, name))
        for name, row in described(topic, names).items():
            if "from" in row:
                rows.append([code(name), row["from"]])
                continue
            titles = vendor_titles()
            parts = [f"{titles[vendor]}: {row[vendor]}" for vendor in titles if vendor in row]
            if not parts:
                raise Incomplete(f"{WORDS.name}: {topic}.{name} says nothing of where it is from")
            rows.append([code(name), " · ".join(parts)])
    return table(["name", "read from"], rows)


def counters() -> str:
    rows = described("counters", sorted(published().counters))
    return table(
        ["counter", "of", "meaning"], [[code(n), r["of"], r["meaning"]] for n, r in rows.items()]
    )


def classes() -> str:
    rows = []
    for document in manifests("deviceclasses.yaml"):
        spec = document["spec"]
        (selector,) = spec["selectors"]
        rows.append(
            [
                code(document["metadata"]["name"]),
                code(spec["extendedResourceName"]) if "extendedResourceName" in spec else NONE,
                code(selector["cel"]["expression"]),
            ]
        )
    return table(["class", "extended resource", "devices for which this is true"], rows)


def fake_models() -> str:
    """What `claimd fake write` can write."""
    rows = [
        [code(name), model.title, code(model.ids), model.driver or NONE]
        for name, model in fake.MODELS.items()
    ]
    return table(["model", "is", "PCI ids", "driver"], rows)


def fake_options() -> str:
    rows = [[code(option), about] for option, about in fake.OPTIONS.items()]
    return table(["option", "meaning"], rows)


def machines() -> str:
    rows = [[code(name), code(short_for)] for name, short_for in fake.machines().items()]
    return table(["machine", "is short for"], rows)


def machine_options() -> str:
    rows = [[code(option), about] for option, about in fake.MACHINE_OPTIONS.items()]
    return table(["word", "meaning"], rows)


def fake_faults() -> str:
    rows = [
        [code(fault.name), fault.sentence, fault.value or NONE] for fault in faults.FAULTS.values()
    ]
    return table(["fault", "what happens", "value"], rows)


# ---------------------------------------------------------------- health, taints, conditions, Events


@dataclass(frozen=True)
class Sick:
    """One kind of finding, provoked on a fake tree, and what follows from it."""

    severity: str
    sentence: str
    taints: tuple[str, str]  # the effects by default, and with both settings at NoExecute
    condition: str


def _order(name: str, value: str = "") -> Callable[[Path, str], None]:
    return lambda tree, address: faults.inject(tree, name, address, value)


def _file(name: str, content: bytes) -> Callable[[Path, str], None]:
    """Puts another content into a file of the GPU's folder."""

    def write(tree: Path, address: str) -> None:
        path = (tree / "sys/bus/pci/devices" / address).resolve() / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_bytes(content)

    return write


def _line(text: str) -> Callable[[Path, str], None]:
    """Adds a line about the GPU to the kernel's log."""

    def write(tree: Path, address: str) -> None:
        microseconds = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
        with (tree / "dev/kmsg").open("a") as log:
            log.write(f"3,{microseconds},{microseconds},-;{text.format(address)}\n")

    return write


def _library(told: str) -> Callable[[Path, str], None]:
    """Gives the driver a library that says this about the GPU: the numbers of a stub."""

    def write(tree: Path, address: str) -> None:
        nvml_stub.build(nvml_stub.place_in(tree), f"HEALTH={told}", mig_on=0)

    return write


# Events of the kernel that end findings and are none.
NO_FINDINGS = ("bound",)
# How each kind of finding is brought about, and on which model.
PROVOKED: dict[str, tuple[str, Callable[[Path, str], None]]] = {
    "bad-pages": (
        "amd:mi300x",
        _file("ras/gpu_vram_bad_pages", b"0x00000001 : 0x00001000 : F\n"),
    ),
    "hardware-error": (
        "intel:b580",
        _line("xe {}: [drm] *ERROR* [Hardware Error]: Tile0 reported FATAL error 0x1"),
    ),
    "reset-failed": ("amd:mi210", _order("reset-failed")),
    "sxid": ("nvidia:h100", _order("sxid")),
    "uninitialized": ("nvidia:h100", _order("init-failed")),
    "absent": ("amd:mi210", _order("unplug")),
    "aer-fatal": ("amd:mi210", _order("aer", "fatal")),
    "aer-nonfatal": ("amd:mi210", _order("aer", "nonfatal")),
    "hot": ("amd:mi210", _order("hot")),
    "link": ("nvidia:h100", _order("link", "4")),
    "link-speed": ("nvidia:h100", _file("current_link_speed", b"2.5 GT/s PCIe\n")),
    "lost": ("nvidia:h100", _file("config", b"\xff" * 64)),
    "ras": ("amd:mi300x", _file("ras/umc_err_count", b"ue: 1\nce: 0\n")),
    "survivability": ("intel:b580", _file("survivability_mode", b"1\n")),
    "unreadable": ("nvidia:h100", _order("eio")),
    "unresponsive": ("amd:mi210", _order("hang")),
    "wedged": ("intel:b580", _order("wedge")),
    "xid": ("nvidia:h100", _order("xid", "79")),
    "row-remap": ("nvidia:h100", _library("1, 1, 0, 0, 0, 0, 0")),
    "ecc": ("nvidia:h100", _library("0, 0, 1, 0, 0, 0, 0")),
    "recovery": ("nvidia:h100", _library("0, 0, 0, 0, 1, 0, 0")),
    "fabric": ("nvidia:h100", _library("0, 0, 0, 0, 0, 1, 0")),
}


@functools.cache
def sick() -> dict[str, Sick]:
    return {kind: asyncio.run(_provoke(kind, *how)) for kind, how in PROVOKED.items()}


def _scan_until_found(roots: Roots) -> Inventory:
    """Scans until the GPU is found. On a busy machine a read may take so long that it is given up."""
    for _ in range(20):
        inventory = scan.scan(roots)
        if inventory.gpus:
            return inventory
    raise RuntimeError(f"no GPU is found: {inventory}")


async def _provoke(kind: str, model: str, act: Callable[[Path, str], None]) -> Sick:
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        fake.write(tree, fake.parse([model]))
        faults.enable(tree)
        roots = Roots.in_folder(tree)
        inventory = _scan_until_found(roots)
        address = inventory.gpus[0].address
        reader = nvml_health.Reader(roots, waits=True, every=0.0)
        watched = monitor.Monitor(roots, grace=300.0, interval=20.0, read_symptoms=reader.read_gpus)
        watched.on_inventory(inventory)
        await watched.check()

        act(tree, address)
        for _ in range(4):  # what is there or not is believed after up to four looks
            watched.on_inventory(scan.scan(roots))
            await watched.check()
        with contextlib.suppress(ValueError):
            faults.inject(tree, "heal", address)
        return _consequences(kind, watched.last)


def _consequences(kind: str, report: Any) -> Sick:
    ((name, findings),) = report.findings
    (finding,) = [finding for finding in findings if finding.kind == kind]
    later = finding.since + 60.0
    defaults = {setting.name: setting.default for setting in dataclasses.fields(config.Config)}

    def effect(failed: str, degraded: str) -> str:
        taints = health.taints(report, failed=failed, degraded=degraded, now=later).get(name, [])
        keys = {taint.key: taint.effect for taint in taints}
        return keys.get(f"{health.DOMAIN}/{kind}", NONE)

    condition = health.conditions(report).get(name)
    return Sick(
        severity=finding.severity,
        sentence=finding.text,
        taints=(
            effect(defaults["taint_failed"], defaults["taint_degraded"]),
            effect("NoExecute", "NoExecute"),
        ),
        condition=f"{condition.status}, {condition.reason}" if condition else NONE,
    )


def kinds_in_code() -> set[str]:
    """The kinds of findings that the sources of devices/ make, by reading them.

    One that is put together while it runs (`aer-fatal`) is not seen here.
    """
    kinds: set[str] = set()
    for path in (ROOT / "devices/claimd_devices").glob("*.py"):
        tree = ast.parse(path.read_text())
        for call in _calls(tree):
            if ast.unparse(call.func).rpartition(".")[2] in ("Symptom", "Event", "Finding"):
                kinds |= {_text(k.value, tree) for k in call.keywords if k.arg == "kind"}
    return kinds - {"", *NO_FINDINGS}


def findings() -> str:
    rows = described("findings", sorted(PROVOKED))
    missing = kinds_in_code() - set(PROVOKED)
    if missing:
        raise Incomplete(
            f"devices/ makes findings of the kinds {sorted(missing)}: say in tests/docs/hardware.py "
            f"how they are provoked, and in {WORDS.name} what they mean"
        )
    lines = []
    for kind, row in rows.items():
        seen = sick()[kind]
        severity = row.get("severity", seen.severity)
        if seen.severity not in severity:
            raise Incomplete(f"{WORDS.name}: {kind} is {seen.severity}, not {severity}")
        key = code(f"{health.DOMAIN}/{kind}") if seen.taints[1] != NONE else "no taint"
        effect = "by its severity" if "severity" in row else maybe_code(seen.taints[0])
        lines.append([key, severity, effect, row["meaning"], row["do"], row["goes"]])
    titles = ["taint", "severity", "default effect", "meaning", "what to do", "when it goes"]
    return table(titles, lines)


def sentences() -> str:
    """What claimd says of each, in its own words."""
    rows = [
        [code(kind), maybe_code(seen.condition), seen.sentence]
        for kind, seen in sorted(sick().items())
    ]
    return table(["kind", "condition `Healthy`", "example of the sentence"], rows)


def xids() -> str:
    """The Xid errors, with our judgement and NVIDIA's action."""
    rows = []
    for xid in xid_table.read_all():
        severity = "by the driver's words" if xid.action == "XID_154" else xid.severity
        if xid.action == "WORKFLOW_NVLINK5_ERR":
            severity = f"{severities.FAILED} if `Fatal`, else {xid.severity}"
        if xid.is_of_whole_gpu:
            severity += " ⁂"
        action = code(xid.action) if xid.action else NONE
        text = f"{xid.meaning}; {xid.advice}"
        rows.append([str(xid.code), severity, code(xid.mnemonic), action, text])
    titles = [
        "Xid",
        "severity",
        "NVIDIA's name",
        "NVIDIA's immediate action",
        "meaning; what to do",
    ]
    return table(titles, rows)


WORD = re.compile(r"[A-Z][a-z]+(?:[A-Z][a-z]+)+")
# What people read of a running claimd in Kubernetes comes from these.
SPEAKERS = (
    "plugin/claimd/node/app.py",
    "plugin/claimd/node/hardware_listener.py",
    "plugin/claimd/node/prepare",
    "plugin/claimd/node/publish",
    "plugin/claimd/node/report",
)


def reasons_in_code() -> set[str]:
    """Words in the form of a reason that a running claimd hands to Kubernetes."""
    spoken: set[str] = set()
    for speaker in SPEAKERS:
        place = ROOT / speaker
        for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
            tree = ast.parse(path.read_text())
            for call in _calls(tree):
                arguments = [_text(argument, tree) for argument in call.args]
                spoken.update(text for text in arguments if WORD.fullmatch(text))
    return spoken


def _calls(tree: ast.Module) -> list[ast.Call]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def _text(value: ast.expr, tree: ast.Module) -> str:
    """The string that an expression is, directly or as a constant of its module; else empty."""
    if isinstance(value, ast.Name):
        assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
        for node in assigned:
            if ast.unparse(node.targets[0]) == value.id:
                return _text(node.value, tree)
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return value.value
    return ""


def events() -> str:
    rows = described("events", sorted(reasons_in_code()))
    return table(
        ["reason", "type", "about", "meaning", "what to do"],
        [[code(n), r["type"], r["about"], r["meaning"], r["do"]] for n, r in rows.items()],
    )


def conditions_in_code() -> set[str]:
    """Types of the conditions in claim.status.devices."""
    types: set[str] = set()
    for path in sorted((ROOT / "plugin/claimd/node/report").glob("*.py")):
        tree = ast.parse(path.read_text())
        for call in _calls(tree):
            if ast.unparse(call.func).rpartition(".")[2] == "Condition":
                types |= {_text(k.value, tree) for k in call.keywords if k.arg == "type"}
    return types


def conditions() -> str:
    rows = described("conditions", sorted(conditions_in_code()))
    return table(
        ["type", "status and reason", "meaning", "what to do"],
        [[code(n), r["status"], r["meaning"], r["do"]] for n, r in rows.items()],
    )
