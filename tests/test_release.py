"""Tests of `make release`, except for the image, which needs podman and its bases."""

import hashlib
import importlib.util
import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from tests.support import manifests

ROOT = Path(__file__).resolve().parent.parent
TOOL = ROOT / "deploy/release.py"


@pytest.fixture
def release():
    spec = importlib.util.spec_from_file_location("release", TOOL)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def source(tmp_path):
    """The files that name a version, and what each says."""

    def write(changelog="0.2.0", program="0.2.0", chart="0.2.0"):
        (tmp_path / "plugin/claimd").mkdir(parents=True)
        (tmp_path / "deploy/chart").mkdir(parents=True)
        (tmp_path / "CHANGELOG.md").write_text(
            f"# Changelog\n\n## [{changelog}] - 2026-12-01\n\n## [0.1.0] - 2026-11-26\n"
        )
        (tmp_path / "plugin/claimd/__init__.py").write_text(f'__version__ = "{program}"\n')
        (tmp_path / "deploy/chart/Chart.yaml").write_text(f"version: {chart}\n")
        return tmp_path

    return write


def test_the_version_is_the_changelogs(release, source):
    assert release.version(source("0.2.0")) == "0.2.0"


def test_what_is_not_released_yet_says_so(release, source):
    assert release.version(source("Unreleased")) == "0.2.0-unreleased"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"changelog": "0.3.0"}, "CHANGELOG.md begins with 0.3.0, claimd is 0.2.0"),
        ({"chart": "0.1.0"}, "the chart is 0.1.0, claimd 0.2.0: make them the same"),
    ],
)
def test_versions_that_differ_are_no_release(release, source, said, reason):
    with pytest.raises(release.Wrong, match=reason):
        release.version(source(**said))


def tagged(folder, *tags):
    """Makes a repository with one commit and these tags, and returns the commit."""
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.com"]
    subprocess.run(["git", "init", "-q", folder], check=True)
    empty = ["commit", "-q", "--allow-empty", "-m", "first"]
    subprocess.run(["git", "-C", folder, *identity, *empty], check=True)
    for tag in tags:
        subprocess.run(["git", "-C", folder, "tag", tag], check=True)
    command = ["git", "-C", folder, "rev-parse", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_a_release_is_made_from_its_tag(release, tmp_path, monkeypatch, capsys):
    revision = tagged(tmp_path, "v0.2.0")
    monkeypatch.setattr(release, "ROOT", tmp_path)
    assert release.commit("v0.2.0") == release.commit("") == revision
    release.check_tag("v0.2.0", "0.2.0", revision)
    assert capsys.readouterr().out == ""


def test_tags_that_do_not_fit_are_refused(release, tmp_path, monkeypatch, capsys):
    revision = tagged(tmp_path, "v0.1.0")
    monkeypatch.setattr(release, "ROOT", tmp_path)
    with pytest.raises(release.Wrong, match="there is no tag v9; there are: v0.1.0"):
        release.commit("v9")
    with pytest.raises(
        release.Wrong, match="the tag is v0.1.0, and CHANGELOG.md begins with 0.2.0"
    ):
        release.check_tag("v0.1.0", "0.2.0", revision)

    release.check_tag("", "0.2.0", revision)
    assert "does not have the tag v0.2.0: the files are a trial" in capsys.readouterr().out


def test_a_tool_that_is_not_there_is_named_before_anything_is_made(tmp_path):
    command = [sys.executable, str(TOOL), "--out", str(tmp_path / "dist")]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"PATH": "/nowhere"}
    )
    assert done.returncode == 1
    assert done.stderr.startswith("release: not on the PATH: git, kubectl, helm (`python3 -m")
    assert "podman" in done.stderr
    assert not (tmp_path / "dist").exists()


def archive_of(release, machine):
    """Returns an archive as the specification of OCI images has it: every blob by its digest."""
    files = {}

    def put(content):
        digest = hashlib.sha256(content).hexdigest()
        files[f"blobs/sha256/{digest}"] = content
        return {"digest": f"sha256:{digest}", "size": len(content), "mediaType": "m"}

    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w:gz") as tar:
        entry = tarfile.TarInfo(release.BILL)
        entry.size = 2
        tar.addfile(entry, io.BytesIO(b"{}"))
    said = {"architecture": machine, "config": {"Env": ["PATH=/opt/claimd/bin"]}}
    config = put(json.dumps(said).encode())
    manifest = put(json.dumps({"config": config, "layers": [put(layer.getvalue())]}).encode())
    named = manifest | {
        "annotations": {"org.opencontainers.image.ref.name": "localhost/claimd:0.2.0"}
    }
    files["index.json"] = json.dumps({"manifests": [named]}).encode()
    return files, manifest["digest"]


