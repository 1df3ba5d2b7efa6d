"""What a driver's slices cost others: `python -m tests.bench.slices`. Needs Go, no cluster, no root.

A node of eight devices as each driver publishes them: the bytes of a device, and what Kubernetes'
own allocator takes for one when a claim wants all eight by a selector that people use. Both come from
Kubernetes' code: its protobuf, its allocator with its CEL. The others' devices are in
`their_devices.yaml`, ours come from `claimd slices` and a fake tree.
"""

from __future__ import annotations

import argparse
import base64
import copy
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.support import allocating, oracle

from .errors import BenchError

ROOT = Path(__file__).resolve().parents[2]
THEIRS = Path(__file__).with_name("their_devices.yaml")
DEVICES, NODE = 8, "node-1"
TURNS = (
    7  # each is measured so often, and the quickest counts: what else the machine does only adds
)
OURS = "gpu.claimd.dev"
TREES = {
    "claimd, H100": ("nvidia:h100=8", "nvidia", "h100"),
    "claimd, MI300X": ("amd:mi300x=8", "amd", "mi300x"),
    "claimd, Flex 170": ("intel:flex170=8", "intel", "flex"),
}
# The columns. `none` is what the allocator takes for a device that nobody selects by anything.
SELECTORS = ("none", "driver", "word", "product", "memory", "version")

Object = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Published:
    """A node's slice of one driver, and the selectors that people have for it."""

    title: str
    spec: Object
    selectors: dict[str, str | None]


@dataclass(frozen=True, kw_only=True)
class Row:
    title: str
    attributes: int  # and capacities, of a device
    json: float  # bytes of a device
    protobuf: float
    took: dict[str, float | None]  # seconds for a device, by selector


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.slices", description=__doc__)
    parser.add_argument("--rounds", type=int, default=501, help="of each in a turn (default 501)")
    asked = parser.parse_args()
    if why := oracle.missing("allocator") or oracle.missing("wire"):
        print(f"bench: {why}", file=sys.stderr)
        return 2
    try:
        published = [*ours(), *theirs()]
        took = in_turns(published, asked.rounds)
        rows = [measured(each, took[each.title]) for each in published]
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    print(
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}, "
        f"the best of {TURNS} medians of {asked.rounds}\n"
    )
    print(table(rows))
    return 0


def ours() -> Iterator[Published]:
    for title, (gpus, vendor, product) in TREES.items():
        spec = claimd_slice(gpus)
        yield Published(
            title=title,
            spec=spec,
            selectors=selectors(
                OURS,
                word=f'device.attributes["{OURS}"].vendor == "{vendor}"',
                product=f'device.attributes["{OURS}"].productName.lowerAscii().matches("^.*{product}.*$")',
                version="driverVersion" in spec["devices"][0]["attributes"],
            ),
        )


def claimd_slice(gpus: str) -> Object:
    """What `claimd run` publishes on such a node."""
    with tempfile.TemporaryDirectory(prefix="slices-") as folder:
        tree = str(Path(folder, "node"))
        _claimd("fake", "write", tree, gpus)
        (slice_,) = _items(_claimd("slices", "--root", tree, "--node-name", NODE, "-o", "json"))
    return dict(slice_["spec"])


def theirs() -> Iterator[Published]:
    for each in yaml.safe_load(THEIRS.read_text()):
        pool = {"name": NODE, "generation": 1, "resourceSliceCount": 1}
        devices = [numbered(each["device"], number) for number in range(DEVICES)]
        yield Published(
            title=each["title"],
            spec={"driver": each["driver"], "nodeName": NODE, "pool": pool, "devices": devices},
            selectors=selectors(
                each["driver"],
                word=each["word"],
                product=each["product"],
                version="version" not in each,
            ),
        )


def numbered(device: Object, number: int) -> Object:
    copied: Object = json.loads(json.dumps(device).replace("{n}", str(number)))
    return copied


