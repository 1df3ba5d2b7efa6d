"""Runtimes by their versions and configurations, as the files of a host have them."""

import dataclasses
import os
import time

import pytest

from claimd.node import config
from claimd.tools.doctor import root_files, runtime, sight
from claimd.tools.doctor.check import Level
from tests.support import host_process


def look(root, version, **settings):
    settings = config.Config(root=str(root), cdi_dir=root / "run/cdi", **settings)
    facts = runtime.look(sight.look_around(settings, {}), version)
    folder = dataclasses.replace(facts.cdi, path="/var/run/cdi")
    return dataclasses.replace(facts, cdi=folder)


def levels(facts):
    return {finding.check: finding.level for finding in runtime.judge(facts, "how")}


def finding(facts, check):
    (result,) = [finding for finding in runtime.judge(facts, "how") if finding.check == check]
    return result


def text_of(facts, check):
    return finding(facts, check).seen


def remedy(facts, check):
    return finding(facts, check).remedy


@pytest.fixture
def root(tmp_path):
    (tmp_path / "run/cdi").mkdir(parents=True)
    (tmp_path / "proc").mkdir()
    return tmp_path


def write(root, path, text):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def running(root, words):
    host_process.write(root, 7, words)


V2 = '[plugins."io.containerd.grpc.v1.cri"]\n'
V3 = '[plugins."io.containerd.cri.v1.runtime"]\n'
CGROUPFS = 'cgroup_manager = "cgroupfs"\n'


def test_containerd_by_what_its_version_does_by_itself(root):
    assert levels(look(root, "containerd://1.7.35"))["cdi-enabled"] is Level.ERROR
    assert levels(look(root, "containerd://2.2.9"))["cdi-enabled"] is Level.WELL
    assert levels(look(root, ""))["cdi-enabled"] is Level.UNSEEN
    write(root, "etc/containerd/config.toml", f"version = 2\n{V2}enable_cdi = true\n")
    assert set(levels(look(root, "containerd://1.7.35")).values()) == {Level.WELL}


def test_what_is_to_be_written_names_the_file(root):
    write(root, "var/lib/rancher/k3s/agent/etc/containerd/config.toml", "version = 2\n")
    to_do = remedy(look(root, "containerd://1.7.35"), "cdi-enabled")
    assert "/var/lib/rancher/k3s/agent/etc/containerd/config.toml" in to_do
    assert "enable_cdi = true" in to_do
    assert "config.toml.tmpl" in to_do


@pytest.mark.parametrize(
    "words",
    [
        "/usr/bin/containerd --config /opt/c.toml",
        "containerd -l debug --config=/opt/c.toml",
        "containerd -c=/opt/c.toml",
        "containerd -config=opt/c.toml",
    ],
)
def test_the_configuration_that_containerd_was_started_with(root, words):
    """It overrides the one in the usual place, and its imports override it."""
    write(root, "etc/containerd/config.toml", f"{V2}enable_cdi = false\n")
    write(root, "opt/c.toml", f'imports = ["conf.d/*.toml"]\n{V2}cdi_spec_dirs = ["/x"]\n')
    write(root, "opt/conf.d/a.toml", f'{V2}enable_cdi = true\ncdi_spec_dirs = ["/run/cdi/"]\n')
    write(root, "opt/conf.d/b.txt", "no toml")
    running(root, words)
    facts = look(root, "containerd://1.7.35")
    assert (facts.config, facts.enable_cdi, facts.folders) == ("/opt/c.toml", True, ("/run/cdi/",))
    assert facts.place == "/opt/conf.d/a.toml", "where it is to be changed"
    assert set(levels(facts).values()) == {Level.WELL}, "/var/run is /run"


def test_what_an_import_imports(root):
    """Seen with containerd 2.2.9 and 1.7.35: a file that is imported may import others, which count
    after all that the main one imports, each file once, and a pattern holds for folders as well.
    """
    running(root, "containerd --config /opt/c.toml")
    write(root, "opt/c.toml", f'imports = ["d?/*.toml"]\n{V3}enable_cdi = true\n')
    write(root, "opt/d1/a.toml", 'imports = ["../e.toml", "a.toml"]\n')
    write(root, "opt/d2/b.toml", f'{V3}cdi_spec_dirs = ["/b"]\n')
    write(root, "opt/e.toml", f'imports = ["/opt/c.toml"]\n{V3}cdi_spec_dirs = ["/e"]\n')
    facts = look(root, "containerd://2.2.9")
    assert (facts.trouble, facts.enable_cdi, facts.folders) == ("", True, ("/e",))


