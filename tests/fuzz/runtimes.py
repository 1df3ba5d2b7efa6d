"""A container runtime's configuration and the table of processes, as `claimd doctor` reads them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from claimd.node import config
from claimd.tools.doctor import processes, root_files, runtime, runtime_config, sight
from claimd_devices.host_files import HostFiles
from tests.support import host_process

from . import target

_VERSIONS = ("containerd://1.7.35", "containerd://2.2.9", "cri-o://1.34.0")
_SPLIT = b"\n# next\n"


@cache
def _host() -> Path:
    host = target.folder() / "node"
    for folder in ("etc/containerd/conf.d", "etc/crio/crio.conf.d", "proc/7", "opt"):
        (host / folder).mkdir(parents=True)
    host_process.write(host, 7, "containerd")
    return host


def _runtime(data: bytes) -> None:
    """A configuration, what stands beside it, and the words that the runtime was started with."""
    configuration, beside, words = (*data.split(_SPLIT), b"", b"")[:3]
    host = _host()
    (host / "etc/containerd/config.toml").write_bytes(configuration)
    (host / "etc/containerd/conf.d/a.toml").write_bytes(beside)
    (host / "etc/crio/crio.conf").write_bytes(configuration)
    (host / "etc/crio/crio.conf.d/10-a.conf").write_bytes(beside)
    (host / "proc/7/cmdline").write_bytes(words)

    settings = config.Config(root=str(host), cdi_dir=host)
    for version in _VERSIONS:
        # What was followed is remembered for one look.
        facts = runtime.look(sight.look_around(settings, {}), version)
        assert runtime.judge(facts, "look there")


def _configurations() -> list[bytes]:
    of_2 = b'[plugins."io.containerd.grpc.v1.cri"]\n'
    of_3 = b'[plugins."io.containerd.cri.v1.runtime"]\n'
    runc = b'[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]\n'
    crio = b'[crio.runtime]\ncgroup_manager = "cgroupfs"\ncdi_spec_dirs = ["/etc/cdi"]\n'
    folders = b'cdi_spec_dirs = ["/etc/cdi", "/run/cdi"]\n'
    containerd = b"/usr/bin/containerd\0--config\0/etc/containerd/config.toml\0"
    return [
        _SPLIT.join((b"version = 2\n" + of_2 + b"enable_cdi = true\n" + folders, b"", b"")),
        _SPLIT.join(
            (
                b'version = 3\nimports = ["conf.d/*.toml"]\n' + runc + b"SystemdCgroup = true\n",
                of_3 + b"enable_cdi = false\n",
                containerd,
            )
        ),
        _SPLIT.join(
            (
                crio,
                b'[crio.runtime]\ncgroup_manager = "systemd"\n',
                b"crio\0--cdi-spec-dirs=/a,/b\0-d\0/opt\0",
            )
        ),
        _SPLIT.join(
            (b'imports = ["/opt/gone.toml"]\n', b"", b"containerd\0-c=etc/containerd/config.toml\0")
        ),
    ]


_TABLE = ("status", "uid_map", "cgroup", "mountinfo", "cmdline")


def _processes(data: bytes) -> None:
    """Writes the files of one process, and those of its neighbour, which is the host's."""
    host = target.folder() / "table"
    host_process.write(host, 7, "/usr/bin/containerd")
    for name, content in zip(_TABLE, data.split(_SPLIT), strict=False):
        (host / "proc/7" / name).write_bytes(content)
    host_process.write(host, 8, "/usr/bin/kubelet --config=/etc/k.yaml")

    seen = sight.look_around(config.Config(root=str(host)), {})
    assert [command.number for command in seen.commands][-1:] == [8], "it hides nobody else"
    for name in ("containerd", "kubelet", "crio"):
        for flags in seen.flags_of(name):
            path = flags.path("config", "c")
            assert not path or path.startswith("/")


def _tables() -> list[bytes]:
    everybody = host_process.EVERYBODY.encode()
    mount = b"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
    words = b"/usr/bin/containerd\0--config\0/etc/c.toml\0"
    of_root, of_tenant = b"Name:\ta\nUid:\t0 0 0 0\n", b"Name:\ta\nUid:\t65534 0 0 0\n"
    pod = b"0::/kubepods.slice/kubepods-pod0123abcd_0000.slice/cri-containerd-1.scope\n"
    return [
        _SPLIT.join((of_root, everybody, b"0::/system.slice/c.service\n", mount, words)),
        _SPLIT.join((of_root, everybody, b"4:cpu:/\n0::/\n", mount, b"crio\0-c=a\0-d\0")),
        _SPLIT.join((of_tenant, everybody, b"0::/\n", mount, words)),
        _SPLIT.join((of_root, b"0 100000 65536\n", b"0::/\n", mount, words)),
        _SPLIT.join((of_root, everybody, pod, mount, words)),
        _SPLIT.join((of_root, everybody, b"0::/\n", b"", b"")),
    ]


def _toml(data: bytes) -> None:
    """Reads a file of TOML, which is a table, or has a fault with a place, or is too much."""
    host = target.folder() / "toml"
    host.mkdir(exist_ok=True)
    (host / "a.toml").write_bytes(data)
    try:
        document = runtime_config._read_toml(root_files.RootFiles(HostFiles(str(host))), "/a.toml")
    except ValueError as error:
        assert str(error).startswith("/a.toml: ")
    except root_files.NotReadError as error:
        assert "/a.toml" in str(error)
    else:
        assert isinstance(document, dict)


def _toml_files() -> list[bytes]:
    nested = b"[" * 200 + b"]" * 200
    return [
        b'version = 3\nimports = ["a.toml"]\n[plugins."a.b".c]\nd = {e = 1, f.g = [true]}\n',
        b"a.b.c = 1\na.b.d = 1979-05-27T07:32:00Z\n[[t]]\nx = 0x1f\n[[t]]\ny = inf\n",
        b'a = """\nmany\nlines"""\nb = \'\'\'raw\'\'\'\nc = "\\u0041"\n',
        b"a = " + nested + b"\n",
        b"a" + b".a" * 250 + b" = 1\n",
    ]


TARGETS = {
    "processes": target.Target(
        read=_processes,
        parts=(processes,),
        examples=_tables,
        words=(_SPLIT, b"Uid:\t", b"0 0 4294967295", b"/kubepods", b"/pod", b" / / ", b"8:1"),
    ),
    "toml": target.Target(
        read=_toml,
        parts=(runtime_config._read_toml, root_files),
        examples=_toml_files,
        words=(b".a", b'"""', b"[[", b"{a=", b"imports = [", b"\\U0001F600", b"1e400", b"_1"),
        longest=4000,
    ),
    "runtimes": target.Target(
        read=_runtime,
        parts=(runtime_config, runtime._judge_cdi, runtime._judge_folders),
        examples=_configurations,
        words=(_SPLIT, b"imports = [", b"*", b"cdi_spec_dirs = ", b"\0--config\0", b"\0-c=", b"= "),
        longest=1000,
    ),
}
