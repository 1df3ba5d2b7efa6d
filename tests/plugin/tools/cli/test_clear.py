"""A person clears the findings of a GPU."""

import os

import pytest

from claimd_devices import fake, faults

GPU = "gpu-0000-11-00-0"


@pytest.fixture
def node(claimd, tmp_path):
    """Runs a command on a sick node with a MIG GPU, and returns what it returns."""
    tree = tmp_path / "tree"
    fake.write(tree, fake.parse(["nvidia:a100,mig=2", "nvidia:h100"]))
    (tmp_path / "plugins/gpu.claimd.dev").mkdir(parents=True)
    for value in ("79", "46,instance=7"):
        faults.inject(tree, "xid", GPU, value)

    def run(command, *words):
        return claimd(command, *words, "--root", str(tree), "--kubelet-dir", str(tmp_path))

    return run


def findings(node):
    lines = node("devices", "-o", "wide")[1].splitlines()
    return sorted({line.split(":")[0] for line in lines if ": failed: " in line})


def test_what_is_cleared_is_not_shown_any_more(node):
    assert findings(node) == [GPU, f"{GPU}-mig-7-0", f"{GPU}-mig-8-0"]
    code, out, _ = node("clear", GPU, "--by", "ann", "--reason", "new riser")
    assert code == 0
    assert out == (
        f"{GPU}: its findings were cleared by ann: new riser; "
        "a running claimd follows at its next look\n"
    )
    assert findings(node) == []


def test_an_instance_is_cleared_alone(node):
    code, _, _ = node("clear", f"{GPU}-mig-7-0")
    assert code == 0
    assert findings(node) == [GPU, f"{GPU}-mig-8-0"]


def test_a_device_that_does_not_exist_is_refused(node):
    code, _, error = node("clear", "gpu-0000-11-00-1")
    assert code == 2
    assert error == (
        "claimd: no gpu-0000-11-00-1 on this machine; its GPUs are like "
        f"{GPU}, gpu-0000-13-00-0, {GPU}-mig-8-0, {GPU}-mig-7-0\n"
    )


def test_a_folder_that_cannot_be_written_is_named(node, tmp_path):
    os.rmdir(tmp_path / "plugins/gpu.claimd.dev")
    code, _, error = node("clear", GPU)
    assert code == 1
    assert f"cannot write into {tmp_path}/plugins/gpu.claimd.dev: No such file" in error