def test_containerd_1_7_lets_an_import_replace_a_plugin_s_whole_table(root):
    """containerd 1.7.35 does so. From 2.0 on an import replaces single settings."""
    write(root, "etc/containerd/config.toml", f'imports = ["d/*.toml"]\n{V2}enable_cdi = true\n')
    write(root, "etc/containerd/d/10-site.toml", f'{V2}cdi_spec_dirs = ["/var/run/cdi"]\n')
    assert set(levels(look(root, "containerd://2.2.9")).values()) == {Level.WELL}
    facts = look(root, "containerd://1.7.35")
    assert [name for name, level in levels(facts).items() if level is not Level.WELL] == [
        "cdi-enabled"
    ]
    assert text_of(facts, "cdi-enabled") == (
        "containerd 1.7.35 has CDI off by default, and /etc/containerd/d/10-site.toml, which "
        "replaces the table of the CRI plugin in /etc/containerd/config.toml, does not set enable_cdi"
    )
    assert "in /etc/containerd/d/10-site.toml, on the node, write" in remedy(facts, "cdi-enabled")


def test_a_line_is_changed_and_a_table_is_there_once(root):
    """The folders in the configuration are right, and stay."""
    path = "etc/containerd/config.toml"
    write(root, path, f"{V2}enable_cdi = false\n")
    assert remedy(look(root, "containerd://2.2.9"), "cdi-enabled").splitlines() == [
        f"in /{path}, on the node, change `enable_cdi = false` to `enable_cdi = true`",
        "then `systemctl restart containerd`. Running containers stay",
    ]
    write(root, path, f"{V2}enable_cdi = false\n{V2}enable_cdi = true\n")
    to_do = remedy(look(root, "containerd://2.2.9"), "cdi-enabled")
    assert to_do.startswith("on the node keep one of the two")
    write(root, path, "enable_cdi =\n")
    to_do = remedy(look(root, "containerd://2.2.9"), "cdi-enabled")
    assert to_do.startswith("on the node mend the file at that place")


def test_the_containerd_of_docker_is_not_the_kubelet_s(root):
    write(root, "etc/containerd/config.toml", f"{V2}enable_cdi = true\n")
    running(root, "containerd --config /var/run/docker/containerd/containerd.toml")
    assert look(root, "containerd://1.7.35").config == "/etc/containerd/config.toml"


def test_an_import_that_containerd_would_not_start_with(root):
    write(root, "etc/containerd/config.toml", 'imports = ["/opt/gone.toml", "/opt/none*.toml"]\n')
    facts = look(root, "containerd://2.2.9")
    assert text_of(facts, "cdi-enabled") == "/opt/gone.toml: it is not there"
    assert levels(facts)["cdi-folders"] is Level.UNSEEN
    assert "cdi-enabled" in text_of(facts, "cdi-folders"), "that is why"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("imports = 5\n", "config.toml: imports is no list of files, but 5"),
        (
            'imports = "/etc/a.toml"\n',
            "config.toml: imports is no list of files, but '/etc/a.toml'",
        ),
        ("a = " + "[" * 3000, "config.toml: it is nested too deeply"),
        ('imports = ["/a\\u0000b"]\n', "'/a\\x00b' can be no file"),
        ('imports = ["/' + "a/" * 3000 + '"]\n', "it is not there"),
    ],
)
def test_a_configuration_that_no_runtime_understands(root, text, said):
    write(root, "etc/containerd/config.toml", text)
    facts = look(root, "containerd://2.2.9")
    assert said in facts.trouble
    assert levels(facts)["cdi-enabled"] is Level.ERROR


def test_a_configuration_of_crio_that_is_nested_too_deeply(root):
    write(root, "etc/crio/crio.conf", "a = " + "[" * 3000)
    assert "nested too deeply" in look(root, "cri-o://1.34.0").trouble


