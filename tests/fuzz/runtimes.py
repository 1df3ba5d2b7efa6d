"""A container runtime's configuration, as `claimd doctor` reads it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from claimd.node import config
from claimd.tools.doctor import runtime, runtime_config, sight

from . import target

_VERSIONS = ("containerd://1.7.35", "containerd://2.2.9", "cri-o://1.34.0")
_SPLIT = b"\n# next\n"


@cache
def _host() -> Path:
    host = target.folder() / "node"
    for folder in ("etc/containerd/conf.d", "etc/crio/crio.conf.d", "proc/7", "opt"):
        (host / folder).mkdir(parents=True)
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


TARGETS = {
    "runtimes": target.Target(
        read=_runtime,
        parts=(runtime_config, runtime._judge_cdi, runtime._judge_folders),
        examples=_configurations,
        words=(_SPLIT, b"imports = [", b"*", b"cdi_spec_dirs = ", b"\0--config\0", b"\0-c=", b"= "),
        longest=1000,
    ),
}
