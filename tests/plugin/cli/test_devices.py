"""The GPUs of a machine as people and tools see them."""

import json

import pytest
import yaml


def test_devices_as_a_table(claimd, tree):
    code, out, _ = claimd("devices", "--root", tree)
    lines = out.splitlines()
    assert code == 0
    assert lines[0].split() == ["NAME", "VENDOR", "PRODUCT", "MEMORY", "NUMA", "DRIVER"]
    assert sum(line.startswith("gpu-") for line in lines) == 3
    assert any(line.startswith("left alone: 0000:00:02.0: an ASPEED") for line in lines)


def test_devices_for_tools(claimd, tree):
    _, out, _ = claimd("devices", "--root", tree, "-o", "json")
    parsed = json.loads(out)
    assert {gpu["vendor"] for gpu in parsed["gpus"]} == {"nvidia", "amd"}
    assert parsed["gpus"][0]["nodes"][0].keys() == {"path", "major", "minor"}
    assert parsed["skipped"][0]["address"] == "0000:00:02.0"
    _, out, _ = claimd("devices", "--root", tree, "-o", "yaml")
    assert yaml.safe_load(out) == parsed


def test_wide_shows_nodes_and_uuids(claimd, tree):
    _, out, _ = claimd("devices", "--root", tree, "-o", "wide")
    assert "GPU-" in out
    assert "nvidiactl" in out


FAULTS = {  # of those that one look can see, with what it says
    "wedge": "failed: the GPU hangs",
    "hot": "degraded: ",
    "aer": "note: the PCIe port has reported fatal errors",
    "link": "degraded: its PCIe link has 4 of 16 lanes",
    "xid": "failed: the NVIDIA driver reported Xid 79",
    "eio": "failed: reading config fails",
    "hang": "unknown: the kernel's files of this GPU do not answer",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_wide_shows_a_fault_until_it_is_healed(claimd, tree, tmp_path, fault):
    claimd("fake", "fault", tree, fault, "gpu-0000-11-00-0")
    arguments = ("devices", "--root", tree, "--kubelet-dir", str(tmp_path), "-o", "wide")
    _, out, _ = claimd(*arguments)
    said = [
        line for line in out.splitlines() if line.startswith(f"gpu-0000-11-00-0: {FAULTS[fault]}")
    ]
    assert len(said) == 1
    assert ("(since 20" in said[0]) == (fault in ("wedge", "xid")), "what the kernel's log has told"
    claimd("fake", "fault", tree, "heal", "gpu-0000-11-00-0")
    _, out, _ = claimd(*arguments)
    assert FAULTS[fault] not in out


def test_wide_shows_other_numbers(claimd, tree):
    claimd("fake", "fault", tree, "renumber", "gpu-0000-17-00-0")
    _, out, _ = claimd("devices", "--root", tree, "-o", "wide")
    (line,) = [line for line in out.splitlines() if line.startswith("gpu-0000-17-00-0 ")]
    assert "dri/card11,dri/renderD139" in line


def test_wide_says_why_it_does_not_know_what_was_seen(claimd, tree, tmp_path):
    (tmp_path / "plugins/gpu.claimd.dev").mkdir(parents=True)
    (tmp_path / "plugins/gpu.claimd.dev/health.json").write_text("{")
    code, out, _ = claimd("devices", "--root", tree, "--kubelet-dir", str(tmp_path), "-o", "wide")
    assert code == 0
    assert "not known: what a running claimd has seen: " in out


def test_rules_come_from_the_configuration(claimd, tree, tmp_path, monkeypatch):
    monkeypatch.setenv("CLAIMD_EXCLUDE", "nvidia")
    _, out, _ = claimd("devices", "--root", tree, "-o", "json")
    assert {gpu["vendor"] for gpu in json.loads(out)["gpus"]} == {"amd"}


def test_no_gpu_is_an_answer(claimd, tmp_path):
    code, out, _ = claimd("devices", "--root", str(tmp_path))
    assert code == 0
    assert out.startswith(f"no GPUs found under {tmp_path}/sys\n")
    assert "no PCI device can be seen" in out


def test_wide_says_once_what_is_the_same(claimd, tree, tmp_path):
    arguments = ("devices", "--kubelet-dir", str(tmp_path), "-o", "wide", "--root")
    _, out, _ = claimd(*arguments, tree)
    (line,) = [line for line in out.splitlines() if "libraries: none" in line]
    assert line.startswith("all GPUs of nvidia: libraries: ")

    alone = str(tmp_path / "alone")
    claimd("fake", "write", alone, "nvidia:h100=3")
    _, out, _ = claimd(*arguments, alone)
    (line,) = [line for line in out.splitlines() if "libraries: none" in line]
    assert line.startswith("all GPUs: libraries: ")
    claimd("fake", "fault", alone, "hot", "gpu-0000-11-00-0")
    claimd("fake", "fault", alone, "hot", "gpu-0000-13-00-0")
    _, out, _ = claimd(*arguments, alone)
    hot = [line.split(":")[0] for line in out.splitlines() if "critical" in line]
    assert hot == ["gpu-0000-11-00-0", "gpu-0000-13-00-0"], "two of three"

    claimd("fake", "write", alone, "nvidia:h100")
    _, out, _ = claimd(*arguments, alone)
    assert "\ngpu-0000-11-00-0: libraries: " in out, "one GPU has a name"
