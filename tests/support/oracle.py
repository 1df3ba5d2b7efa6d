"""Kubernetes' own code as a separate process: it reads questions, and writes answers or errors."""

import fcntl
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCES = ROOT / "tests" / "oracle"
BUILT = ROOT / "build" / "oracle"


def missing(name, versions="go"):
    """Returns why the oracle cannot run here, or None."""
    if os.environ.get("CLAIMD_ORACLE_BUILT"):
        return None
    if not shutil.which("go"):
        return "no Go here: nothing to compare with"
    try:
        build(name, versions)
    except subprocess.CalledProcessError as error:
        return f"the oracle does not build: {error.stderr.decode(errors='replace')[-300:]}"
    return None


def build(name, versions="go"):
    """Once for each state of the sources; two test processes take turns.

    `versions` is the file, without its end, that says which versions of others' modules it has.
    """
    binary = BUILT / (name if versions == "go" else f"{name}-{versions}")
    sources = sorted((SOURCES / name).iterdir())
    BUILT.mkdir(parents=True, exist_ok=True)
    with open(BUILT / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not binary.exists() or binary.stat().st_mtime < max(
            path.stat().st_mtime for path in sources
        ):
            modules = [f"-modfile={versions}.mod", "-tags", versions]
            command = ["go", "build", "-p", "1", *modules, "-o", str(binary), "."]
            subprocess.run(
                command,
                cwd=SOURCES / name,
                env=os.environ | toolchain(SOURCES / name / f"{versions}.mod"),
                check=True,
                capture_output=True,
            )
    return binary


def toolchain(modules):
    """The variables that let Go take a newer toolchain, if the modules want one."""
    wanted = re.search(r"^go ([0-9.]+)$", modules.read_text(), re.M)[1]
    command = ["go", "env", "GOVERSION"]
    told = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    installed = re.match(r"go([0-9.]+)", told)[1]
    if [*map(int, wanted.split("."))] > [*map(int, installed.split("."))]:
        return {"GOTOOLCHAIN": f"go{wanted}"}
    return {}


class Asked:
    """An oracle that is built and answers questions."""

    def __init__(self, binary):
        self.process = subprocess.Popen([binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, world):
        self.process.stdin.write(json.dumps(world).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the oracle has died"
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Oracle(Asked):
    """An oracle by its name; it is built when that is necessary."""

    def __init__(self, name="allocator", versions="go"):
        super().__init__(build(name, versions))