def test_cgroups_by_the_kubelet_where_the_runtime_does_not_say(root):
    assert look(root, "containerd://2.2.9").systemd_cgroup is None
    write(root, "var/lib/kubelet/config.yaml", "kind: X\ncgroupDriver: systemd\n")
    assert look(root, "containerd://2.2.9").systemd_cgroup is True
    host_process.write(root, 9, "/usr/bin/kubelet --config=/opt/k.json")
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
        assert "the runtime looks in /etc/cdi (/etc/crio/crio.conf.d/10.conf)" in text_of(
            facts, "cdi-folders"
        )
        assert remedy(facts, "cdi-folders").splitlines()[:2] == [
            "in /etc/crio/crio.conf.d/10.conf, on the node, "
            'set `cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]`',
            "and `systemctl restart crio`: running containers stay; "
            "or set claimd's `cdi-dir` to one of the folders that it has",
        ]


@pytest.mark.parametrize(
    "words",
    [
        "/usr/bin/crio --config /opt/crio.conf --config-dir /opt/d",
        "crio --log-level=debug --config=/opt/crio.conf --config-dir=/opt/d",
        "crio -c /opt/crio.conf -d=/opt/d",
        "crio -config opt/crio.conf -d ./opt/d",
    ],
)
@pytest.mark.parametrize("version", ["cri-o://1.34.0", ""])
def test_the_configuration_that_crio_was_started_with(root, words, version):
    """It counts, not the one in the usual place; the folder's files count more, in order, and so do
    those of the folders in it.
    """
    running(root, words)
    write(root, "etc/crio/crio.conf", '[crio.runtime]\ncdi_spec_dirs = ["/usual"]\n')
    write(root, "etc/crio/crio.conf.d/1", '[crio.runtime]\ncgroup_manager = "systemd"\n')
    write(root, "opt/crio.conf", f'[crio.runtime]\n{CGROUPFS}cdi_spec_dirs = ["/main"]\n')
    assert look(root, version).folders == ("/main",)
    write(root, "opt/d/20", '[crio.runtime]\ncdi_spec_dirs = ["/twenty"]\n')
    write(root, "opt/d/10", '[crio.runtime]\ncdi_spec_dirs = ["/ten"]\n')
    facts = look(root, version)
    assert (facts.folders, facts.folders_place) == (("/twenty",), "/opt/d/20")
    assert facts.systemd_cgroup is False
    write(root, "opt/d/21/x", '[crio.runtime]\ncdi_spec_dirs = ["/nested"]\n')
    assert look(root, version).folders == ("/nested",)


def test_what_crio_was_told_by_flags_counts_most(root):
    write(root, "etc/crio/crio.conf", f'[crio.runtime]\n{CGROUPFS}cdi_spec_dirs = ["/main"]\n')
    running(root, "crio --cdi-spec-dirs /a --cdi-spec-dirs=/b,/c --cgroup-manager systemd")
    facts = look(root, "cri-o://1.34.0")
    assert (facts.folders, facts.systemd_cgroup) == (("/a", "/b", "/c"), True)
    assert "in /a, /b, /c (its flag --cdi-spec-dirs)" in text_of(facts, "cdi-folders")


def test_crio_without_a_main_file(root):
    """An empty --config means that there is no main file."""
    write(root, "etc/crio/crio.conf", '[crio.runtime]\ncdi_spec_dirs = ["/main"]\n')
    running(root, "crio --config= --config-dir /nowhere")
    assert look(root, "cri-o://1.34.0").folders is None


@pytest.mark.parametrize("target", [".", "loop", "10"])
def test_a_link_in_crios_folder_is_read_as_a_file(root, target):
    """CRI-O does not follow a link to a folder either, and does not start with it."""
    write(root, "etc/crio/crio.conf.d/10/x", '[crio.runtime]\ncdi_spec_dirs = ["/ten"]\n')
    (root / "etc/crio/crio.conf.d/loop").symlink_to(target)
    running(root, "crio")
    facts = look(root, "cri-o://1.34.0")
    assert "/etc/crio/crio.conf.d/loop" in f"{facts.trouble}{facts.unread}"


def test_a_link_to_a_file_in_crios_folder_is_followed(root):
    write(root, "opt/x", '[crio.runtime]\ncdi_spec_dirs = ["/ten"]\n')
    (root / "etc/crio/crio.conf.d").mkdir(parents=True)
    (root / "etc/crio/crio.conf.d/link").symlink_to("/opt/x")
    assert look(root, "cri-o://1.34.0").folders == ("/ten",)


