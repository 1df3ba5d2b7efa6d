from __future__ import annotations

import json
from pathlib import Path

import pytest

from claimd_devices import host_cdi
from claimd_devices.host_files import HostFiles
from tests.support.driver_layouts import cdi_yaml


def ids(host: Path) -> list[str]:
    notes: list[str] = []
    devices = host_cdi.devices(HostFiles(str(host)), notes)
    assert notes == []
    return [device.id for device in devices]


def write_spec(host: Path, name: str, text: str) -> None:
    folder = host / "etc/cdi"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def test_kinds_of_nvidias_tools(tmp_path: Path) -> None:
    kinds = ["nvidia.com/gpu", "k8s.device-plugin.nvidia.com/gpu", "management.nvidia.com/gpu"]
    for kind in [*kinds, "nvidia.com/gds", "evilnvidia.com/gpu", "k8s.gpu.nvidia.com/claim"]:
        write_spec(
            tmp_path,
            f"nvidia-{kind.replace('/', '-')}.yaml",
            cdi_yaml(kind, [("0", "/dev/nvidia0")], ()),
        )
    assert ids(tmp_path) == [f"{kind}=0" for kind in (kinds[0], kinds[1], kinds[2])]


def test_a_spec_without_devices_has_none(tmp_path: Path) -> None:
    write_spec(tmp_path, "nvidia.yaml", "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n")
    assert ids(tmp_path) == []


def test_as_json(tmp_path: Path) -> None:
    document = {
        "kind": "nvidia.com/gpu",
        "devices": [
            {"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia3"}]}},
            {"name": "not/a name", "containerEdits": {}},
        ],
    }
    write_spec(tmp_path, "nvidia.json", json.dumps(document))
    (device,) = host_cdi.devices(HostFiles(str(tmp_path)), [])
    assert (device.id, device.name, device.nodes) == ("nvidia.com/gpu=0", "0", {"/dev/nvidia3"})


def test_files_of_others_are_not_opened(tmp_path: Path) -> None:
    write_spec(tmp_path, "vendor.yaml", cdi_yaml("nvidia.com/gpu", [("0", "/dev/nvidia0")], ()))
    write_spec(tmp_path, ".nvidia.yaml", cdi_yaml("nvidia.com/gpu", [("0", "/dev/nvidia0")], ()))
    assert ids(tmp_path) == []


@pytest.mark.parametrize("as_json", [False, True])
def test_the_first_file_that_is_missing_is_told(tmp_path: Path, as_json: bool) -> None:
    files = ["/usr/lib64/libcuda.so.1.2", "/usr/bin/hook", "/run/socket"]
    text = cdi_yaml("nvidia.com/gpu", [("0", "/dev/nvidia0")], files)
    name = "nvidia.yaml"
    if as_json:
        mounts = [{"hostPath": file, "containerPath": "/elsewhere"} for file in files]
        hooks = [{"hookName": "createContainer", "path": "/usr/bin/hook"}]
        edits = {"mounts": mounts, "hooks": hooks, "deviceNodes": [{"path": "/dev/nvidia0"}]}
        document = {"kind": "nvidia.com/gpu", "devices": [{"name": "0"}], "containerEdits": edits}
        text, name = json.dumps(document), "nvidia.json"
    write_spec(tmp_path, name, text)

    def missing() -> str | None:
        (device,) = host_cdi.devices(HostFiles(str(tmp_path)), [])
        return device.spec.missing

    assert missing() is None, "none is there: the host's root is not seen"
    for file in files:
        (tmp_path / file.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file.lstrip("/")).touch()
    assert missing() is None
    (tmp_path / "usr/bin/hook").unlink()
    assert missing() == "/usr/bin/hook"


@pytest.mark.parametrize(
    ("text", "error"),
    [('{"kind": "nvidia.com/gpu"}', "KeyError"), ("[" * 50_000, "RecursionError")],
)
def test_what_cannot_be_understood_is_noted(tmp_path: Path, text: str, error: str) -> None:
    write_spec(tmp_path, "nvidia.json", text)
    notes: list[str] = []
    assert host_cdi.devices(HostFiles(str(tmp_path)), notes) == ()
    assert notes == [f"/etc/cdi/nvidia.json: cannot be understood: {error}"]


def test_what_cannot_be_read_leaves_the_others(tmp_path: Path) -> None:
    write_spec(tmp_path, "nvidia.yaml", cdi_yaml("nvidia.com/gpu", [("0", "/dev/nvidia0")], ()))
    (tmp_path / "etc/cdi/nvidia-gone.json").symlink_to("nothing")
    (tmp_path / "etc/cdi/nvidia-folder.json").mkdir()
    devices = host_cdi.devices(HostFiles(str(tmp_path)), [])
    assert [device.id for device in devices] == ["nvidia.com/gpu=0"]
