"""Every manifest in deploy/ and docs/ is accepted by the API server, with its limits on the cost of CEL."""

import asyncio
import re
from pathlib import Path

import pytest
import yaml

from claimd.kubernetes.kube import auth, client, errors
from claimd.sim import manifests as shipped
from claimd.sim.apiserver.server import Options, serve
from claimd.sim.dynamic_client import DynamicClient
from tests.support import manifests, samples

ROOT = Path(__file__).resolve().parent.parent

# Kinds of other projects, which a plain cluster does not serve.
NOT_SERVED = {"PrometheusRule", "SecurityContextConstraints", "ServiceMonitor", "PodMonitor"}
OTHER_GROUPS = ("kueue.x-k8s.io", "serving.kserve.io")
YAML_BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.M | re.S)


def is_whole(obj):
    """Tells a manifest from a patch, a part of one, and other YAML."""
    if not isinstance(obj, dict) or not {"apiVersion", "kind", "metadata"} <= obj.keys():
        return False
    if obj["apiVersion"].partition("/")[0] in OTHER_GROUPS:
        return False
    if obj["kind"] == "DaemonSet":
        return "selector" in obj.get("spec", {})
    return "kustomize.config" not in obj["apiVersion"] and obj["kind"] not in NOT_SERVED


def contents():
    for path in sorted((ROOT / "deploy").rglob("*.yaml")):
        if "chart" not in path.parts and "monitoring" not in path.parts:
            yield path, path.read_text()
    for path in sorted([*(ROOT / "docs").glob("*.md"), *(ROOT / "deploy").rglob("*.md")]):
        for block in YAML_BLOCK.findall(path.read_text()):
            yield path, block


def find_manifests():
    by_place = {}
    for path, text in contents():
        try:
            objects = [obj for obj in manifests.read(text) if is_whole(obj)]
        except yaml.YAMLError:
            continue  # a fragment with an ellipsis
        if objects:
            by_place.setdefault(str(path.relative_to(ROOT)), []).extend(objects)
    return by_place


MANIFESTS = find_manifests()


@pytest.fixture(scope="module")
def refusals(tmp_path_factory):
    """Applies all manifests to one API server; returns what it refused, by file."""
    return asyncio.run(applied(tmp_path_factory.mktemp("applied")))


async def applied(folder):
    refused = {}
    async with serve(Options()) as api:
        kubeconfig = folder / "kubeconfig"
        api.kubeconfig(kubeconfig)
        client_ = client.Client(auth.client_config(str(kubeconfig), folder), agent="test")
        objects = DynamicClient(client_)
        try:
            for obj in shipped.base():
                await objects.apply(obj)
            everything = [obj for manifests_ in MANIFESTS.values() for obj in manifests_]
            named = {obj["metadata"].get("namespace") for obj in everything} - {None}
            for namespace in named:
                await objects.apply(
                    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
                )
            for place, manifests_ in MANIFESTS.items():
                for obj in manifests_:
                    try:
                        await objects.apply(obj)
                    except (errors.ApiError, LookupError) as error:
                        name = f"{obj['kind']} {obj['metadata'].get('name')}"
                        refused.setdefault(place, []).append(f"{name}: {error}")
        finally:
            await client_.close()
    return refused


def test_there_are_manifests():
    assert len(MANIFESTS) > 25
    assert "deploy/examples/extended-resource-models/classes.yaml" in MANIFESTS


@pytest.mark.parametrize("place", samples.parameters([[place] for place in MANIFESTS]))
def test_it_is_accepted(refusals, place):
    assert refusals.get(place, []) == []
