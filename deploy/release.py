"""Makes all files of a release from a tag into dist/. It uploads nothing.

    python deploy/release.py [--tag v0.1.0] [--builder podman] [--build-flags="--runtime=runc"]
                             [--platforms="linux/amd64 linux/arm64"]

Without --tag it takes the commit that is checked out, and says so if that commit has no tag.

The version is the first heading of CHANGELOG.md. The program and the chart must have the same one.
While that heading is `[Unreleased]`, the version ends with `-unreleased`: such files are a trial, not
a release. The same commit gives the same files again, as long as the bases of the image are the same.

The image is for this machine's processor. With several platforms there is an archive for each, and
one that holds them all; a machine makes those that are not its own by qemu's user mode, many times
as slowly.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BILL = "opt/claimd/claimd.cdx.json"
INDEX = "application/vnd.oci.image.index.v1+json"
TOOLS = {
    "git": "",
    "kubectl": "",
    "helm": " (`python3 -m tests.cluster.rig helm` makes one)",
}


class Wrong(Exception):
    """Something for which there can be no release."""


def version(source: Path) -> str:
    """Returns the version that the changelog names; Wrong if the program or the chart has another one."""
    heading = re.search(r"^## \[(.+?)\]", (source / "CHANGELOG.md").read_text(), re.M)
    written = re.search(r'__version__ = "(.+)"', (source / "plugin/claimd/__init__.py").read_text())
    chart = re.search(r"^version: (\S+)", (source / "deploy/chart/Chart.yaml").read_text(), re.M)
    if heading is None or written is None or chart is None:
        raise Wrong(
            "CHANGELOG.md, plugin/claimd/__init__.py or deploy/chart/Chart.yaml names no version"
        )
    if written[1] != chart[1]:
        raise Wrong(f"the chart is {chart[1]}, claimd {written[1]}: make them the same")
    if heading[1] == "Unreleased":
        return f"{written[1]}-unreleased"
    if heading[1] != written[1]:
        raise Wrong(f"CHANGELOG.md begins with {heading[1]}, claimd is {written[1]}")
    return written[1]


def commit(tag: str) -> str:
    """Returns the commit of a tag, or the one that is checked out if `tag` is empty."""
    name = f"refs/tags/{tag}" if tag else "HEAD"
    try:
        return run(
            "git", "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", cwd=ROOT
        ).strip()
    except Wrong as reason:
        tags = run("git", "tag", "--list", "v*", cwd=ROOT).split()
        raise Wrong(f"there is no tag {tag}; there are: {', '.join(tags) or 'none'}") from reason


def check_tag(tag: str, version: str, revision: str) -> None:
    """Wrong if the tag is for another version. Says so if the commit has no tag."""
    if tag and tag != f"v{version}":
        raise Wrong(f"the tag is {tag}, and CHANGELOG.md begins with {version}: make them the same")
    if f"v{version}" not in run("git", "tag", "--points-at", revision, cwd=ROOT).split():
        say(f"this commit does not have the tag v{version}: the files are a trial, not a release")


class Release:
    """The release of one commit. Each step writes into `out` what it is named after."""

    def __init__(
        self,
        source: Path,
        out: Path,
        builder: list[str],
        platforms: Sequence[str] = (),
        revision: str = "HEAD",
    ) -> None:
        self.source = source
        self.out = out
        self.builder = builder
        self.platforms = platforms  # none: the one that the builder takes by itself
        self.version = version(source)
        self.revision = run("git", "rev-parse", revision, cwd=ROOT).strip()
        self.time = run("git", "log", "-1", "--format=%ct", revision, cwd=ROOT).strip()

    def wheel(self) -> None:
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(self.out)]
        run(*command, cwd=self.source, env=os.environ | {"SOURCE_DATE_EPOCH": self.time})

    def images(self) -> None:
        """An archive for each platform, with the bill of materials that lies in it; one of all."""
        made = [self._image(platform) for platform in self.platforms or [""]]
        if len(made) > 1:
            archive = self.out / f"claimd-{self.version}-image.tar"
            files = together(made)
            archive.write_bytes(self.archive(files))
            say(f"all of them are {inside_index(files)}")

    def _image(self, platform: str) -> dict[str, bytes]:
        name = f"claimd:{self.version}"
        said = {"VERSION": self.version, "REVISION": self.revision}
        words = [f"--build-arg={key}={value}" for key, value in said.items()]
        words += [f"--platform={platform}"] if platform else []
        words += [f"--timestamp={self.time}", f"--tag={name}", "--file=deploy/Containerfile", "."]
        try:
            run(self.builder[0], "build", *self.builder[1:], *words, cwd=self.source)
        except Wrong as reason:
            if "exec format error" not in str(reason).lower():
                raise
            raise Wrong(
                f"this machine runs no programs for {platform}: install qemu-user-static and "
                "binfmt-support, or what your distribution calls them, or build on such a machine"
            ) from reason

        # Packed again, because the builder writes the time of saving
        with tempfile.TemporaryDirectory(prefix="claimd-release-") as folder:
            saved = Path(folder, "image.tar")
            run(self.builder[0], "save", "-q", "--format=oci-archive", f"--output={saved}", name)
            files = unpacked(saved)
        image = inside(files)
        if platform and platform.split("/")[1] != image.machine:
            raise Wrong(f"{platform} was asked for, and the base's image is for {image.machine}")
        archive = self.out / f"claimd-{self.version}-image-{image.machine}.tar"
        archive.write_bytes(self.archive(files))
        archive.with_suffix(".cdx.json").write_bytes(image.bill)
        say(f"the image for {image.machine} is {image.digest}")
        return files

    def chart(self) -> None:
        """Packed by ourselves from what Helm packs, since Helm writes the time of packing."""
        with tempfile.TemporaryDirectory(prefix="claimd-release-") as folder:
            versions = (f"--version={self.version}", f"--app-version={self.version}")
            run(
                "helm",
                "package",
                "deploy/chart",
                *versions,
                f"--destination={folder}",
                cwd=self.source,
            )
            (packed,) = Path(folder).iterdir()
            files = unpacked(packed)
        self.pack(f"claimd-{self.version}.tgz", files)

    def manifests(self) -> None:
        """The folders for kustomize, and what it makes of the base alone and with each component."""
        deploy = self.source / "deploy"
        files = {}
        for folder in ("base", "components", "overlays", "explain", "examples"):
            for path in sorted((deploy / folder).rglob("*")):
                if path.is_file():
                    files[path.relative_to(deploy).as_posix()] = path.read_bytes()

        components = sorted(path.name for path in (deploy / "components").iterdir())
        files["rendered/base.yaml"] = self._rendered([])
        for component in components:
            files[f"rendered/base-and-{component}.yaml"] = self._rendered([component])
        top = f"claimd-{self.version}-manifests"
        self.pack(f"{top}.tar.gz", {f"{top}/{name}": text for name, text in files.items()})

    def _rendered(self, components: list[str]) -> bytes:
        folder = self.source / "deploy/rendered"
        folder.mkdir(exist_ok=True)
        kustomization = {
            "resources": ["../base"],
            "components": [f"../components/{name}" for name in components],
            "images": [{"name": "claimd", "newTag": self.version}],
        }
        (folder / "kustomization.yaml").write_text(json.dumps(kustomization))
        return run("kubectl", "kustomize", str(folder)).encode()

    def checksums(self) -> None:
        lines = []
        for path in sorted(self.out.iterdir()):
            lines.append(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n")
        (self.out / "SHA256SUMS").write_text("".join(lines))

    def pack(self, name: str, files: dict[str, bytes]) -> None:
        (self.out / name).write_bytes(gzip.compress(self.archive(files), mtime=0))

    def archive(self, files: dict[str, bytes]) -> bytes:
        """The same files, at the commit's time, give the same bytes."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            for path, content in sorted(files.items()):
                entry = tarfile.TarInfo(path)
                entry.size, entry.mtime, entry.mode = len(content), int(self.time), 0o644
                tar.addfile(entry, io.BytesIO(content))
        return packed.getvalue()


