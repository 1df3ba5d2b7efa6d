"""claimd on another machine's processor: `python -m tests.arm64` makes a root of Debian's arm64 packages
and the wheels of the lock file, compiles the two small programs, and runs them by qemu's user mode.

What is compared: the output for fake trees with this machine's own, and the tests of the whole program,
with a simulated API server and kubelet beside it. With the archive of an image for arm64, as `make
release` makes it, the same is done with the claimd and the Python that lie in the image:

    python -m tests.arm64 dist/claimd-0.1.0-image-arm64.tar

Not tried this way: a kernel for arm64 with GPUs. Needs mmdebstrap, qemu-user-static,
gcc-aarch64-linux-gnu and libc6-dev-arm64-cross; an image needs qemu-user-static and root alone.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from deploy import release
from tests.cluster.rig import places

ROOT = Path(__file__).resolve().parent.parent
FOLDER = places.CACHE / "arm64"
PACKAGES = "python3,libstdc++6,libudev1"
TOOLS = ("mmdebstrap", "qemu-aarch64-static", "aarch64-linux-gnu-gcc")
TREES = ("nvidia:h100=2 amd:mi300x=2 intel:max1550=1", "nvidia:gb200=4")
TESTS = "start_to_end or v1beta1 or killed or cdi_folder or two_instances or damaged or metadata"


def run(*command: object) -> str:
    words = [str(word) for word in command]
    return subprocess.run(words, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout


def python() -> Path:
    """A program that runs Debian's Python for arm64, with what claimd needs; made once."""
    root, site, program = FOLDER / "root", FOLDER / "site", FOLDER / "python"
    if not root.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        options = ("--quiet", "--variant=extract", "--arch=arm64", f"--include={PACKAGES}")
        lists = ("/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list")
        known = [path for path in lists if Path(path).exists()][:1]
        run("mmdebstrap", *options, "bookworm", FOLDER / "root.tar", *known)
        root.mkdir()
        run("tar", "-xf", FOLDER / "root.tar", "-C", root)

    shutil.rmtree(site, ignore_errors=True)
    platforms = [f"--platform=manylinux{name}_aarch64" for name in ("2014", "_2_17", "_2_28")]
    exact = ("--python-version=3.11", "--only-binary=:all:", "--require-hashes", "--no-deps")
    install = (sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check")
    run(*install, *platforms, *exact, f"--target={site}", "-r", "requirements.txt")

    libraries = ":".join(str(root / name / "aarch64-linux-gnu") for name in ("lib", "usr/lib"))
    variables = {"PYTHONPATH": site, "PYTHONHOME": root / "usr", "LD_LIBRARY_PATH": libraries}
    told = " ".join(f"-E {name}={value}" for name, value in variables.items())
    program.write_text(
        f'#!/bin/sh\nexec qemu-aarch64-static -L {root} {told} {root}/usr/bin/python3.11 "$@"\n'
    )
    program.chmod(0o755)
    return program


def of_image(archive: Path) -> Path:
    """A program that runs the image's Python in the image's own root, with this machine's /tmp."""
    files = release.unpacked(archive)
    image = release.inside(files)
    if image.machine != "arm64":
        raise SystemExit(f"{archive} is an image for {image.machine}")
    print(f"the image {image.digest}", flush=True)

    root = FOLDER / "image"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    layers, variables = release.layers(files)
    for layer in layers:
        subprocess.run(["tar", "-xzf", "-", "-C", root], input=layer, check=True)
    shutil.copy(str(shutil.which("qemu-aarch64-static")), root / "qemu")

    # exec all the way: a test kills what it has started
    told = " ".join(f"-E {shlex.quote(variable)}" for variable in variables)
    inside = f"exec chroot {root} /qemu {told} /opt/claimd/bin/python"
    program = FOLDER / "python-of-image"
    program.write_text(
        "#!/bin/sh\n"
        "exec unshare -m --propagation private sh -c "
        f"""'mount --bind /tmp {root}/tmp && {inside} "$@"' sh "$@"\n"""
    )
    program.chmod(0o755)
    return program


def compare(program: Path) -> None:
    for gpus in TREES:
        with tempfile.TemporaryDirectory(prefix="claimd-test-") as folder:
            run(sys.executable, "-m", "claimd", "fake", "write", folder, *gpus.split())
            for words in (["devices", "-o", "wide"], ["slices", "--node-name=n"]):
                command = ["-m", "claimd", *words, f"--root={folder}"]
                assert run(program, *command) == run(sys.executable, *command)
                print(f"the same on both: claimd {' '.join(words)} of {gpus}", flush=True)


def compile_programs() -> None:
    compiler = ("aarch64-linux-gnu-gcc", "-std=gnu11", "-Os", "-s")
    hook = FOLDER / "claimd-ld-cache"
    run(*compiler, "-static", "deploy/ld-cache/claimd-ld-cache.c", "-o", hook)
    print(run("qemu-aarch64-static", hook, "--version").strip(), flush=True)
    source = "deploy/container-check/claimd-container-check.c"
    run(*compiler, source, "-ldl", "-o", FOLDER / "claimd-container-check")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("image", type=Path, nargs="?", help="an OCI archive, for arm64")
    archive = parser.parse_args().image
    tools = ("qemu-aarch64-static", "chroot", "unshare") if archive else TOOLS
    absent = [tool for tool in tools if not shutil.which(tool)]
    if absent:
        print(f"not on the PATH: {', '.join(absent)}", file=sys.stderr)
        return 1
    program = of_image(archive) if archive else python()
    # compiled once: what starts later has to be there before a kubelet gives up
    loaded = "import platform, grpc, claimd.node.app; print(platform.machine(), claimd.node.app.__file__)"
    print(run(program, "-c", loaded).strip(), flush=True)
    compare(program)
    if archive:
        hook = FOLDER / "image/opt/claimd/libexec/claimd-ld-cache"
        print(run("qemu-aarch64-static", hook, "--version").strip(), flush=True)
    else:
        compile_programs()

    # what these tests start, they start by this name
    sys.executable = str(program)
    options = ("-v", "-p", "no:cacheprovider", "--timeout=300")
    return pytest.main([*options, "tests/plugin/node/test_app.py", "-k", TESTS])


if __name__ == "__main__":
    sys.exit(main())
