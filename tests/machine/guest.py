"""A virtual machine: QEMU without KVM, a kernel of Debian, and an agent that runs commands in it.

A guest reaches the network of this machine's loopback as 10.0.2.2. The tests reach the agent, and
through it the unix sockets of the guest, by a port of the loopback.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from . import agent, kernel
from .packages import MachineError

HOST = "10.0.2.2"  # this machine, as the guest sees it
BOOT = 180.0  # seconds until the agent must answer

# Interrupts are remapped, and devices of one slot share an IOMMU group, as on real machines.
_MACHINE = (
    *("-M", "q35,kernel-irqchip=split", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2"),
    *("-nodefaults", "-vga", "none", "-display", "none", "-device", "intel-iommu,intremap=on"),
)
_COMMAND_LINE = "console=ttyS0 quiet intel_iommu=on mitigations=off panic=-1"

T = TypeVar("T")


class Result(NamedTuple):
    """The output of a command, both streams together, and its exit code."""

    output: str
    rc: int


def make_disk(path: Path, size: str) -> Path:
    """Makes a raw image of a disk with an empty ext4, and returns its path."""
    subprocess.run(["truncate", "-s", size, path], check=True)
    subprocess.run(["mke2fs", "-q", "-t", "ext4", path], check=True)
    return path


class Guest:
    """One virtual machine. `folder` gets its console's text and its sockets.

    `devices` are arguments of QEMU's -device, and `disks` are raw images, which the guest sees as
    /dev/vda and so on. `arguments` are further arguments of QEMU.

    Without `folders_on_disk` the guest has a small root in memory, with claimd. Otherwise its root
    has this machine's files, what it writes goes to its first disk, and `folders_on_disk` are plain
    folders of that disk, for programs that cannot use an overlay.
    """

    def __init__(
        self,
        linux: kernel.Kernel,
        folder: Path,
        *,
        devices: Iterable[str] = (),
        disks: Iterable[Path] = (),
        memory: int = 1024,
        modules: Iterable[str] = kernel.BOOT_MODULES,
        arguments: Iterable[str] = (),
        folders_on_disk: Sequence[Path] = (),
    ) -> None:
        self.kernel = linux
        self.folder = folder
        self.console = folder / "console"
        self._memory = memory
        self._more = [*arguments]
        self._initramfs = kernel.initramfs
        self._line = f"{_COMMAND_LINE} modules={','.join(modules)}"
        cache = "writethrough"
        if folders_on_disk:
            self._initramfs = kernel.small_initramfs
            words = [sys.executable, agent.__file__, *folders_on_disk]
            self._line += f" host={','.join(map(str, words))}"
            share = "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap"
            self._more += ["-virtfs", share]
            # A disk that loses nothing without power would make a whole system slow.
            cache = "unsafe"
        for number, disk in enumerate(disks):
            drive = f"file={disk},format=raw,if=none,id=disk{number},cache={cache}"
            self._more += ["-drive", drive, "-device", f"virtio-blk-pci,drive=disk{number}"]
        for device in devices:
            self._more += ["-device", device]
        self._process: subprocess.Popen[bytes] | None = None
        self._qmp: _Qmp | None = None
        self._port = 0
        self._relays: list[agent.Relay] = []
        self._sockets: dict[str, Path] = {}

    # ------------------------------------------------------------------ its life

    def start(self) -> None:
        """Boots the guest. Returns when its agent answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        qmp = self.folder / "qmp"
        qmp.unlink(missing_ok=True)
        network = f"user,id=net,hostfwd=tcp:127.0.0.1:0-:{agent.PORT}"
        command = [
            *("qemu-system-x86_64", *_MACHINE, "-m", str(self._memory)),
            *("-kernel", str(self.kernel.image), "-append", self._line),
            *("-initrd", str(self._initramfs(self.kernel))),
            *("-serial", f"file:{self.console}"),
            *("-qmp", f"unix:{qmp},server=on,wait=off"),
            *("-netdev", network, "-device", "virtio-net-pci,netdev=net,romfile="),
            *self._more,
        ]
        with (self.folder / "qemu.log").open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.wait_for("QEMU's monitor", qmp.exists, timeout=30)
        self._qmp = _Qmp(qmp)
        self._port = self._forwarded_port()
        self.wait_for_boot()

    def _forwarded_port(self) -> int:
        text = self.monitor("info usernet")
        match = re.search(r"HOST_FORWARD\]\s+\d+\s+127\.0\.0\.1\s+(\d+)", text)
        if match is None:
            raise MachineError(f"QEMU forwards no port: {text}")
        return int(match[1])

    def wait_for_boot(self) -> None:
        """Waits until the agent answers, after the start or a reboot."""

        def answers() -> bool:
            with contextlib.suppress(OSError, ValueError, MachineError):
                return self.run("true", timeout=5).rc == 0
            return False

        self.wait_for("the agent", answers, timeout=BOOT)

    def reboot(self) -> None:
        """Resets the machine, as its reset button does. Only the disks keep their content."""
        before = self.boot_id()
        self.qmp("system_reset")

        def is_new() -> bool:
            with contextlib.suppress(OSError, ValueError, MachineError):
                return self.boot_id() != before
            return False

        self.wait_for("the next boot", is_new, timeout=BOOT)

    def boot_id(self) -> str:
        """Returns the id of the present boot."""
        return self.read("/proc/sys/kernel/random/boot_id")

    def shut_down(self) -> None:
        """Writes everything to the disks, and ends the guest."""
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(OSError, ValueError, MachineError):
                self.run("umount -a -r; sync; poweroff -f", timeout=20)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(20)
        self.kill()

    def kill(self) -> None:
        """Ends QEMU at once. What the guest had not written is lost."""
        for relay in self._relays:
            relay.close()
        self._relays.clear()
        self._sockets.clear()
        if self._qmp is not None:
            self._qmp.close()
            self._qmp = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    # ------------------------------------------------------------------ what runs in it

    def run(self, command: str, timeout: float = 60.0, *, check: bool = False) -> Result:
        """Runs a command of the shell. With `check`, it must succeed."""
        return self._result(command, {"shell": command, "timeout": timeout}, timeout, check)

    def python(self, program: str, timeout: float = 60.0) -> str:
        """Runs a program in the agent, which need not start a Python. Returns what it prints."""
        return self._result(program, {"python": program}, timeout, True).output

    def read(self, path: str) -> str:
        """Returns the text of a file, without the spaces around it."""
        return self.python(f"print(open({path!r}).read())").strip()

    def write(self, path: str, text: str) -> str:
        """Writes into a file of the kernel. Returns the name of the error; empty if it worked."""
        program = (
            "import errno, os\n"
            f"descriptor = os.open({path!r}, os.O_WRONLY)\n"
            "try:\n"
            f"    os.write(descriptor, {text!r}.encode())\n"
            "except OSError as error:\n"
            "    print(errno.errorcode[error.errno])\n"
            "finally:\n"
            "    os.close(descriptor)\n"
        )
        return self.python(program).strip()

    def _result(self, what: str, question: dict[str, Any], timeout: float, check: bool) -> Result:
        with self._dial(question, timeout + 10) as connection, connection.makefile("rb") as file:
            line = file.readline()
        if not line:
            raise MachineError(f"the agent did not answer {what!r}")
        result = Result(**json.loads(line))
        if check and result.rc:
            raise MachineError(f"{what!r} ended with {result.rc}: {result.output}")
        return result

    def _dial(self, question: dict[str, Any], timeout: float | None) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self._port), timeout=timeout)
        connection.sendall(json.dumps(question).encode() + b"\n")
        return connection

    def forward(self, path: str) -> Path:
        """Returns a unix socket of this machine that leads to one of the guest."""
        if path not in self._sockets:
            local = self.folder / f"socket{len(self._sockets)}"
            local.unlink(missing_ok=True)
            server = socket.socket(socket.AF_UNIX)
            server.bind(str(local))
            server.listen(16)
            self._relays.append(agent.Relay(server, lambda: self._connect(path)))
            self._sockets[path] = local
        return self._sockets[path]

    def forward_port(self, port: int) -> None:
        """Lets a port of this machine's loopback lead to the same port of the guest's."""
        server = socket.create_server(("127.0.0.1", port))
        self._relays.append(agent.Relay(server, lambda: self._connect(port)))

    def _connect(self, address: str | int) -> socket.socket:
        """Returns a connection to a unix socket of the guest, or to a port of its loopback."""
        connection = self._dial({"connect": address}, 30.0)
        line = agent.read_line(connection)
        if line != b"{}\n":
            connection.close()
            raise OSError(f"{address}: {line.decode(errors='replace')}")
        connection.settimeout(None)
        return connection

    # ------------------------------------------------------------------ QEMU

    def qmp(self, command: str, **arguments: Any) -> Any:
        """Runs a command of QEMU's monitor and returns its answer."""
        assert self._qmp is not None, "the guest runs"
        return self._qmp.ask(
            command, {name.replace("_", "-"): arguments[name] for name in arguments}
        )

    def monitor(self, line: str) -> str:
        """Runs a command of QEMU's monitor for people, such as pcie_aer_inject_error."""
        return str(self.qmp("human-monitor-command", command_line=line))

    def wait_for(self, what: str, fact: Callable[[], T | None], timeout: float = 60.0) -> T:
        """Waits until a fact is true, and returns it. Fails at once if QEMU has ended."""
        end = time.monotonic() + timeout
        while True:
            found = fact()
            if found:
                return found
            over = self._process is not None and self._process.poll() is not None
            if over or time.monotonic() > end:
                raise MachineError(f"{what}: not in {timeout:g} s; {self._last_words()}")
            time.sleep(0.02)

    def _last_words(self) -> str:
        texts = []
        for path in (self.folder / "qemu.log", self.console):
            if path.exists():
                texts.append(path.read_text(errors="replace")[-1500:])
        return "\n".join(texts)


class _Qmp:
    """A connection to QEMU's monitor."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(60)
        self._socket.connect(str(path))
        self._file = self._socket.makefile("rb")
        self._file.readline()
        self.ask("qmp_capabilities", {})

    def ask(self, command: str, arguments: dict[str, Any]) -> Any:
        question = {"execute": command, "arguments": arguments}
        self._socket.sendall(json.dumps(question).encode() + b"\n")
        while line := self._file.readline():
            answer = json.loads(line)
            if "error" in answer:
                raise MachineError(f"{command}: {answer['error']['desc']}")
            if "return" in answer:
                return answer["return"]
        raise MachineError(f"QEMU has closed its monitor at {command}")

    def close(self) -> None:
        self._file.close()
        self._socket.close()