@dataclass(frozen=True, kw_only=True)
class Image:
    digest: str
    machine: str
    bill: bytes


def inside(files: dict[str, bytes]) -> Image:
    """What an OCI archive holds: its only image, and the bill of materials in it."""

    (listed,) = json.loads(files["index.json"])["manifests"]
    manifest = json.loads(blob(files, listed))
    machine = json.loads(blob(files, manifest["config"]))["architecture"]
    for layer in reversed(manifest["layers"]):
        with tarfile.open(fileobj=io.BytesIO(blob(files, layer))) as tar:
            if BILL in tar.getnames():
                bill = contents(tar, tar.getmember(BILL))
                return Image(digest=listed["digest"], machine=machine, bill=bill)
    raise Wrong(f"the image has no {BILL}")


def layers(files: dict[str, bytes]) -> tuple[list[bytes], list[str]]:
    """The layers of an OCI archive's only image, the lowest first, and its variables."""
    (listed,) = json.loads(files["index.json"])["manifests"]
    manifest = json.loads(blob(files, listed))
    config = json.loads(blob(files, manifest["config"]))
    return [blob(files, layer) for layer in manifest["layers"]], config["config"].get("Env", [])


def blob(files: dict[str, bytes], of: dict[str, str]) -> bytes:
    """What an entry of a manifest or of an index names."""
    return files[f"blobs/{of['digest'].replace(':', '/')}"]


