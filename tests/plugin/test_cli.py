"""The command line as people and tools see it."""

import json
import os
import signal
import subprocess
import sys

import pytest
import yaml

from devices import fake
from plugin import cli


@pytest.fixture
def tree(tmp_path):
    fake.write(tmp_path / "t", fake.parse(["nvidia:h100=2", "amd:mi300x", "bmc:aspeed"]))
    return str(tmp_path / "t")


def run(capsys, *arguments):
    code = cli.main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def test_devices_as_a_table(capsys, tree):
    code, out, _ = run(capsys, "devices", "--root", tree)
    lines = out.splitlines()
    assert code == 0
    assert lines[0].split() == ["NAME", "VENDOR", "PRODUCT", "MEMORY", "NUMA", "DRIVER"]
    assert sum(line.startswith("gpu-") for line in lines) == 3
    assert any(line.startswith("left alone: 0000:00:02.0: an ASPEED") for line in lines)


def test_devices_for_tools(capsys, tree):
    _, out, _ = run(capsys, "devices", "--root", tree, "-o", "json")
    parsed = json.loads(out)
    assert {gpu["vendor"] for gpu in parsed["gpus"]} == {"nvidia", "amd"}
    assert parsed["gpus"][0]["nodes"][0].keys() == {"path", "major", "minor"}
    assert parsed["skipped"][0]["address"] == "0000:00:02.0"
    _, out, _ = run(capsys, "devices", "--root", tree, "-o", "yaml")
    assert yaml.safe_load(out) == parsed


def test_wide_shows_nodes_and_uuids(capsys, tree):
    _, out, _ = run(capsys, "devices", "--root", tree, "-o", "wide")
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


@pytest.mark.parametrize("order", FAULTS)
def test_wide_shows_a_fault_until_it_is_healed(capsys, tree, tmp_path, order):
    run(capsys, "fake", tree, order, "gpu-0000-11-00-0")
    arguments = ("devices", "--root", tree, "--kubelet-dir", str(tmp_path), "-o", "wide")
    _, out, _ = run(capsys, *arguments)
    said = [
        line for line in out.splitlines() if line.startswith(f"gpu-0000-11-00-0: {FAULTS[order]}")
    ]
    assert len(said) == 1
    assert ("(since 20" in said[0]) == (order in ("wedge", "xid")), "what the kernel's log has told"
    run(capsys, "fake", tree, "heal", "gpu-0000-11-00-0")
    _, out, _ = run(capsys, *arguments)
    assert FAULTS[order] not in out


def test_wide_shows_other_numbers(capsys, tree):
    run(capsys, "fake", tree, "renumber", "gpu-0000-17-00-0")
    _, out, _ = run(capsys, "devices", "--root", tree, "-o", "wide")
    (line,) = [line for line in out.splitlines() if line.startswith("gpu-0000-17-00-0 ")]
    assert "dri/card4,dri/renderD132" in line


def test_wide_says_why_it_does_not_know_what_was_seen(capsys, tree, tmp_path):
    (tmp_path / "plugins/gpu.claimd.dev").mkdir(parents=True)
    (tmp_path / "plugins/gpu.claimd.dev/health.json").write_text("{")
    code, out, _ = run(
        capsys, "devices", "--root", tree, "--kubelet-dir", str(tmp_path), "-o", "wide"
    )
    assert code == 0
    assert "not known: what a running claimd has seen: " in out


def test_slices_are_objects_that_kubectl_takes(capsys, tree):
    _, out, _ = run(capsys, "slices", "--root", tree, "--node-name", "n", "-o", "json")
    (item,) = json.loads(out)["items"]
    assert (item["apiVersion"], item["kind"]) == ("resource.k8s.io/v1", "ResourceSlice")
    assert item["spec"]["nodeName"] == "n"
    assert len(item["spec"]["devices"]) == 3
    _, out, _ = run(capsys, "slices", "--root", tree, "--node-name", "n")
    assert out.splitlines()[1].split()[-2:] == ["n", "3"]
    _, out, _ = run(capsys, "slices", "--root", tree, "--node-name", "n", "-o", "wide")
    assert any(line.split()[2:] == ["vendor", "amd"] for line in out.splitlines())


def test_rules_come_from_the_configuration(capsys, tree, tmp_path, monkeypatch):
    monkeypatch.setenv("CLAIMD_EXCLUDE", "nvidia")
    _, out, _ = run(capsys, "devices", "--root", tree, "-o", "json")
    assert {gpu["vendor"] for gpu in json.loads(out)["gpus"]} == {"amd"}


