"""Clients of an MPS daemon: what their containers get, and which daemons are refused."""

import json
import os
import re
import socket

import pytest

from claimd.common import errors
from claimd.node.prepare import cdi, mps, plan
from claimd_devices.gpu import Inventory
from tests.support.worlds import DRIVER, NODE, claim, gpu, gpu_config, inventory, opaque, result

FOLDER = "/run/nvidia-mps"
FIRST, SECOND = gpu(0).name, gpu(1).name
SHARE = "1b2c3d4e-0000-4000-8000-000000000000"
NVIDIA = Inventory.from_unsorted(gpu(number, vendor="nvidia") for number in range(2))


def plan_claim(*results, known=NVIDIA, config=()):
    return plan.plan(
        claim(
            "c",
            *(results or (result(FIRST),)),
            config=[opaque(gpu_config(mps=FOLDER), "FromClass"), *config],
        ),
        driver=DRIVER,
        pool=NODE,
        inventory=known,
        neighbours=(),
        now="2026-01-01T00:00:00Z",
    )


def edits(*results, **more):
    """The CDI device of the claim's first device, and what the spec says for all."""
    spec = json.loads(cdi.build(plan_claim(*results, **more), NVIDIA))
    return spec["devices"][0]["containerEdits"]


def share(memory):
    return result(FIRST, shareID=SHARE, consumedCapacity={"memory": memory})


# ---------------------------------------------------------------------- what a container gets


@pytest.mark.parametrize(
    "memory, limit",
    [("10Gi", "0=10240M"), ("1", "0=1M"), ("2097151", "0=1M"), ("25753026560", "0=24560M")],
)
def test_a_share_of_the_memory_is_the_limit(memory, limit):
    environment = edits(share(memory))["env"]
    assert f"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT={limit}" in environment
    assert f"CUDA_MPS_PIPE_DIRECTORY={FOLDER}" in environment


def test_the_limit_does_not_depend_on_how_the_capacity_is_written():
    written = {"gpu.claimd.dev/memory": "10Gi"}
    environment = edits(result(FIRST, shareID=SHARE, consumedCapacity=written))["env"]
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=10240M" in environment


@pytest.mark.parametrize(
    "results", [(), (result(FIRST, shareID=SHARE, consumedCapacity={"shares": "1"}),)]
)
def test_without_a_share_of_the_memory_there_is_no_limit(results):
    environment = edits(*results)["env"]
    assert f"CUDA_MPS_PIPE_DIRECTORY={FOLDER}" in environment
    assert not any(variable.startswith("CUDA_MPS_PINNED") for variable in environment)


def test_the_folder_is_mounted_and_nobody_puts_sockets_into_it():
    (mount,) = edits()["mounts"]
    assert mount["hostPath"] == mount["containerPath"] == FOLDER
    assert set(mount["options"]) == {"ro", "nosuid", "nodev", "noexec", "bind"}


def test_a_class_says_how_many_threads_by_a_variable_that_stands():
    threads = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25"}
    of_class = opaque(gpu_config(environment=threads), "FromClass")
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25" in edits(config=[of_class])["env"]
    other = opaque(gpu_config(environment={"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100"}))
    with pytest.raises(errors.ClaimError, match="which the class sets already"):
        plan_claim(config=[of_class, other])


@pytest.mark.parametrize("source", ["FromClass", "FromClaim"])
@pytest.mark.parametrize("name", ["CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"])
def test_nobody_sets_the_variables_that_make_a_client(name, source):
    with pytest.raises(errors.ClaimError, match=f"sets {name}, which claimd sets itself"):
        plan_claim(config=[opaque(gpu_config(environment={name: "x"}), source)])


def test_who_is_no_client_may_set_them():
    planned = plan.plan(
        claim(
            "c",
            result(FIRST),
            config=[opaque(gpu_config(environment={"CUDA_MPS_PIPE_DIRECTORY": "/x"}))],
        ),
        driver=DRIVER,
        pool=NODE,
        inventory=NVIDIA,
        neighbours=(),
        now="2026-01-01T00:00:00Z",
    )
    assert planned.devices[0].environment == {"CUDA_MPS_PIPE_DIRECTORY": "/x"}


