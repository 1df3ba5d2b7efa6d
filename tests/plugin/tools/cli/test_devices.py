"""The GPUs of a machine as people and tools see them."""

import json
from pathlib import Path

import pytest
import yaml

from claimd.node.prepare import checkpoint
from claimd.node.prepared import PreparedClaim, PreparedDevice
from claimd.tools.cli import devices
from claimd_devices import fake, faults
from claimd_devices.gpu import DeviceNode, Gpu
from tests.support import nvml_stub


def test_devices_as_a_table(claimd, tree):
    code, out, _ = claimd("devices", "--root", tree)
    lines = out.splitlines()
    assert code == 0
    assert lines[0].split() == ["NAME", "VENDOR", "PRODUCT", "MEMORY", "NUMA", "DRIVER"]
    assert sum(line.startswith("gpu-") for line in lines) == 3
    assert any(line.startswith("left alone: 0000:00:02.0: an ASPEED") for line in lines)


def test_devices_for_tools(claimd, tree):
    code, out, _ = claimd("devices", "--root", tree, "-o", "json")
    assert code == 0
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
    lines = [
        line for line in out.splitlines() if line.startswith(f"gpu-0000-11-00-0: {FAULTS[fault]}")
    ]
    assert len(lines) == 1
    assert ("(since 20" in lines[0]) == (fault in ("wedge", "xid")), (
        "what the kernel's log has told"
    )
    claimd("fake", "fault", tree, "heal", "gpu-0000-11-00-0")
    _, out, _ = claimd(*arguments)
    assert FAULTS[fault] not in out


def test_wide_says_what_is_not_seen_without_the_kernels_log(claimd, tree):
    arguments = ("devices", "--root", tree, "-o", "wide")
    assert "not watched" not in claimd(*arguments)[1]
    (Path(tree) / "dev/kmsg").mkdir()
    (line,) = [line for line in claimd(*arguments)[1].splitlines() if "not watched" in line]
    assert line.startswith(
        "not watched: Xid and SXid errors, resets that failed and hardware errors are not seen: "
    )
    assert line.endswith("dev/kmsg: Is a directory")


def test_wide_shows_other_numbers(claimd, tree):
    claimd("fake", "fault", tree, "renumber", "gpu-0000-17-00-0")
    _, out, _ = claimd("devices", "--root", tree, "-o", "wide")
    (line,) = [line for line in out.splitlines() if line.startswith("gpu-0000-17-00-0 ")]
    assert "dri/card11,dri/renderD138" in line


def test_wide_says_why_it_does_not_know_what_was_seen(claimd, tree, tmp_path):
    (tmp_path / "plugins/gpu.claimd.dev").mkdir(parents=True)
    (tmp_path / "plugins/gpu.claimd.dev/health.json").write_text("{")
    code, out, _ = claimd("devices", "--root", tree, "--kubelet-dir", str(tmp_path), "-o", "wide")
    assert code == 0
    assert "not known: what a running claimd has seen: " in out


def test_wide_shows_who_has_which_share(claimd, tree, tmp_path):
    """The setting and the checkpoints of a running claimd tell it."""
    shares = [
        PreparedDevice(
            requests=("gpu",),
            pool="n",
            device="gpu-0000-11-00-0",
            address="0000:11:00.0",
            share_id=f"share-{name}",
            consumed_capacity=consumed,
        )
        for name, consumed in (("a", {"memory": "10Gi"}), ("b", {}))
    ]
    claims = tmp_path / "plugins/gpu.claimd.dev/claims"
    claims.mkdir(parents=True)
    for name, share in zip("ab", shares, strict=True):
        claim = PreparedClaim(
            namespace="default", name=name, uid=name, prepared_at="", devices=(share,)
        )
        written = checkpoint.Checkpoint(version=1, boot_id="b", claim=claim)
        (claims / f"{name}.json").write_bytes(checkpoint.encode(written))

    arguments = ("devices", "--root", tree, "--kubelet-dir", str(tmp_path), "-o", "wide")
    _, out, _ = claimd(*arguments, "--share", "0000:11:00.0=memory:4Gi:1Gi")
    assert [line for line in out.splitlines() if ": shared: " in line or ": default/" in line] == [
        "gpu-0000-11-00-0: shared: by memory, 4Gi or more in steps of 1Gi",
        "gpu-0000-11-00-0: default/a has memory 10Gi",
        "gpu-0000-11-00-0: default/b has a share",
    ]
    _, out, _ = claimd(*arguments, "--share", "0000:11:00.0=memory:900Gi")
    assert (
        "gpu-0000-11-00-0: not shared by memory: with 80768Mi it has room for one share of" in out
    )
    (claims / "a.json").write_text("{}")
    _, out, _ = claimd(*arguments)
    assert f"not known: which claims have shares: {claims}/a.json: it has no checksum" in out
    code, _, err = claimd(*arguments, "--share", "nvidia=half")
    assert code == 2
    assert "'half' is no way to share" in err


