"""What kubectl makes of the kustomizations, and Helm of the chart: lists of objects.

Both programs are those on the path, or the rig's; nothing is built here.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.rig import places

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/chart"
NAMESPACE = "claimd-system"

Objects = list[dict[str, Any]]


def kubectl() -> str:
    """Returns the path of kubectl; empty if there is none."""
    path = f"{os.environ['PATH']}:{places.kube_binary('', places.KUBE)}"
    return shutil.which("kubectl", path=path) or ""


def helm() -> str:
    """Returns the path of Helm; empty if there is none."""
    path = f"{os.environ['PATH']}:{places.helm_binary().parent}"
    return shutil.which("helm", path=path) or ""


def read(text: str) -> Objects:
    return [document for document in yaml.load_all(text, yaml.CSafeLoader) if document]


# ---------------------------------------------------------------- kustomize


@functools.cache
def built(folder: str) -> Objects:
    command = [kubectl(), "kustomize", str(ROOT / folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return read(done.stdout)


@functools.cache
def built_with(components: tuple[str, ...]) -> Objects:
    """The base with these components, in this order, as a kustomization of somebody's own has it."""
    with tempfile.TemporaryDirectory(prefix="claimd-test-") as folder:
        deploy = os.path.relpath(ROOT / "deploy", os.path.realpath(folder))
        kustomization = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [f"{deploy}/base"],
            "components": [f"{deploy}/components/{name}" for name in components],
        }
        Path(folder, "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        return built(folder)


# ---------------------------------------------------------------- the chart


def helmed(
    *words: str, values: Mapping[str, Any] | None = None
) -> subprocess.CompletedProcess[str]:
    """`helm template` of the chart, whatever comes of it."""
    with tempfile.NamedTemporaryFile("w", prefix="claimd-test-", suffix=".json") as file:
        json.dump(values or {}, file)
        file.flush()
        command = [helm(), "template", "claimd", str(CHART), f"--namespace={NAMESPACE}"]
        command += [f"--values={file.name}", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)


def rendered(values: Mapping[str, Any] | None = None, *words: str) -> Objects:
    done = helmed(*words, values=values)
    assert done.returncode == 0, done.stderr
    return read(done.stdout)


def rendered_each(choices: Sequence[Mapping[str, Any]]) -> list[Objects]:
    """As `rendered` of each, by one run of Helm: a chart that has ours as a part once for each."""
    names = [f"part{number}" for number in range(len(choices))]
    with tempfile.TemporaryDirectory(prefix="claimd-test-") as folder:
        parts = [{"name": "claimd", "version": "*", "alias": name} for name in names]
        chart = {"apiVersion": "v2", "name": "all", "version": "1.0.0", "dependencies": parts}
        Path(folder, "Chart.yaml").write_text(json.dumps(chart))
        Path(folder, "values.yaml").write_text(json.dumps(dict(zip(names, choices, strict=True))))
        pack = [helm(), "package", str(CHART), f"--destination={folder}/charts"]
        subprocess.run(pack, capture_output=True, check=True)

        command = [helm(), "template", "claimd", folder, f"--namespace={NAMESPACE}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

    objects: dict[str, Objects] = {name: [] for name in names}
    for document in re.split(r"^---\n", done.stdout, flags=re.M):
        source = re.match(r"# Source: all/charts/(\w+)/", document)
        if source:
            objects[source[1]] += read(document)
    return list(objects.values())
