"""The machines of the tests. One guest per kernel serves all tests, because a boot takes long."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from . import guest, kernel, node, pci

# A display device of AMD with the function for its sound, in one slot and one IOMMU group.
DISPLAY, SOUND, NETWORK = "0000:00:05.0", "0000:00:05.1", "0000:00:05.2"

# Another one behind a root port, in an IOMMU group of its own.
PORT, BEHIND = "0000:00:06.0", "0000:01:00.0"

# A port for what is plugged in while the guest runs, and a port with a device that reports errors.
EMPTY_PORT, PLUGGED = "0000:00:07.0", "0000:02:00.0"
ERROR_PORT, FAILING = "0000:00:08.0", "0000:03:00.0"

DEVICES = (
    "ati-vga,id=display,model=rv100,multifunction=on,addr=05.0",
    "intel-hda,id=sound,addr=05.1",
    "hda-output,bus=sound.0,audiodev=silence",
    "e1000,id=network,addr=05.2,romfile=",
    "pcie-root-port,id=port1,chassis=1,slot=1,addr=06.0",
    "ati-vga,id=behind,model=rv100,bus=port1",
    "pcie-root-port,id=port2,chassis=2,slot=2,addr=07.0",
    "pcie-root-port,id=port3,chassis=3,slot=3,addr=08.0",
    "virtio-gpu-pci,id=failing,bus=port3,aer=on",
)

# Ports report hot-plug events themselves, as on real machines, and not by ACPI.
ARGUMENTS = (
    *("-global", "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off"),
    *("-audiodev", "none,id=silence"),
)
FLAGS = ("--vfio-bind=*:*", "--health-interval=2", "--absent-grace=600", "--log-level=debug")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(400))


@pytest.fixture(scope="session", params=["stable", "testing"])
def linux(request: pytest.FixtureRequest) -> kernel.Kernel:
    return kernel.fetch(kernel.STABLE if request.param == "stable" else kernel.TESTING)


@pytest.fixture(scope="session")
def machine(
    linux: kernel.Kernel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[guest.Guest]:
    """The guest, with a disk for the kubelet's folder."""
    folder = tmp_path_factory.mktemp("machine")
    disk = guest.make_disk(folder / "disk", "64M")
    machine = guest.Guest(
        linux, folder / "guest", devices=DEVICES, disks=[disk], arguments=ARGUMENTS
    )
    try:
        machine.start()
        set_up(machine)
        yield machine
    finally:
        machine.shut_down()


def set_up(machine: guest.Guest) -> None:
    """Does what a node does at its start."""
    machine.run(
        f"mkdir -p {node.KUBELET} && mount -t ext4 /dev/vda {node.KUBELET}"
        " && modprobe -a vfio-pci vfio_iommu_type1 snd-hda-intel snd-hda-codec-generic",
        check=True,
    )


@pytest.fixture(scope="session")
def kubeconfig(linux: kernel.Kernel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The API server of the tests with one kernel. Another one's slices are not in it."""
    with node.api_server(tmp_path_factory.mktemp("api")) as path:
        yield path


@pytest.fixture(scope="session")
def running(machine: guest.Guest, kubeconfig: Path) -> Iterator[node.Node]:
    running = node.Node(machine, kubeconfig, *FLAGS)
    running.start()
    yield running
    running.close()


@pytest.fixture
def bus(machine: guest.Guest) -> pci.Bus:
    return pci.Bus(machine)


@pytest.fixture
def radeon(machine: guest.Guest, bus: pci.Bus) -> Iterator[None]:
    """The driver radeon has the GPU behind a port.

    Its frame buffer would crash the kernel. Its poll of the connectors crashes Linux 7.2 when the
    driver gives the GPU back: no work that is queued on that processor is done afterwards.
    """
    override = f"{pci.BUS}/devices/{DISPLAY}/driver_override"
    options = "fbdev_emulation=0 poll=0"
    machine.run(f"echo none > {override}; modprobe drm_kms_helper {options}", check=True)
    machine.run("modprobe radeon", timeout=120, check=True)
    assert bus.state(BEHIND).driver == "radeon"
    yield
    machine.run(f"echo > {override}; rmmod radeon", check=True)


_SECONDS = pytest.StashKey[list[str]]()


@pytest.fixture
def record_seconds(request: pytest.FixtureRequest) -> Callable[[str, float], None]:
    """`record_seconds("what", started)` prints at the end how long something took."""
    rows = request.config.stash.setdefault(_SECONDS, [])
    name = request.node.name

    def record(what: str, started: float) -> None:
        rows.append(f"{time.monotonic() - started:6.2f} s  {what} ({name})")

    return record


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    rows = terminalreporter.config.stash.get(_SECONDS, [])
    if rows:
        terminalreporter.section("how long it took")
        terminalreporter.write_line("\n".join(rows))