def selectors(driver: str, *, word: str, product: str, version: bool) -> dict[str, str | None]:
    newer = f'device.attributes["{driver}"].driverVersion.compareTo(semver("0.0.0")) >= 0'
    return {
        "none": "",
        "driver": f'device.driver == "{driver}"',
        "word": word,
        "product": product,
        "memory": f'device.capacity["{driver}"].memory.compareTo(quantity("10Gi")) >= 0',
        "version": newer if version else None,
    }


def measured(published: Published, took: dict[str, float | None]) -> Row:
    devices = published.spec["devices"]
    if len(devices) != DEVICES:
        raise BenchError(f"{published.title}: {len(devices)} devices, not {DEVICES}")
    first = devices[0]
    return Row(
        title=published.title,
        attributes=len(first["attributes"]) + len(first["capacity"]),
        json=per_device(published.spec, lambda slice_: len(_compact(slice_))),
        protobuf=per_device(published.spec, in_protobuf),
        took=took,
    )


def in_turns(published: list[Published], rounds: int) -> dict[str, dict[str, float | None]]:
    """Seconds for a device, by title and selector. No driver has the machine's better moments alone."""
    took: dict[str, dict[str, float | None]] = {each.title: {} for each in published}
    with oracle.Oracle() as go:
        for _ in range(TURNS):
            for each in published:
                for name, selector in each.selectors.items():
                    best = took[each.title].get(name)
                    if selector is None:
                        took[each.title][name] = None
                        continue
                    now = decided(go, each, selector, rounds)
                    took[each.title][name] = now if best is None else min(now, best)
    return took


def decided(go: oracle.Oracle, published: Published, selector: str, rounds: int) -> float:
    """Seconds for a device when a claim gets all of them."""
    answer = allocating.theirs(go, world(published, selector), repeat=rounds)
    if not answer.get("results"):
        raise BenchError(f"{published.title}: no device is given by {selector or 'none'}: {answer}")
    return float(answer["seconds"]) / DEVICES


def world(published: Published, selector: str) -> Object:
    """A claim that gets every device of the node, if the selector is true of all."""
    exactly: Object = {"deviceClassName": "all", "allocationMode": "ExactCount", "count": DEVICES}
    if selector:
        exactly["selectors"] = [{"cel": {"expression": selector}}]
    claim = {
        "metadata": {"name": "all", "namespace": "default", "uid": "1"},
        "spec": {"devices": {"requests": [{"name": "all", "exactly": exactly}]}},
    }
    return {
        "node": {"metadata": {"name": NODE, "labels": {}}},
        "classes": [{"metadata": {"name": "all"}, "spec": {}}],
        "slices": [{"metadata": {"name": NODE}, "spec": published.spec}],
        "claims": [claim],
    }


def per_device(spec: Object, size: Callable[[Object], int]) -> float:
    """What each device adds to the slice."""
    slice_ = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": NODE},
        "spec": spec,
    }
    empty = copy.deepcopy(slice_)
    empty["spec"]["devices"] = []
    return float(size(slice_) - size(empty)) / DEVICES


def in_protobuf(slice_: Object) -> int:
    with oracle.Oracle("wire") as go:
        return len(base64.b64decode(go.ask(slice_)["wire"]))


def table(rows: list[Row]) -> str:
    """In Markdown, for the page."""
    titles = {
        "none": "no selector",
        "driver": "driver's name",
        "word": "type or vendor",
        "product": "product by pattern",
        "memory": "memory",
        "version": "driver's version",
    }
    lines = [
        "| slices of | attributes and capacities | JSON | protobuf | "
        + " | ".join(titles[name] for name in SELECTORS)
        + " |",
        "| --- |" + " --- |" * (3 + len(SELECTORS)),
    ]
    for row in rows:
        cells = [row.title, str(row.attributes), f"{row.json:.0f} B", f"{row.protobuf:.0f} B"]
        for name in SELECTORS:
            seconds = row.took[name]
            cells.append("-" if seconds is None else f"{seconds * 1e6:.1f} us")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _claimd(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "claimd", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BenchError(f"claimd {' '.join(words)} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def _items(text: str) -> list[Object]:
    document = json.loads(text)
    return list(document.get("items", [document]))


def _compact(value: Object) -> str:
    return json.dumps(value, separators=(",", ":"))


if __name__ == "__main__":
    sys.exit(main())
