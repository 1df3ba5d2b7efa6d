"""A process is the host's by who it is. What it calls itself does not matter."""

import pytest

from claimd.tools.doctor import processes
from tests.support import host_process

CONTAINERD = "/usr/bin/containerd --config /opt/c.toml"


def commands(root):
    return [command.words for command in processes.host_commands(str(root / "proc"), str(root))]


def test_a_service_of_the_host(tmp_path):
    host_process.write(tmp_path, 7, CONTAINERD)
    assert commands(tmp_path) == [("/usr/bin/containerd", "--config", "/opt/c.toml")]


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/../../../system.slice/k3s.service",
        "/system.slice/snap.microk8s.daemon-containerd.service",
        "/user.slice/user-0.slice/session-1.scope",
    ],
)
def test_places_of_services(tmp_path, path):
    host_process.write(tmp_path, 7, CONTAINERD, cgroup=path)
    assert commands(tmp_path)


POD = "0123abcd-0000-4000-8000-00000000beef"


@pytest.mark.parametrize(
    "tenant",
    [
        {"uids": "65534 65534 65534 65534"},
        # A program that gave up root, and one that only looks like root's to the file system.
        {"uids": "0 1000 0 1000"},
        {"uids": "1000 0 0 0"},
        # Root of a user namespace, which a pod with `hostUsers: false` or rootless Docker has.
        {"uids": "100000 100000 100000 100000"},
        {"uid_map": "         0     100000      65536\n"},
        {"uid_map": "         0          0          1\n"},
        {"uid_map": ""},
        # The cgroups of pods, as systemd and cgroupfs name them, and as another pod sees them.
        {
            "cgroup": f"/kubepods.slice/kubepods-pod{POD.replace('-', '_')}.slice/cri-containerd-1.scope"
        },
        {"cgroup": f"/kubepods/besteffort/pod{POD}/1"},
        {"cgroup": f"/../../kubepods-besteffort-pod{POD.replace('-', '_')}.slice/x"},
        {"cgroup": f"/../../pod{POD}/1"},
        {"cgroup": f"/custom/pod{POD.replace('-', '')}/1"},
        # A container of the host's own Docker: its root is no folder of the host.
        {"mount": "0:61 /"},
        {"mount": "8:1 /var/lib/tenant"},
    ],
)
def test_a_tenant_that_calls_itself_containerd(tmp_path, tenant):
    host_process.write(tmp_path, 7, CONTAINERD, **tenant)
    assert commands(tmp_path) == []


@pytest.mark.parametrize("name", ["status", "uid_map", "cgroup", "mountinfo"])
def test_a_process_that_cannot_be_looked_at(tmp_path, name):
    host_process.write(tmp_path, 7, CONTAINERD)
    (tmp_path / f"proc/7/{name}").unlink()
    assert commands(tmp_path) == []


def test_every_hierarchy_of_cgroups_counts(tmp_path):
    host_process.write(tmp_path, 7, CONTAINERD)
    (tmp_path / "proc/7/cgroup").write_text(f"12:cpu:/\n11:devices:/kubepods/pod{POD}/x\n0::/\n")
    assert commands(tmp_path) == []


def test_without_a_view_of_the_host_nobody_is_the_host_s(tmp_path):
    host_process.write(tmp_path, 7, CONTAINERD)
    (tmp_path / "proc/self/mountinfo").write_text("")
    assert commands(tmp_path) == []


def test_this_machine():
    """The kernel's own table can be read, and holds nobody up."""
    for command in processes.host_commands("/proc", ""):
        assert command.words