@pytest.mark.parametrize("command", [("devices",), ("slices",), ("capture", "x.tar")])
def test_a_root_that_is_not_there(capsys, tmp_path, command):
    code, out, err = run(capsys, *command, "--root", str(tmp_path / "nowhere"))
    assert (code, out) == (1, "")
    assert err.startswith(f"claimd: {tmp_path}/nowhere: there is no such folder or capture")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a: [1\nb: }\n", "line 2, column 2: expected ',' or ']', but got ':'"),
        ("a: \x01", "character 4: special characters are not allowed"),
    ],
)
@pytest.mark.parametrize(
    "command", [("devices", "--config"), ("convert", "-f"), ("explain", "x", "-f")]
)
def test_a_file_that_is_no_yaml_is_named_with_the_place(capsys, tmp_path, command, content, said):
    (tmp_path / "bad.yaml").write_text(content)
    code, _, err = run(capsys, *command, str(tmp_path / "bad.yaml"))
    assert code in (1, 2)
    (line,) = err.splitlines()
    assert f"{tmp_path}/bad.yaml" in line
    assert line.endswith(said)


def test_no_gpu_is_an_answer(capsys, tmp_path):
    code, out, _ = run(capsys, "devices", "--root", str(tmp_path))
    assert code == 0
    assert out.startswith(f"no GPUs found under {tmp_path}/sys\n")
    assert "no PCI device can be seen" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["devices", "--include", "gpu7"], "gpu7"),
        (["devices", "--log-level", "loud"], "--log-level: expected one of debug"),
        (["run"], "node-name is not set"),
        (["probe", "live"], "endpoint is not set"),
        (["fake", "/proc/x", "nvidia:h100"], "cannot write the fake tree"),
    ],
)
def test_what_is_wrong_is_said_on_stderr(capsys, arguments, words):
    code, out, err = run(capsys, *arguments)
    assert code in (1, 2)
    assert out == ""
    assert err.startswith("claimd: ")
    assert words in err


def test_fake_refuses_a_folder_that_is_not_its_own(capsys, tmp_path):
    (tmp_path / "precious").touch()
    code, _, err = run(capsys, "fake", str(tmp_path), "nvidia:h100")
    assert code == 2
    assert "neither empty nor a fake tree" in err
    assert (tmp_path / "precious").exists()


def test_fake_refuses_an_unknown_model_and_names_the_known(capsys, tmp_path):
    code, _, err = run(capsys, "fake", str(tmp_path / "t"), "nvidia:h1000")
    assert code == 2
    assert "nvidia:h100" in err


def test_a_wrong_flag_is_argparses(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["devices", "--nod", "x", "--no-such"])
    assert ended.value.code == 2


def test_version(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out.startswith("claimd 0.")


def test_a_capture_shows_what_the_machine_showed(capsys, tree, tmp_path):
    file = str(tmp_path / "node.tar")
    (tmp_path / "t/sys/module/nvidia/version").unlink()
    aer = next((tmp_path / "t/sys").rglob("0000:11:00.0/aer_dev_fatal"))
    aer.write_text(aer.read_text().replace("TOTAL_ERR_FATAL 0", "TOTAL_ERR_FATAL 3"))
    (tmp_path / "t/proc/driver/nvidia/version").write_bytes(b"\xff")  # a note with a path
    code, out, _ = run(capsys, "capture", "--root", tree, file)
    assert code == 0
    assert "3 GPUs" in out
    assert "--redact" in out
    for command in ("devices", "slices"):
        for output in ("json", "wide"):
            arguments = (command, "--node-name", "n", "-o", output, "--root")
            assert run(capsys, *arguments, file) == run(capsys, *arguments, tree)
    assert list(tmp_path.glob("claimd-*")) == []


def test_a_file_that_is_no_capture(capsys, tmp_path):
    (tmp_path / "x.tar").write_text("no")
    code, _, err = run(capsys, "devices", "--root", str(tmp_path / "x.tar"))
    assert code == 2
    assert "x.tar is no capture" in err


def test_a_capture_that_cannot_be_written(capsys, tree, tmp_path):
    code, _, err = run(capsys, "capture", "--root", tree, str(tmp_path / "none/x.tar"))
    assert code == 1
    assert "No such file" in err


def test_help_names_every_command():
    told = subprocess.run(
        [sys.executable, "-m", "plugin", "--help"], capture_output=True, text=True, check=True
    ).stdout
    for command in ("run", "devices", "slices", "fake", "capture", "convert", "explain", "probe"):
        assert f"\n    {command} " in told


def test_ctrl_c_before_anything_is_up(tmp_path):
    os.mkfifo(tmp_path / "story")
    command = [sys.executable, "-m", "plugin", "demo", str(tmp_path / "story")]
    heeds = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731 - who runs the tests may not
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=heeds) as demo:
        with (tmp_path / "story").open("w"):  # open once it is read
            demo.send_signal(signal.SIGINT)
            assert demo.wait(10) == cli.FAILED
        assert demo.stderr.read() == "claimd: stopped\n"