def test_who_looks_on_by_admin_access_is_no_client():
    (device,) = plan_claim(result(FIRST, adminAccess=True)).devices
    assert not device.mps


# ---------------------------------------------------------------------- who is refused


def test_a_gpu_of_another_vendor():
    with pytest.raises(errors.ClaimError, match=f"NVIDIA's GPUs alone have; {FIRST} is of amd"):
        plan_claim(known=inventory())


@pytest.mark.parametrize(
    "results",
    [
        (result(FIRST), result(SECOND)),
        (
            share("1Gi"),
            result(FIRST, shareID=SHARE.replace("1", "2"), consumedCapacity={"memory": "1Gi"}),
        ),
    ],
)
def test_a_claim_of_several_devices(results):
    with pytest.raises(errors.ClaimError, match="the claim has 2 devices, and its class"):
        plan_claim(*results)


@pytest.fixture
def host(tmp_path):
    """The host's root, with a daemon."""
    (tmp_path / "run").mkdir(mode=0o755)
    (tmp_path / "run/nvidia-mps").mkdir(mode=0o755)
    with socket.socket(socket.AF_UNIX) as listening:
        here = os.open(tmp_path / "run/nvidia-mps", os.O_PATH)
        listening.bind(f"/proc/self/fd/{here}/control")
        os.close(here)
        yield tmp_path


def refusal(host, owner=None):
    daemons = mps.Daemons(host=str(host), owner=os.getuid() if owner is None else owner)
    try:
        daemons.refuse_without(plan_claim())
    except errors.ClaimError as error:
        return str(error)
    return ""


def test_a_daemon_of_root_is_taken(host):
    assert refusal(host) == ""
    (host / "run").chmod(0o1777)
    assert refusal(host) == "", "nobody moves another's folder out of /tmp"


def test_who_is_no_client_needs_no_daemon(tmp_path):
    without = plan.plan(
        claim("c", result(FIRST)),
        driver=DRIVER,
        pool=NODE,
        inventory=NVIDIA,
        neighbours=(),
        now="2026-01-01T00:00:00Z",
    )
    mps.Daemons(host=str(tmp_path)).refuse_without(without)


@pytest.mark.parametrize("missing", ["run/nvidia-mps/control", "run/nvidia-mps", "run"])
def test_a_daemon_that_is_not_there(host, missing):
    (host / "run/nvidia-mps/control").unlink()
    if missing != "run/nvidia-mps/control":
        (host / "run/nvidia-mps").rmdir()
    if missing == "run":
        (host / "run").rmdir()
    said = refusal(host)
    assert said.startswith(
        f"no MPS daemon runs in {FOLDER}, which the class names: /{missing}: No such"
    )
    assert "the setting host-root" in said


def test_a_file_in_the_place_of_the_socket(host):
    (host / "run/nvidia-mps/control").unlink()
    (host / "run/nvidia-mps/control").touch()
    assert "/run/nvidia-mps/control is no socket" in refusal(host)


@pytest.mark.parametrize(
    "place, mode",
    [("run", 0o777), ("run", 0o775), ("run/nvidia-mps", 0o757), ("run/nvidia-mps", 0o1777)],
)
def test_a_folder_in_which_others_may_write(host, place, mode):
    (host / place).chmod(mode)
    assert re.search(rf"others than root may write in /{place} \(mode {mode:04o}\)", refusal(host))


def test_a_folder_of_another_user(host):
    said = refusal(host, owner=os.getuid() + 1)
    assert f"/run is of user {os.getuid()}, who may pose as the daemon" in said


def test_a_link(host):
    (host / "run").rename(host / "other")
    (host / "run").symlink_to("other")
    assert "/run is no folder; it has to be named without links" in refusal(host)
