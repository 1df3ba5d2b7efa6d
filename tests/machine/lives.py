"""Records the life of a claimd in a virtual machine, whose disk the test serves. `power` cuts the
power at any moment of it.

The guest has the kubelet's folder and the CDI folder on the disk. The kubelet and the API server
run on this machine. So the log of the disk also has each answer to the kubelet, in its order among
the writes. A life has a stream of calls, a full disk, a read-only disk and a disk that fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import random
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from claimd.common import names
from tests.faults.stage import PREPARED, Stage
from tests.faults.world import GPUS, Broken, Claimd, World, world
from tests.support import progress
from tests.support.worlds import DRIVER, NODE

from . import kernel, node
from .cuts import Recording
from .disk import Blocks, Event, Fact, ServedDisk
from .guest import HOST, Guest

SIZES = {"ext4": 64 << 20, "xfs": 300 << 20}  # bytes: small ones, but xfs takes none below
FORMATS = {
    "ext4": ("mkfs.ext4", "-q", "-b", "4096"),
    "xfs": ("mkfs.xfs", "-q"),
}

# The claims, with the index of their GPU. CLAIMS use a GPU in turn, SHARES at the same time.
CLAIMS = {f"{letter}{index}": index for index in range(3) for letter in "ab"}
SHARES = {f"share-{letter}": 3 for letter in "abc"}
FRESH = {f"fresh{number}": 2 for number in range(3)}  # for the sick disk

TRIES = 20
AGAIN = 60.0  # seconds in which claimd must serve again when the disk is well

_DISK = Path("/disk")
_FOLDERS = ("kubelet/plugins_registry", "kubelet/plugins", "cdi")

# claimd, and claimd with one sync taken out.
RUN = "import sys; from claimd.__main__ import main; sys.argv[0] = 'claimd'; main()"
RUN_UNSYNCED = (
    f"from claimd.common import durable; durable.sync_folder = lambda folder: None; {RUN}"
)

FILLER = "filler"  # the file that takes all the room of a full disk

_FILL = f"""
import os
descriptor = os.open("{_DISK}/{FILLER}", os.O_WRONLY | os.O_CREAT)
size, step = 0, 1 << 30
while step >= 1024:
    try:
        os.posix_fallocate(descriptor, size, step)
        size += step
    except OSError:
        step //= 2