def test_an_images_archive_is_read(release):
    files, digest = archive_of(release, "arm64")
    image = release.inside(files)
    assert (image.machine, image.bill, image.digest) == ("arm64", b"{}", digest)
    (layer,), variables = release.layers(files)
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        assert tar.getnames() == [release.BILL]
    assert variables == ["PATH=/opt/claimd/bin"]


def test_one_archive_of_several_platforms(release):
    """Its entry is an index, whose entries say for which machine they are; nothing is lost."""
    archives = [archive_of(release, machine) for machine in ("amd64", "arm64")]
    files = release.together([archive for archive, _ in archives])
    for archive, _ in archives:
        assert archive.items() - {("index.json", archive["index.json"])} <= files.items()

    (listed,) = json.loads(files["index.json"])["manifests"]
    assert listed["annotations"] == {"org.opencontainers.image.ref.name": "localhost/claimd:0.2.0"}
    blob = files["blobs/" + listed["digest"].replace(":", "/")]
    assert hashlib.sha256(blob).hexdigest() == listed["digest"].partition(":")[2]
    assert len(blob) == listed["size"]
    told = {each["digest"]: each["platform"] for each in json.loads(blob)["manifests"]}
    assert told == {
        digest: {"os": "linux", "architecture": machine}
        for (_, digest), machine in zip(archives, ("amd64", "arm64"), strict=True)
    }


BUILDER = """#!/bin/sh
[ "$1" = build ] && echo "exec container process: Exec format error" && exit 1
"""


def test_a_machine_that_cannot_run_the_other_one_s_programs(release, source, tmp_path):
    builder = tmp_path / "builder"
    builder.write_text(BUILDER)
    builder.chmod(0o755)
    new_release = release.Release(source(), tmp_path, [str(builder)], ["linux/arm64"])
    with pytest.raises(
        release.Wrong, match="no programs for linux/arm64: install qemu-user-static"
    ):
        new_release.images()


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Two releases of one commit, made one after the other."""
    if not (manifests.helm() and manifests.kubectl()):
        pytest.skip("no helm or no kubectl: the rig makes both")
    outs = [tmp_path_factory.mktemp("release") / f"dist{number}" for number in range(2)]
    folders = {str(Path(tool).parent) for tool in (manifests.helm(), manifests.kubectl())}
    path = ":".join([*folders, os.environ["PATH"]])
    for out in outs:
        command = [sys.executable, str(TOOL), "--without-image", "--out", str(out)]
        subprocess.run(command, check=True, env=os.environ | {"PATH": path})
    return outs


@pytest.mark.slow
def test_two_releases_of_one_commit_are_the_same(built):
    first, second = ({path.name: path.read_bytes() for path in out.iterdir()} for out in built)
    assert first == second
    assert len(first) == 4


@pytest.mark.slow
def test_the_checksums_are_of_the_files(built):
    out = built[0]
    lines = (out / "SHA256SUMS").read_text().splitlines()
    said = {name: digest for digest, name in (line.split("  ") for line in lines)}
    assert set(said) == {path.name for path in out.iterdir()} - {"SHA256SUMS"}
    for name, digest in said.items():
        assert hashlib.sha256((out / name).read_bytes()).hexdigest() == digest


@pytest.mark.slow
def test_what_is_in_the_files(built):
    (wheel,) = built[0].glob("*.whl")
    assert "claimd/__main__.py" in zipfile.ZipFile(wheel).namelist()

    (chart,) = built[0].glob("*.tgz")
    command = [manifests.helm(), "template", "claimd", str(chart), "--namespace=claimd-system"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    objects = manifests.read(told)
    assert len(objects) == len(manifests.rendered())
    (daemonset,) = [obj for obj in objects if obj["kind"] == "DaemonSet"]
    (container,) = daemonset["spec"]["template"]["spec"]["containers"]

    (packed,) = built[0].glob("*-manifests.tar.gz")
    top = packed.name.removesuffix(".tar.gz")
    with tarfile.open(packed) as tar:
        names = tar.getnames()
        text = tar.extractfile(f"{top}/rendered/base-and-nvidia.yaml").read().decode()
    for component in (ROOT / "deploy/components").iterdir():
        assert f"{top}/rendered/base-and-{component.name}.yaml" in names
    assert f"{top}/base/kustomization.yaml" in names
    assert f"image: {container['image']}\n" in text
    assert "CLAIMD_HOST_ROOT" in json.dumps(list(yaml.safe_load_all(text)))
