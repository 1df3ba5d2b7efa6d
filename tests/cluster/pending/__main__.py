"""Records what the real scheduler says about pods that wait, in tests/cases/pending.

`python -m tests.cluster.pending` needs root, Go for the first time, and starts one control plane.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time

import yaml

from tests.cluster.pending import clusters, recorder
from tests.cluster.pending.api import Refused
from tests.cluster.pending.situations import SITUATIONS
from tests.cluster.rig import places
from tests.support import recorded_pods, recorded_shares


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.pending", description=__doc__)
    parser.add_argument(
        "--only", metavar="PATTERN", help="situations of this name, and nothing random"
    )
    parser.add_argument("--random", action="store_true", help="random pods alone")
    parser.add_argument("--shared", action="store_true", help="claims on shared GPUs alone")
    parser.add_argument("--clusters", type=int, default=28, help="random ones, of 12 pods each")
    parser.add_argument("--worlds", type=int, default=204, help="of shared GPUs, of 10 steps each")
    asked = parser.parse_args()

    with recorder.control_plane_of(places.KUBE) as api:
        recording = recorder.Recorder(api, places.KUBE)
        failed = 0
        if not asked.random and not asked.shared:
            failed |= _situations(recording, asked.only or "")
        if asked.only is None and not asked.shared:
            failed |= _clusters(recording, asked.clusters)
        if asked.only is None and not asked.random:
            failed |= _shares(recording, asked.worlds)
    return failed


def _situations(recording: recorder.Recorder, pattern: str) -> int:
    folder = recorded_pods.CASES / "situations"
    folder.mkdir(parents=True, exist_ok=True)
    if not pattern:
        for stale in folder.glob("*.yaml"):
            stale.unlink()
    failed = 0
    for situation in SITUATIONS:
        if not re.search(pattern, situation.name):
            continue
        try:
            recorded = recording.record(situation)
        except Refused as refused:
            print(f"{situation.name}: the API server refuses it: {refused}", flush=True)
            recording.clear()
            failed = 1
            continue
        (folder / f"{situation.name}.yaml").write_text(_yaml(recorded))
        verdict = recorded["scheduler"]
        said = verdict.get("node") or verdict.get("message") or "(nothing)"
        print(f"{situation.name}: {said}", flush=True)
    return failed


def _clusters(recording: recorder.Recorder, count: int) -> int:
    failed = 0
    with open(recorded_pods.CASES / "random.jsonl", "w") as lines:
        for seed in range(count):
            began = time.monotonic()
            try:
                recorded = recording.record_cluster(seed, clusters.cluster(seed))
            except Refused as refused:
                print(f"cluster {seed}: the API server refuses it: {refused}", flush=True)
                recording.clear()
                failed = 1
                continue
            lines.write(json.dumps(recorded) + "\n")
            lines.flush()
            bound = sum("node" in step["scheduler"] for step in recorded["steps"])
            seconds = time.monotonic() - began
            print(f"cluster {seed}: {bound} pods bound, {seconds:.0f} s", flush=True)
    return failed


def _shares(recording: recorder.Recorder, count: int) -> int:
    failed = 0
    with open(recorded_shares.RECORDED, "w") as lines:
        for seed in range(count):
            began = time.monotonic()
            try:
                recorded = recording.record_shares(seed)
            except Refused as refused:
                print(f"world {seed}: the API server refuses it: {refused}", flush=True)
                recording.clear()
                failed = 1
                continue
            lines.write(json.dumps(recorded, separators=(",", ":")) + "\n")
            lines.flush()
            counts = dict(recorded_shares.outcomes([recorded]))
            print(f"world {seed}: {counts}, {time.monotonic() - began:.0f} s", flush=True)
    return failed


class _Dumper(yaml.SafeDumper):
    """Writes YAML in which texts with several lines are blocks."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def _yaml(document: object) -> str:
    text: str = yaml.dump(
        document,
        Dumper=_Dumper,
        sort_keys=False,
        default_flow_style=None,
        width=100,
        allow_unicode=True,
    )
    return text


if __name__ == "__main__":
    try:
        sys.exit(main())
    except places.RigError as error:
        sys.exit(f"tests.cluster.pending: {error}")