os.fsync(descriptor)
os.close(descriptor)
"""


@dataclass(kw_only=True)
class LoggedStage(Stage):
    """A stage that adds each new state of a claim to the log of the disk."""

    events: list[Event] = field(default_factory=list)

    def _became(self, name: str, state: str) -> None:
        super()._became(name, state)
        self.events.append(Fact(name, state))


class GuestClaimd(Claimd):
    """A claimd in a guest. The sockets on this machine are links to forwarded ones."""

    code = None  # type: ignore[assignment]  # the guest's processes are not of this machine
    dead = False  # type: ignore[assignment]

    def __init__(self, world_: World, guest: Guest) -> None:
        super().__init__(world_, None, "")  # type: ignore[arg-type]
        self._guest = guest

    async def start(self, kubeconfig: str, settings: dict[str, object], program: str) -> None:
        await asyncio.to_thread(
            node.launch, self._guest, kubeconfig, settings, program=("-c", program)
        )
        far = (
            names.registration_socket(_DISK / "kubelet", DRIVER, ""),
            names.dra_socket(_DISK / "kubelet", DRIVER, ""),
        )
        for near, socket in zip((self._registration, self._socket), far, strict=True):
            near.parent.mkdir(parents=True, exist_ok=True)
            near.symlink_to(self._guest.forward(str(socket)))
        deadline = time.monotonic() + node.START
        while not await self.register():
            if await asyncio.to_thread(self._has_ended) or time.monotonic() > deadline:
                log = (await asyncio.to_thread(self._guest.run, f"tail -n 20 {node.LOG}")).output
                raise Broken(f"claimd does not start in the guest:\n{log}")

    def _has_ended(self) -> bool:
        return self._guest.python("print(kept['claimd'].poll())").strip() != "None"


class Life:
    """One claimd in a guest, and its kubelet."""

    def __init__(self, guest: Guest, disk: ServedDisk, stage: LoggedStage, seed: int) -> None:
        self._guest, self._disk, self._stage = guest, disk, stage
        self._dice = random.Random(seed)

    async def stream(self, seconds: float) -> None:
        """Prepares and unprepares claims at the same time, until the time is over."""
        end = time.monotonic() + seconds
        await asyncio.gather(
            self._by_turns(end, 0, 1),
            self._by_turns(end, 2),
            *(self._alone(end, s) for s in SHARES),
        )

    async def _by_turns(self, end: float, *gpus: int) -> None:
        """Gives these GPUs to one claim after the other, often several in one call."""
        while time.monotonic() < end:
            chosen = self._dice.sample(gpus, self._dice.randint(1, len(gpus)))
            await self._use(*(f"{self._dice.choice('ab')}{index}" for index in chosen))

    async def _alone(self, end: float, claim: str) -> None:
        while time.monotonic() < end:
            await self._use(claim)

    async def _use(self, *claims: str) -> None:
        given = {**CLAIMS, **SHARES}
        await self._until_done(lambda: self._stage.prepare(*((c, given[c]) for c in claims)))
        await asyncio.sleep(self._dice.choice((0, 0, 0.05, 0.3)))
        await self._until_done(lambda: self._stage.unprepare(*claims))
        progress.moved()

    async def _until_done(self, call: Callable[[], object], seconds: float = 0.0) -> None:
        """Repeats a call as a kubelet does."""
        end = time.monotonic() + seconds
        tries = 0
        while not await call():
            tries += 1
            if tries >= TRIES and time.monotonic() > end:
                raise Broken(f"fails again and again: {self._stage.errors[-3:]}")

    # ------------------------------------------------------------------ the sick disk

    async def be_full(self) -> None:
        await self._python(_FILL)
        await self._check_refusal("fresh0", "No space")
        await self._check_held()
        await asyncio.to_thread(self._guest.run, f"rm {_DISK}/{FILLER}", check=True)
        await self._check_recovery("fresh0")

    async def be_read_only(self) -> None:
        """The kernel makes all disks read-only, as after an error."""
        await self._python("open('/proc/sysrq-trigger', 'w').write('u')")
        await asyncio.to_thread(self._guest.wait_for, "a read-only disk", self._is_read_only)
        await self._check_refusal("fresh1", "Read-only")
        await self._check_held()
        await asyncio.to_thread(
            self._guest.run, f"mount -o remount,rw /dev/vda {_DISK}", check=True
        )
        await self._check_recovery("fresh1")

    async def fail(self) -> None:
        """The disk takes nothing any more; only a reboot could help."""
        self._disk.error = errno.EIO
        await self._check_refusal("fresh2", "Input/output", "Read-only")
        assert self._disk.failed
        self._disk.error = 0

    async def _check_refusal(self, fresh: str, *reasons: str) -> None:
        """Broken unless a new claim is refused for one of the reasons."""
        if await self._stage.prepare((fresh, FRESH[fresh])):
            raise Broken("a claim was prepared, though the disk takes nothing")
        said = self._stage.errors[-1:]
        if not any(reason in error for error in said for reason in reasons):
            raise Broken(f"a claim was refused with {said}, not {reasons}")

    async def _check_held(self) -> None:
        """Broken unless the claims that are prepared are answered."""
        held = [name for name, state in self._stage.states.items() if state == PREPARED]
        for name in held:
            if not await self._stage.prepare((name, self._stage.claims[name])):
                raise Broken(f"{name} is prepared, and was refused: {self._stage.errors[-1:]}")

    async def _check_recovery(self, fresh: str) -> None:
        await self._until_done(lambda: self._stage.prepare((fresh, FRESH[fresh])), AGAIN)
        await self._until_done(lambda: self._stage.unprepare(fresh))

    def _is_read_only(self) -> bool:
        return f" {_DISK} " in self._guest.run("grep ' ro[, ]' /proc/mounts").output

    async def _python(self, program: str) -> None:
        await asyncio.to_thread(self._guest.python, program)

    async def hold(self) -> None:
        """Prepares claims that are held from here on."""
        await self._until_done(lambda: self._stage.prepare(("a0", 0), ("b1", 1), ("share-a", 3)))


async def record(
    linux: kernel.Kernel,
    file_system: str,
    seconds: float,
    seed: int,
    *,
    program: str = RUN,
) -> Recording:
    """Runs a guest, and returns what its disk and its kubelet went through."""
    async with world() as world_:
        blocks = _formatted(world_.folder / "image", file_system)
        ground = dict(blocks.contents)
        disk = ServedDisk(blocks)
        socket = world_.folder / "nbd"
        drive = f"file=nbd+unix:///?socket={socket},format=raw,if=none,id=served,cache=none"
        guest = Guest(
            linux,
            world_.folder / "guest",
            arguments=("-drive", drive, "-device", "virtio-blk-pci,drive=served,werror=report"),
        )
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(disk.serving(socket))
            stack.push_async_callback(asyncio.to_thread, guest.kill)
            await asyncio.to_thread(guest.start)
            claimd = await _start(guest, world_, file_system, program)
            stage = LoggedStage(world=world_, claimd=claimd, has_rivals=False, events=disk.events)
            life = Life(guest, disk, stage, seed)
            await life.stream(seconds)
            await life.hold()
            await life.be_full()
            await life.be_read_only()
            await life.fail()
        return Recording(
            file_system=file_system,
            size=blocks.size,
            ground=ground,
            events=disk.events,
            claims=stage.claims,
        )


def _formatted(image: Path, file_system: str) -> Blocks:
    with image.open("wb") as file:
        file.truncate(SIZES[file_system])
    subprocess.run([*FORMATS[file_system], str(image)], check=True)
    return Blocks.load(image)


async def _start(guest: Guest, world_: World, file_system: str, program: str) -> GuestClaimd:
    def set_up() -> None:
        folders = " ".join(str(_DISK / folder) for folder in _FOLDERS)
        guest.run(
            f"modprobe {file_system} && mkdir {_DISK} && mount -t {file_system} /dev/vda {_DISK}"
            f" && mkdir -p {folders} && sync",
            check=True,
        )
        guest.python(
            "from pathlib import Path; from claimd_devices import fake\n"
            f"fake.write(Path('/tmp/fake'), fake.parse({GPUS!r}))"
        )

    await asyncio.to_thread(set_up)
    kubeconfig = (world_.folder / "kubeconfig").read_text()
    kubeconfig = kubeconfig.replace(world_.api.url, world_.api.direct_url)
    settings: dict[str, object] = {
        "node-name": NODE,
        "kubelet-dir": _DISK / "kubelet",
        "cdi-dir": _DISK / "cdi",
        "root": "/tmp/fake",
    }
    claimd = GuestClaimd(world_, guest)
    await claimd.start(kubeconfig.replace("127.0.0.1", HOST), settings, program)
    return claimd
