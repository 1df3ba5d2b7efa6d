"""What is shipped for clusters is what kubectl makes of it: each kustomization is built, and has
what it is for.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from claimd.common import names
from claimd.node import config
from tests.support import manifests, samples

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = sorted(
    path.parent.relative_to(ROOT).as_posix()
    for place in ("deploy", "tests/cluster", "tests/soak")
    for path in (ROOT / place).rglob("kustomization.yaml")
    if "components" not in path.parts
)


pytestmark = pytest.mark.skipif(
    not manifests.kubectl(),
    reason="no kubectl: the rig has one (`python3 -m tests.cluster.rig up`)",
)


def pod_of(folder: str) -> Any:
    (daemonset,) = [obj for obj in manifests.built(folder) if obj["kind"] == "DaemonSet"]
    assert (daemonset["metadata"]["name"], daemonset["metadata"]["namespace"]) == (
        "claimd",
        "claimd-system",
    )
    return daemonset["spec"]["template"]["spec"]


@pytest.mark.parametrize("folder", samples.parameters([[folder] for folder in FOLDERS]))
def test_it_is_built_and_its_settings_are_known(folder: str) -> None:
    assert len(FOLDERS) >= 7
    known = {config.variable_of(name) for name in config.Config.__dataclass_fields__}
    for obj in manifests.built(folder):
        if obj["kind"] == "DaemonSet":
            (container,) = obj["spec"]["template"]["spec"]["containers"]
            assert {variable["name"] for variable in container["env"]} <= known
            volumes = {volume["name"] for volume in obj["spec"]["template"]["spec"]["volumes"]}
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes


# ---------------------------------------------------------------- components

COMPONENTS = sorted(path.name for path in (ROOT / "deploy/components").iterdir())
# These say whose driver claimd takes the place of, one of them at most: a driver has one name.
AS_VENDOR = [name for name in COMPONENTS if name.startswith("as-")]
OTHERS = [name for name in COMPONENTS if name not in AS_VENDOR]


def container_of(documents: list[dict[str, Any]]) -> Any:
    (daemonset,) = [document for document in documents if document["kind"] == "DaemonSet"]
    (container,) = daemonset["spec"]["template"]["spec"]["containers"]
    return container


def test_there_are_components() -> None:
    assert {"amd", "fake", "kernel-log", "nvidia"} <= set(COMPONENTS)


@pytest.mark.slow
@pytest.mark.parametrize("pair", list(itertools.combinations(OTHERS, 2)), ids="+".join)
def test_any_two_components_can_be_combined(pair: tuple[str, str]) -> None:
    """Checks both orders: the outcome is the same, and neither takes anything away from the other."""
    both = manifests.built_with(pair)
    assert _sorted_lists(both) == _sorted_lists(manifests.built_with((pair[1], pair[0])))
    base, container = container_of(manifests.built_with(())), container_of(both)
    for name in pair:
        alone = container_of(manifests.built_with((name,)))
        for part in ("env", "volumeMounts"):
            added = [item for item in alone[part] if item not in base[part]]
            assert [item for item in added if item not in container[part]] == []
        for field, value in alone["securityContext"].items():
            if value != base["securityContext"].get(field):
                assert container["securityContext"][field] == value


def _sorted_lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted_lists(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return sorted((_sorted_lists(inner) for inner in value), key=repr)
    return value


@pytest.mark.slow
@pytest.mark.parametrize("last", AS_VENDOR)
def test_all_of_them_together(last: str) -> None:
    """Checks both orders: the outcome is the same."""
    documents = manifests.built_with((*OTHERS, last))
    assert _sorted_lists(documents) == _sorted_lists(manifests.built_with((last, *OTHERS)))
    together = container_of(documents)
    known = {config.variable_of(name) for name in config.Config.__dataclass_fields__}
    assert {variable["name"] for variable in together["env"]} <= known


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fake", "kernel-log", "nvidia"])
def test_an_overlay_is_the_base_with_its_component(name: str) -> None:
    assert manifests.built(f"deploy/overlays/{name}") == manifests.built_with((name,))


@pytest.mark.parametrize("name", samples.parameters([[name] for name in OTHERS]))
def test_a_component_takes_nothing_away(name: str) -> None:
    if name == "fake":
        pytest.skip("it has no port: two pods of an update share the host's network")
    before, after = (
        container_of(manifests.built_with(())),
        container_of(manifests.built_with((name,))),
    )
    for part in ("env", "volumeMounts", "ports"):
        assert [item for item in before[part] if item not in after[part]] == []
    assert (before["livenessProbe"], before["resources"]) == (
        after["livenessProbe"],
        after["resources"],
    )


def test_nvidias_shows_the_host_and_lets_nobody_write_it() -> None:
    """Checks that later mounts of the host are seen as well, such as the GPU Operator's driver."""
    pod = pod_of("deploy/overlays/nvidia")
    (container,) = pod["containers"]
    values = {variable["name"]: variable.get("value") for variable in container["env"]}
    volumes = {volume["name"]: volume.get("hostPath") for volume in pod["volumes"]}
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert volumes["host"] == {"path": "/", "type": "Directory"}
    assert mounts["host"] == {
        "name": "host",
        "mountPath": values["CLAIMD_HOST_ROOT"],
        "readOnly": True,
        "mountPropagation": "HostToContainer",
    }
    folder = values["CLAIMD_LIBRARY_HOOK_DIR"]
    assert volumes["library-hook"] == {"path": folder, "type": "DirectoryOrCreate"}
    assert mounts["library-hook"] == {"name": "library-hook", "mountPath": folder}


