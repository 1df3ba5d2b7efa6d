"""claimd as one of the drivers: the checkout's own code, what it needs in an environment of its
own, and a tree of fake GPUs. Made before the first turn; nothing here is measured.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from .errors import BenchError
from .turn import Driver

ROOT = Path(__file__).resolve().parents[2]
PYTHONPATH = f"{ROOT}/plugin:{ROOT}/devices"
SYSTEM_PYTHON = Path(
    "/usr/bin/python3"
)  # what a distribution ships and an image has, not a developer's build
OLDEST = (3, 11)
NAME = "claimd"

# What a plugin has loaded of others when it serves.
LOADED = """
import claimd.node.app, claimd.tools.cli.run, sys
for module in list(sys.modules.values()):
    if (getattr(module, "__file__", None) or "").endswith(".py"):
        print(module.__file__)
"""


def default_python() -> Path:
    """The system's, if it is new enough for claimd."""
    if SYSTEM_PYTHON.exists() and _version(SYSTEM_PYTHON) >= OLDEST:
        return SYSTEM_PYTHON
    return Path(sys.executable)


def driver(python: Path, gpus: list[str], folder: Path) -> Driver:
    """Ready to run: the environment made, the code compiled as in the image, the fake tree written
    into the folder.
    """
    chosen = interpreter(python)
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("CLAIMD_", "PYTHON"))
    }
    environment["PYTHONPATH"] = PYTHONPATH
    # Before the first turn: else it alone would pay for it.
    environment |= compile_as_image(chosen)
    _run([str(chosen), "-m", "claimd", "fake", "write", str(folder / "gpus"), *gpus], environment)
    settings = {
        "node-name": "{node}",
        "kubelet-dir": "{kubelet}",
        "cdi-dir": "{cdi}",
        "kubeconfig": "{kubeconfig}",
        "root": str(folder / "gpus"),
    }
    command = (
        str(chosen),
        "-m",
        "claimd",
        "run",
        *(f"--{name}={value}" for name, value in settings.items()),
    )
    return Driver(name=NAME, command=command, environment=environment)


def compile_as_image(interpreter: Path) -> dict[str, str]:
    """The image's bytecode of all that claimd loads, kept from run to run; the environment in which
    an interpreter finds it.
    """
    environment = {"PYTHONPYCACHEPREFIX": str(_cache() / "bytecode")}
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    clean["PYTHONPATH"] = PYTHONPATH

    loaded = _run([str(interpreter), "-B", "-c", LOADED], clean).splitlines()
    own = [str(ROOT / part) for part in ("plugin", "devices")]
    tool = str(ROOT / "deploy" / "bytecode.py")
    _run([str(interpreter), tool, *own, *loaded], clean | environment)
    return environment


def many(devices: int) -> list[str]:
    """So many GPUs, as `claimd fake write` takes them, of a kind that a node may have as many of: the
    buses of a PCI domain suffice for 64, and NVIDIA has numbers for 254.
    """
    full, rest = divmod(devices, 64)
    sizes = [64] * full + [rest] * bool(rest)
    return [f"intel:max1550={size},domain={domain:x}" for domain, size in enumerate(sizes)]


def interpreter(python: Path) -> Path:
    """Itself for the one that runs us, which has what claimd needs; else that of an environment
    made from it.
    """
    if python.absolute() == Path(sys.executable):
        return python
    if (version := _version(python)) < OLDEST:
        raise BenchError(
            f"{python} is {'.'.join(map(str, version))}; claimd needs {'.'.join(map(str, OLDEST))}"
        )
    lock = ROOT / "requirements.txt"
    key = hashlib.sha256(f"{python.resolve()} {version}".encode() + lock.read_bytes()).hexdigest()[
        :16
    ]
    environment = _cache() / key
    if not (environment / "made").exists():
        print(f"an environment for {python} in {environment}", file=sys.stderr, flush=True)
        shutil.rmtree(environment, ignore_errors=True)
        # Without pip: Debian's Python cannot bring one, and ours can install there.
        _run([str(python), "-m", "venv", "--without-pip", str(environment)])
        install = [
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--require-hashes",
            "-r",
            str(lock),
        ]
        _run(
            [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"), *install]
        )
        (environment / "made").touch()
    return environment / "bin" / "python"


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "claimd-bench"


def _version(python: Path) -> tuple[int, ...]:
    said = _run([str(python), "-c", "import sys; print(*sys.version_info[:3])"])
    return tuple(int(part) for part in said.split())


def _run(command: list[str], environment: dict[str, str] | None = None) -> str:
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise BenchError(f"cannot run {command[0]}: {error.strerror}") from error
    if done.returncode:
        raise BenchError(
            f"{' '.join(command)} ended with {done.returncode}: {(done.stderr or done.stdout).strip()}"
        )
    return done.stdout