def test_a_file_that_crio_would_not_start_with(root):
    """CRI-O reads every file in the folder."""
    write(root, "etc/crio/crio.conf.d/README", "Put files here\n")
    facts = look(root, "cri-o://1.34.0")
    assert levels(facts)["cdi-folders"] is Level.ERROR
    assert "/etc/crio/crio.conf.d/README: " in text_of(facts, "cdi-folders")
    running(root, "crio --config-dir=/nowhere --config=/opt/gone.conf")
    facts = look(root, "cri-o://1.34.0")
    assert "/opt/gone.conf: it is not there" in text_of(facts, "cdi-folders")


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


# ---------------------------------------------------------------- processes and files of strangers

STRANGER = "65534 65534 65534 65534"


@pytest.mark.parametrize("name", ["containerd", "crio", "kubelet"])
def test_a_process_of_a_tenant_names_no_file(root, name):
    write(root, "var/tmp/t/c.toml", "no toml")
    write(root, "var/lib/kubelet/config.yaml", "cgroupDriver: systemd\n")
    host_process.write(root, 7, f"{name} --config=/var/tmp/t/c.toml -d /var/tmp/t", uids=STRANGER)
    for version in ("containerd://2.2.9", "cri-o://1.34.0", ""):
        facts = look(root, version)
        assert "/var/tmp" not in repr(facts), version
        assert facts.trouble == facts.unread == ""


def make_pipe(root):
    os.mkfifo(root / "opt/c.toml")


def make_device(root):
    os.mknod(root / "opt/c.toml", 0o020666, os.makedev(1, 5))


def make_search(root):
    """Writes an import that stands for every file of seven levels."""
    for number in range(200):
        (root / f"opt/{number}/a").mkdir(parents=True)
    write(root, "opt/c.toml", 'imports = ["/*/*/*/*/*/*/*"]\n')


def make_chain(root):
    write(root, "opt/c.toml", 'imports = ["0.toml"]\n')
    for number in range(100):
        write(root, f"opt/{number}.toml", f'imports = ["{number + 1}.toml"]\n')


def make_long_key(root):
    write(root, "opt/c.toml", "a" + ".a" * 100_000 + " = 1\n")


def make_large(root):
    write(root, "opt/c.toml", "#\n" * 200_000)


def give_away(root):
    write(root, "opt/c.toml", f"{V3}enable_cdi = false\n")
    os.chown(root / "opt/c.toml", 65534, 65534)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (make_pipe, "/opt/c.toml is not an ordinary file"),
        (make_device, "/opt/c.toml is not an ordinary file"),
        (give_away, "/opt/c.toml is not root's"),
        (make_search, "more than 500 names would have to be looked at"),
        (make_chain, "more than 64 files would have to be read"),
        (make_long_key, "/opt/c.toml has a line with more than 256 dots"),
        (make_large, "/opt/c.toml has 400,000 bytes, more than 262,144"),
    ],
)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices and gives files away")
def test_a_file_that_must_not_be_read(root, make, why, monkeypatch):
    monkeypatch.setattr(root_files, "MOST_NAMES", 500)
    (root / "opt").mkdir()
    make(root)
    running(root, "containerd --config /opt/c.toml")
    began = time.monotonic()
    facts = look(root, "containerd://1.7.35")
    assert time.monotonic() - began < root_files.MOST_SECONDS
    assert facts.unread == why
    for check in ("cdi-enabled", "cdi-folders"):
        assert finding(facts, check).level is Level.UNSEEN
        assert why in text_of(facts, check)
        assert "/opt/" not in remedy(facts, check)


def test_no_word_of_a_process_is_in_a_remedy(root):
    """Not even of the host's own: what is seen names the file, and what to do refers to it."""
    for words in ("containerd --config /opt/$(c).toml", "crio --config /opt/$(c).toml"):
        version = "cri-o://1.34.0" if "crio" in words else "containerd://1.7.35"
        running(root, words)
        folders = "cdi_spec_dirs = ['/$(x)']\n"
        text = f"{V2}enable_cdi = false\n{folders}[crio.runtime]\n{folders}"
        write(root, "opt/$(c).toml", text)
        facts = look(root, version)
        for result in runtime.judge(facts, "how"):
            assert "$(" not in result.remedy
        assert "/opt/$(c).toml" in text_of(facts, "cdi-folders")
    running(root, "containerd --config /opt/$(c).toml")
    to_do = remedy(look(root, "containerd://1.7.35"), "cdi-enabled")
    assert to_do.startswith("in the file that is named above, on the node, change `enable_cdi")