def together(archives: Sequence[dict[str, bytes]]) -> dict[str, bytes]:
    """One OCI archive of several, by the first one's name: its index has one entry, which is an index
    of an image for each platform.
    """
    files: dict[str, bytes] = {}
    manifests = []
    for archive in archives:
        files |= archive
        image = inside(archive)
        (listed,) = json.loads(archive["index.json"])["manifests"]
        entry = {key: listed[key] for key in ("mediaType", "digest", "size")}
        manifests.append(entry | {"platform": {"os": "linux", "architecture": image.machine}})

    index = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}).encode()
    digest = hashlib.sha256(index).hexdigest()
    files[f"blobs/sha256/{digest}"] = index
    (first,) = json.loads(archives[0]["index.json"])["manifests"]
    entry = {"mediaType": INDEX, "digest": f"sha256:{digest}", "size": len(index)}
    entry["annotations"] = first.get("annotations", {})
    files["index.json"] = json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode()
    return files


def inside_index(files: dict[str, bytes]) -> str:
    """The digest of an archive's only entry."""
    (listed,) = json.loads(files["index.json"])["manifests"]
    return str(listed["digest"])


def unpacked(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        return {entry.name: contents(tar, entry) for entry in tar if entry.isfile()}


def contents(tar: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(entry)
    if file is None:
        raise Wrong(f"{entry.name} is no file")
    return file.read()


def run(*command: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """Returns what the command printed. Raises Wrong with its last lines if it failed."""
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stdout + done.stderr).strip().splitlines()[-15:]
        raise Wrong("\n".join([f"{shlex.join(command)} failed:", *last]))
    return done.stdout


def check_tools(tools: dict[str, str]) -> None:
    absent = [f"{tool}{where}" for tool, where in tools.items() if not shutil.which(tool)]
    if absent:
        raise Wrong(f"not on the PATH: {', '.join(absent)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--tag", default="", help="the tag to release, such as v0.1.0")
    parser.add_argument("--builder", default="podman", help="builds the image")
    parser.add_argument("--build-flags", default="", help="more words for `podman build`")
    parser.add_argument(
        "--platforms",
        default="",
        metavar='"linux/amd64 linux/arm64"',
        help="an image for each, and an archive of all; by default for this machine alone, since the "
        "others are built by qemu's user mode, which takes many minutes",
    )
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument(
        "--without-image", action="store_true", help="leave the image and its bill of materials out"
    )
    arguments = parser.parse_args()
    builder = [arguments.builder, *shlex.split(arguments.build_flags)]
    try:
        check_tools(TOOLS if arguments.without_image else TOOLS | {builder[0]: ""})
        revision = commit(arguments.tag)
        if not arguments.tag and run("git", "status", "--porcelain", cwd=ROOT):
            say("changes that are not committed are NOT in it")

        shutil.rmtree(arguments.out, ignore_errors=True)
        arguments.out.mkdir(parents=True)
        with tempfile.TemporaryDirectory(prefix="claimd-release-") as folder:
            archive = Path(folder, "source.tar")
            run("git", "archive", f"--output={archive}", revision, cwd=ROOT)
            source = Path(folder, "source")
            source.mkdir()
            run("tar", "-xf", str(archive), cwd=source)

            platforms = arguments.platforms.replace(",", " ").split()
            release = Release(source, arguments.out, builder, platforms, revision)
            check_tag(arguments.tag, release.version, revision)
            say(f"claimd {release.version} of commit {release.revision[:12]}")
            steps = [release.wheel, release.chart, release.manifests]
            if not arguments.without_image:
                steps.append(release.images)
            for step in [*steps, release.checksums]:
                step()
    except (Wrong, OSError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    for path in sorted(arguments.out.iterdir()):
        say(f"{path.stat().st_size:>12,}  {os.path.relpath(path)}")
    return 0


def say(what: str) -> None:
    print(f"release: {what}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
