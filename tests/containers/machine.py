"""A machine with a driver: runs a job in a mount namespace whose root has a layout laid over it.

`python -m tests.containers.machine FOLDER` reads a job as JSON, makes the machine of this process
and runs the job's containers in it, one after the other; it prints what came of each as JSON.
Nothing of it is left when it ends.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from claimd.common.names import cdi_id
from claimd.node.prepare import cdi, plan
from claimd.node.prepared import PreparedClaim
from claimd_devices import fake, scan
from claimd_devices.gpu import Gpu, Inventory, Roots
from tests.support import oracle, worlds

from . import build, changes, images

HOOK = "/var/lib/claimd/claimd-ld-cache"
CDI = Path("/var/run/cdi")
WORK = Path("/mnt")
MODULE = "tests.containers.machine"


@dataclass(frozen=True, kw_only=True)
class Run:
    """A container: an image, how it is run, and what is asked in it."""

    image: str
    runtime: str = "runc"
    user: int = 0
    read_only: bool = False
    user_namespace: bool = False
    command: tuple[str, ...] = ()
    environment: tuple[str, ...] = ("PATH=/bin:/sbin",)
    change: str = ""  # of the image before it is run: one of tests.containers.changes
    volume: str = ""  # a folder of the host that is mounted at /etc
    capabilities: tuple[str, ...] = ()  # of the driver, by the claim's configuration


@dataclass(frozen=True, kw_only=True)
class Job:
    host: str  # the folder that is laid over the root
    hook: str = ""  # the program, on the host; empty: none
    model: str = "nvidia:h100"
    containerd: str = "2.2"  # whose library merges the CDI specs: 2.2 or 1.7
    runs: tuple[Run, ...] = ()
    before: tuple[str, ...] = ()  # commands on the machine, before claimd looks at it
    between: tuple[str, ...] = ()  # the same between two containers
    then: tuple[str, ...] = ()  # paths of the machine whose content is told at the end


@dataclass(kw_only=True)
class Outcome:
    code: int
    output: str
    libraries: str = ""
    files: dict[str, str] = field(default_factory=dict)

    @property
    def answers(self) -> dict[str, str]:
        pairs = (line.partition(": ") for line in self.output.splitlines())
        return {name: answer.strip() for name, separator, answer in pairs if separator}


def run(job: Job) -> list[Outcome]:
    """Runs the job in a machine of its own."""
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", sys.executable, "-m", MODULE],
        input=json.dumps(dataclasses.asdict(job)),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        cwd=build.ROOT,
    )
    assert done.returncode == 0, done.stderr
    return [Outcome(**outcome) for outcome in json.loads(done.stdout)]


# ---------------------------------------------------------------- inside


def main() -> None:
    os.umask(0)
    document = json.load(sys.stdin)
    runs = tuple(
        Run(**{name: _tuple(value) for name, value in each.items()})
        for each in document.pop("runs")
    )
    job = Job(runs=runs, **{name: _tuple(value) for name, value in document.items()})
    merger = oracle.build("cdi", "containerd-1.7" if job.containerd == "1.7" else "go")
    _enter(Path(job.host))

    # What claimd sees: the GPU of a fake tree, and the libraries of this machine.
    tree = Path("/fake")
    fake.write(tree, fake.parse([job.model]))
    roots = Roots(sys=tree / "sys", proc=tree / "proc", dev=tree / "dev")
    for gpu in scan.scan(roots).gpus:
        _make_nodes(gpu)
    if job.hook:
        Path(HOOK).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(job.hook, HOOK)
    for command in job.before:
        subprocess.run(["sh", "-ec", command], check=True)
    outcomes = []
    for number, each in enumerate(job.runs):
        for command in job.between if number else ():
            subprocess.run(["sh", "-ec", command], check=True)
        outcomes.append(_contained(job, each, number, scan.scan(roots), merger))
    for outcome in outcomes:
        outcome.files = {path: _text(path) for path in job.then}
    print(json.dumps([dataclasses.asdict(outcome) for outcome in outcomes]))


def _make_nodes(gpu: Gpu) -> None:
    """A runtime binds the machine's own into containers of another user namespace."""
    for node in gpu.nodes:
        path = Path(node.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            os.mknod(path, 0o20666, os.makedev(node.major, node.minor))


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _text(path: str) -> str:
    try:
        return Path(path).read_bytes().decode("latin-1")
    except FileNotFoundError:
        return "missing"


_USUAL_NODES = {
    "null": (1, 3),
    "zero": (1, 5),
    "full": (1, 7),
    "random": (1, 8),
    "urandom": (1, 9),
    "tty": (5, 0),
}


def _enter(host: Path) -> None:
    """Lays the folder over the root, which is writable from here on."""
    _mount("-t", "tmpfs", "tmpfs", WORK)
    root, upper, scratch = WORK / "root", WORK / "upper", WORK / "scratch"
    for folder in (root, upper, scratch):
        folder.mkdir()
    # No layer may lie within another one.
    subprocess.run(["cp", "-a", host, WORK / "host"], check=True)
    layers = f"lowerdir={WORK / 'host'}:/,upperdir={upper},workdir={scratch}"
    _mount("-t", "overlay", "overlay", "-o", layers, root)
    for place in ("/proc", "/sys"):
        _mount("--rbind", place, f"{root}{place}")
    _mount("-t", "tmpfs", "tmpfs", root / "dev")
    for name, numbers in _USUAL_NODES.items():
        os.mknod(root / "dev" / name, 0o20666, os.makedev(*numbers))
    # Images are laid under one more file system each, which must not be one of layers itself.
    _mount("--bind", images.CACHE, f"{root}{images.CACHE}")
    (root / "old").mkdir()
    subprocess.run(["pivot_root", root, root / "old"], check=True)
    os.chdir("/")
    subprocess.run(["umount", "-l", "/old"], check=True)
    # crun refuses a machine that has control groups of both kinds.
    subprocess.run(["umount", "/sys/fs/cgroup/unified"], check=False, capture_output=True)
    _mount("-t", "tmpfs", "tmpfs", WORK)


def _mount(*words: object) -> None:
    subprocess.run(["mount", *map(str, words)], check=True)


def _contained(job: Job, each: Run, number: int, inventory: Inventory, merger: Path) -> Outcome:
    """Prepares the GPU, and runs the container with it."""
    prepared = _prepared(inventory, each.capabilities)
    CDI.mkdir(parents=True, exist_ok=True)
    hook = HOOK if job.hook else None
    (CDI / "claim.json").write_bytes(cdi.build(prepared, inventory, hook))
    ids = [cdi_id(prepared.uid, device.device, None) for device in prepared.devices]
    ids += [device.host_cdi for device in prepared.devices if device.host_cdi]
    nodes = [node.path for gpu in inventory.gpus for node in gpu.nodes if "nvidia" in node.path]

    bundle = WORK / f"bundle-{number}"
    config = _config(each, nodes)
    asked = {"folders": ["/etc/cdi", str(CDI)], "ids": ids, "config": config}
    with oracle.Asked(merger) as merging:
        answer = merging.ask(asked)
    if "error" in answer:
        return Outcome(code=-1, output=answer["error"])
    _lay_out(bundle, each)
    (bundle / "config.json").write_text(json.dumps(answer["config"]))

    done = subprocess.run(
        [each.runtime, "run", "--bundle", str(bundle), f"test-{os.getpid()}-{number}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=60,
    )
    subprocess.run(["umount", bundle / "rootfs"], check=True)
    (gpu,) = inventory.gpus
    libraries = gpu.libraries.reason if gpu.libraries else ""
    return Outcome(code=done.returncode, output=done.stdout, libraries=libraries)


def _prepared(inventory: Inventory, capabilities: Iterable[str]) -> PreparedClaim:
    config = worlds.opaque(worlds.gpu_config(capabilities=list(capabilities)))
    results = [worlds.result(gpu.name) for gpu in inventory.gpus]
    return plan.plan(
        worlds.claim("c", *results, config=[config]),
        driver=worlds.DRIVER,
        pool=worlds.NODE,
        inventory=inventory,
        neighbours=(),
        now="2026-01-01T00:00:00Z",
    )


def _lay_out(bundle: Path, each: Run) -> None:
    """The image under a layer of the container's own, as runtimes do it."""
    layers = {name: bundle / name for name in ("upper", "scratch", "rootfs")}
    for folder in layers.values():
        folder.mkdir(parents=True)
    image = images.folder(each.image)
    options = f"lowerdir={image},upperdir={layers['upper']},workdir={layers['scratch']}"
    _mount("-t", "overlay", "overlay", "-o", options, layers["rootfs"])
    if each.change:
        changes.apply(layers["rootfs"], each.change)
    if each.user_namespace:
        subprocess.run(["chown", "-R", "-h", "100000:100000", layers["rootfs"]], check=True)


def _config(each: Run, nodes: Iterable[str]) -> dict[str, Any]:
    command = each.command
    if not command:
        ldconfig = ("--ldconfig",) if each.image in ("debian", "rhel") else ()
        libraries = ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libnvidia-nvvm.so.4")
        command = ("/check", *libraries, *nodes, *ldconfig)
    namespaces = ["pid", "mount", "ipc", "uts"]
    linux: dict[str, Any] = {"resources": {"devices": [{"allow": False, "access": "rwm"}]}}
    if each.user_namespace:
        namespaces.append("user")
        mapping = [{"containerID": 0, "hostID": 100000, "size": 65536}]
        linux |= {"uidMappings": mapping, "gidMappings": mapping}
    linux["namespaces"] = [{"type": name} for name in namespaces]
    mounts = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]},
    ]
    if each.volume:
        bind = {"type": "bind", "source": each.volume, "options": ["rbind", "rw"]}
        mounts.append({"destination": "/etc", **bind})
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": each.user, "gid": each.user},
            "args": list(command),
            "env": list(each.environment),
            "cwd": "/",
            "noNewPrivileges": True,
        },
        "root": {"path": "rootfs", "readonly": each.read_only},
        "mounts": mounts,
        "linux": linux,
    }


if __name__ == "__main__":
    main()
