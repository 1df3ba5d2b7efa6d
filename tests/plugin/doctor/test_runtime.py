"""Runtimes by their versions and configurations, as the files of a host have them."""

import dataclasses

import pytest

from plugin import config
from plugin.doctor import runtime, sight
from plugin.doctor.check import Level


def look(root, version, **settings):
    settings = config.Config(root=str(root), cdi_dir=root / "run/cdi", **settings)
    facts = runtime.look(sight.of(settings, {}), version)
    return dataclasses.replace(facts, cdi_dir="/var/run/cdi")


def levels(facts):
    return {finding.check: finding.level for finding in runtime.judge(facts, "how")}


def seen(facts, check):
    (text,) = [finding.seen for finding in runtime.judge(facts, "how") if finding.check == check]
    return text


@pytest.fixture
def root(tmp_path):
    (tmp_path / "run/cdi").mkdir(parents=True)
    (tmp_path / "proc").mkdir()
    return tmp_path


def write(root, path, text):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


V2 = '[plugins."io.containerd.grpc.v1.cri"]\n'


def test_containerd_by_what_its_version_does_by_itself(root):
    assert levels(look(root, "containerd://1.7.35"))["cdi-enabled"] is Level.ERROR
    assert levels(look(root, "containerd://2.2.9"))["cdi-enabled"] is Level.WELL
    assert levels(look(root, ""))["cdi-enabled"] is Level.UNSEEN
    write(root, "etc/containerd/config.toml", f"version = 2\n{V2}enable_cdi = true\n")
    assert set(levels(look(root, "containerd://1.7.35")).values()) == {Level.WELL}


def test_what_is_to_be_written_names_the_file(root):
    write(root, "var/lib/rancher/k3s/agent/etc/containerd/config.toml", "version = 2\n")
    findings = runtime.judge(look(root, "containerd://1.7.35"), "how")
    (remedy,) = [finding.remedy for finding in findings if finding.check == "cdi-enabled"]
    assert "/var/lib/rancher/k3s/agent/etc/containerd/config.toml" in remedy
    assert "enable_cdi = true" in remedy
    assert "config.toml.tmpl" in remedy


def test_the_configuration_that_containerd_was_started_with(root):
    """It counts, not the one in the usual place; what it imports counts more."""
    write(root, "etc/containerd/config.toml", f"{V2}enable_cdi = false\n")
    write(root, "opt/c.toml", f'imports = ["conf.d/*.toml"]\n{V2}cdi_spec_dirs = ["/x"]\n')
    write(root, "opt/conf.d/a.toml", f'{V2}enable_cdi = true\ncdi_spec_dirs = ["/run/cdi/"]\n')
    write(root, "opt/conf.d/b.txt", "no toml")
    (root / "proc/7").mkdir()
    (root / "proc/7/cmdline").write_bytes(b"/usr/bin/containerd\0--config\0/opt/c.toml\0")
    facts = look(root, "containerd://1.7.35")
    assert (facts.config, facts.enable_cdi, facts.folders) == ("/opt/c.toml", True, ("/run/cdi/",))
    assert facts.place == "/opt/conf.d/a.toml", "where it is to be changed"
    assert set(levels(facts).values()) == {Level.WELL}, "/var/run is /run"


def test_cgroups_by_the_kubelet_where_the_runtime_does_not_say(root):
    assert look(root, "containerd://2.2.9").systemd_cgroup is None
    write(root, "var/lib/kubelet/config.yaml", "kind: X\ncgroupDriver: systemd\n")
    assert look(root, "containerd://2.2.9").systemd_cgroup is True
    (root / "proc/9").mkdir()
    (root / "proc/9/cmdline").write_bytes(b"/usr/bin/kubelet\0--config=/opt/k.json\0")
    write(root, "opt/k.json", '{\n "cgroupDriver": "cgroupfs"}')
    assert look(root, "containerd://2.2.9").systemd_cgroup is False
    runc = '[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]\n'
    write(root, "etc/containerd/config.toml", f"{runc}SystemdCgroup = true\n")
    assert look(root, "containerd://2.2.9").systemd_cgroup is True, "the runtime makes them"


def test_crio_has_cdi_and_perhaps_other_folders(root):
    facts = look(root, "cri-o://1.36.0")
    assert set(levels(facts).values()) == {Level.WELL}
    assert facts.systemd_cgroup, "its default"
    write(root, "etc/crio/crio.conf", '[crio.runtime]\ncgroup_manager = "cgroupfs"\n')
    write(root, "etc/crio/crio.conf.d/10.conf", '[crio.runtime]\ncdi_spec_dirs = ["/etc/cdi"]\n')
    for version in ("cri-o://1.36.0", ""):
        facts = look(root, version)
        assert facts.systemd_cgroup is False
        assert levels(facts)["cdi-folders"] is Level.ERROR
        assert "the runtime looks in /etc/cdi (/etc/crio/crio.conf.d/10.conf)" in seen(
            facts, "cdi-folders"
        )


@pytest.mark.parametrize(
    ("version", "level"),
    [
        ("docker://28.1.0", Level.ERROR),
        ("containerd://1.6.36", Level.ERROR),
        ("containerd://1.7.0-rc.1", Level.WELL),
        ("containerd://v2.1", Level.WELL),
        ("cri-o://1.30.2", Level.WELL),
        ("", Level.UNSEEN),
    ],
)
def test_versions(root, version, level):
    assert levels(look(root, version))["runtime-version"] is level


def test_folders_that_cannot_be_written(tmp_path, root):
    file = tmp_path / "file"
    file.touch()
    assert "is no folder" in runtime.folder_trouble(str(file), str(file))
    assert "there is no folder /x" in runtime.folder_trouble(str(tmp_path / "x"), "/x")
    assert runtime.folder_trouble(str(root), str(root)) == ""