def test_rules_come_from_the_configuration(claimd, tree, tmp_path, monkeypatch):
    monkeypatch.setenv("CLAIMD_EXCLUDE", "nvidia")
    _, out, _ = claimd("devices", "--root", tree, "-o", "json")
    assert {gpu["vendor"] for gpu in json.loads(out)["gpus"]} == {"amd"}


def test_no_gpu_is_an_answer(claimd, tmp_path):
    code, out, _ = claimd("devices", "--root", str(tmp_path))
    assert code == 0
    assert out.startswith(f"no GPUs found under {tmp_path}/sys\n")
    assert "no PCI device can be seen" in out


def test_no_gpu_in_a_capture_names_the_capture(claimd, tmp_path):
    file = str(tmp_path / "none.tar")
    (tmp_path / "machine/sys/bus/pci/devices").mkdir(parents=True)
    assert claimd("capture", "--root", str(tmp_path / "machine"), file)[0] == 0
    code, out, _ = claimd("devices", "--root", file)
    assert code == 0
    assert out.startswith(f"no GPUs found in {file}\n")


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


def test_nvidias_library_is_asked_only_if_it_may_be(claimd, tmp_path):
    tree = tmp_path / "divided"
    claimd("fake", "write", str(tree), "nvidia:a100,mig=1")
    nvml_stub.build(nvml_stub.place_in(tree))
    _, out, _ = claimd("devices", "--root", str(tree), "-o", "wide")
    assert "1g.10gb " in out
    _, out, _ = claimd("devices", "--root", str(tree), "-o", "wide", "--nvml", "true")
    assert "1g.10gb+me " in out
    _, out, _ = claimd("slices", "--root", str(tree), "-o", "json", "--nvml", "true")
    assert '"MIG-00000007-0000-0000-0000-000000000000"' in out


def gpu(**more):
    fields = {"address": "0000:11:00.0", "vendor": "amd", "vendor_id": 0x1002, "device_id": 1}
    return Gpu(**fields | more)


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (None, None),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (80 << 30, "80 GiB"),
        (1 << 40, "1 TiB"),
        (1536 << 20, "1.5 GiB"),
    ],
)
def test_sizes(count, shown):
    assert devices._size(count) == shown


@pytest.mark.parametrize(
    ("width", "speed", "shown"),
    [(16, 16000, "x16 16"), (4, 16000, "x4 16 of x16 16"), (None, None, "x16 16")],
)
def test_a_link_whose_state_is_not_known_shows_what_it_can_be(width, speed, shown):
    link = {"link_width": 16, "link_speed": 16000}
    now = {"link_width_now": width, "link_speed_now": speed}
    assert devices._link(gpu(name="gpu-1", driver="amdgpu", **link, **now)) == shown


@pytest.mark.parametrize("missing", ["link_width", "link_speed"])
def test_a_link_of_which_nothing_is_known_is_a_dash(missing):
    facts = {"link_width": 16, "link_speed": 2500, "link_width_now": 1, "link_speed_now": 2500}
    assert devices._link(gpu(name="g", driver="d", **facts)) == "x1 2.5 of x16 2.5"
    assert devices._link(gpu(name="g", driver="d", **(facts | {missing: None}))) is None
    half = facts | {f"{missing}_now": None}
    assert devices._link(gpu(name="g", driver="d", **half)) == "x16 2.5"


def test_a_gpu_as_a_row_of_the_widest_table(capsys):
    shown = gpu(
        name="gpu-1",
        driver="amdgpu",
        product="MI",
        memory=64 << 30,
        numa_node=0,
        driver_version="6.1",
        uuid="u",
        pcie_root="pci0000:10",
        family="CDNA",
        nodes=(
            DeviceNode(path="/dev/dri/card1", major=226, minor=1),
            DeviceNode(path="/dev/kfd", major=235, minor=0),
        ),
    )
    devices._print_gpus(devices.WIDE, [shown])
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == [title for title, _ in devices.WIDE]
    assert row.split() == [
        *("gpu-1", "amd", "MI", "64", "GiB", "0", "amdgpu", shown.kind, "-", "CDNA", "-", "6.1"),
        *("1002:0001", "pci0000:10", "u", "dri/card1,kfd"),
    ]
    devices._print_gpus(devices.NARROW, [])
    assert capsys.readouterr().out == "NAME  VENDOR  PRODUCT  MEMORY  NUMA  DRIVER\n"


def test_findings_for_programs_name_their_source(claimd, tmp_path):
    tree = tmp_path / "tree"
    fake.write(tree, fake.parse(["nvidia:h100"]))
    faults.inject(tree, "xid", "0000:11:00.0", "79")
    _, out, _ = claimd("devices", "--root", str(tree), "-o", "json")
    (finding,) = json.loads(out)["findings"]
    assert (finding["device"], finding["kind"], finding["value"], finding["source"]) == (
        "gpu-0000-11-00-0",
        "xid",
        "79",
        "kernel log",
    )
    _, out, _ = claimd("devices", "--root", str(tree), "-o", "wide")
    assert "reboot the node [kernel log] (since " in out
