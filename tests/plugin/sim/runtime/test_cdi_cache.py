"""CDI rules from case files: accepted and refused specs, and the merged edits of several specs."""

import json
from pathlib import Path

import pytest
import yaml

from claimd.sim.runtime import cdi_cache, cdi_spec

CASES = Path(__file__).parents[3] / "cases" / "sim" / "cdi"
SPECS = yaml.safe_load((CASES / "specs.yaml").read_text())
MERGES = yaml.safe_load((CASES / "merge.yaml").read_text())


@pytest.mark.parametrize("case", SPECS, ids=lambda case: case["case"])
@pytest.mark.parametrize("form", ["json", "yaml"])
def test_a_spec_file(case, form):
    content = case.get("text")
    if content is None:
        content = json.dumps(case["spec"]) if form == "json" else yaml.safe_dump(case["spec"])
    newest = case.get("newest", cdi_spec.VERSIONS[-1])
    if "refused" in case:
        with pytest.raises(cdi_spec.InvalidSpec) as refusal:
            cdi_spec.parse(content, newest)
        assert case["refused"] in str(refusal.value)
    else:
        assert cdi_spec.parse(content, newest).devices


@pytest.mark.parametrize("case", MERGES, ids=lambda case: case["case"])
def test_what_specs_make_of_a_container(case, tmp_path):
    for name, spec in case["files"].items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(json.dumps(spec))
    cache = cdi_cache.load([tmp_path / "etc", tmp_path / "run"])
    assert len(cache.problems) == case.get("problems", len(cache.problems))
    if "refused" in case:
        with pytest.raises(cdi_spec.InvalidSpec) as refusal:
            cache.inject(case["ids"])
        for part in case["refused"]:
            assert part in str(refusal.value)
        return
    merged = cache.inject(case["ids"])
    assert dict(merged.env) == case.get("env", {})
    assert [f"{node.path} {node.major}:{node.minor}" for node in merged.nodes] == case.get(
        "nodes", []
    )
    assert [f"{mount.host_path} on {mount.container_path}" for mount in merged.mounts] == case.get(
        "mounts", []
    )
    assert list(merged.gids) == case.get("gids", [])
    assert [f"{hook.hook_name} {hook.path}" for hook in merged.hooks] == case.get("hooks", [])


@pytest.mark.parametrize("name", ["a/b=c", "example.com/gpu=0", "a-b.c/d_e=f:1"])
def test_names_of_devices(name):
    assert "=".join(cdi_spec.split_device_id(name)) == name


@pytest.mark.parametrize(
    "name", ["", "gpu", "/a/b=c", "a=b", "a/=b", "/b=c", "a/b=", "1a/b=c", "a/b=c=d", "a/b=-c"]
)
def test_what_is_no_name_of_a_device(name):
    with pytest.raises(cdi_spec.InvalidSpec):
        cdi_spec.split_device_id(name)
