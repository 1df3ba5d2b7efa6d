"""What is shipped for clusters is what kubectl makes of it: each kustomization is built, and has
what it is for.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from plugin import config
from tests.cluster.rig import places

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = sorted(
    path.parent.relative_to(ROOT).as_posix()
    for place in ("deploy", "tests/cluster", "tests/soak")
    for path in (ROOT / place).rglob("kustomization.yaml")
)


def kubectl() -> str:
    """The one on the path, or the rig's."""
    return (
        shutil.which("kubectl", path=f"{os.environ['PATH']}:{places.kube_binary('', places.KUBE)}")
        or ""
    )


pytestmark = pytest.mark.skipif(
    not kubectl(), reason="no kubectl: the rig has one (`python3 -m tests.cluster.rig up`)"
)


@functools.cache
def built(folder: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [kubectl(), "kustomize", str(ROOT / folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def pod_of(folder: str) -> Any:
    (daemonset,) = [one for one in built(folder) if one["kind"] == "DaemonSet"]
    assert (daemonset["metadata"]["name"], daemonset["metadata"]["namespace"]) == (
        "claimd",
        "claimd-system",
    )
    return daemonset["spec"]["template"]["spec"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_it_is_built_and_its_settings_are_known(folder: str) -> None:
    assert len(FOLDERS) >= 7
    known = {config.variable_of(name) for name in config.Config.__dataclass_fields__}
    for one in built(folder):
        if one["kind"] == "DaemonSet":
            (container,) = one["spec"]["template"]["spec"]["containers"]
            assert {variable["name"] for variable in container["env"]} <= known
            volumes = {volume["name"] for volume in one["spec"]["template"]["spec"]["volumes"]}
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes


@pytest.mark.parametrize("folder", ["deploy/overlays/nvidia", "deploy/overlays/kernel-log"])
def test_an_overlay_takes_nothing_away(folder: str) -> None:
    plain, more = pod_of("deploy/base"), pod_of(folder)
    assert {volume["name"] for volume in plain["volumes"]} <= {
        volume["name"] for volume in more["volumes"]
    }
    (before,), (after,) = plain["containers"], more["containers"]
    for what in ("env", "volumeMounts"):
        assert [one for one in before[what] if one not in after[what]] == []
    assert {one["kind"] for one in built(folder)} == {one["kind"] for one in built("deploy/base")}


def test_the_overlay_for_nvidia_shows_the_host_and_lets_nobody_write_it() -> None:
    pod = pod_of("deploy/overlays/nvidia")
    (container,) = pod["containers"]
    values = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert [one for one in pod["volumes"] if one["name"] == "host"] == [
        {"name": "host", "hostPath": {"path": "/", "type": "Directory"}}
    ]
    (mount,) = [one for one in container["volumeMounts"] if one["name"] == "host"]
    assert mount == {"name": "host", "mountPath": values["CLAIMD_HOST_ROOT"], "readOnly": True}


def test_the_overlay_for_the_kernels_log_adds_one_capability() -> None:
    (before,), (after,) = (
        pod_of("deploy/base")["containers"],
        pod_of("deploy/overlays/kernel-log")["containers"],
    )
    assert after["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["SYSLOG"]} | {
        key: value
        for key, value in before["securityContext"]["capabilities"].items()
        if key not in ("drop", "add")
    }