def test_that_for_the_kernels_log_adds_one_capability() -> None:
    before, after = (
        container_of(manifests.built_with(())),
        container_of(manifests.built_with(("kernel-log",))),
    )
    given = before["securityContext"]
    assert after["securityContext"] == given | {
        "capabilities": given["capabilities"] | {"add": ["SYSLOG"]}
    }


@pytest.mark.parametrize("name", AS_VENDOR)
def test_one_in_a_vendors_place_is_the_base_under_another_name(name: str) -> None:
    """Checks that only the driver's name in the role and the pod changes, and the classes."""
    vendor = name.removeprefix("as-")
    driver = f"gpu.{vendor}.com"
    before, after = manifests.built_with(()), manifests.built_with((name,))
    added = [
        obj
        for obj in after
        if obj["metadata"]["name"] not in {b["metadata"]["name"] for b in before}
    ]
    assert {obj["kind"] for obj in added} == {"DeviceClass"}

    renamed = json.loads(
        json.dumps([obj for obj in before if obj["kind"] in ("ClusterRole", "DaemonSet")]).replace(
            "gpu.claimd.dev", driver
        )
    )
    container_of(renamed)["env"] += [
        {"name": "CLAIMD_DRIVER_NAME", "value": driver},
        {"name": "CLAIMD_INCLUDE", "value": vendor},
    ]
    objects = [obj for obj in after if obj["kind"] in ("ClusterRole", "DaemonSet")]
    assert _sorted_lists(objects) == _sorted_lists(renamed)

    others = [obj for obj in after if obj not in added and obj not in objects]
    assert others == [obj for obj in before if obj["kind"] not in ("ClusterRole", "DaemonSet")]


def test_the_image_has_the_program_for_containers() -> None:
    """Checks that it is where the plugin looks for it, built as its test builds it."""
    lines = (ROOT / "deploy/Containerfile").read_text()
    assert f"-o /opt/claimd/libexec/{names.LIBRARY_HOOK}" in lines
    assert "deploy/ld-cache/claimd-ld-cache.c" in lines


CHECK = "/opt/claimd/libexec/claimd-container-check"


@pytest.mark.parametrize("vendor", ["nvidia", "amd", "intel"])
def test_the_check_of_a_vendor_runs_the_images_program(vendor: str) -> None:
    assert f"-o {CHECK}" in (ROOT / "deploy/Containerfile").read_text()
    text = (ROOT / f"deploy/examples/container-check/{vendor}.yaml").read_text()
    template, pod = yaml.safe_load_all(text)
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"]["deviceClassName"] == f"{vendor}.gpu.claimd.dev"
    (container,) = pod["spec"]["containers"]
    assert container["command"] == [CHECK]
    assert container["image"] == container_of(manifests.built_with(()))["image"]
