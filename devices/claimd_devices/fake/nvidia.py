"""The files of NVIDIA's driver in /proc, and the models."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .gpu import Entries, FakeVendor, Function, Model, number, refuse

DRIVER = "nvidia"
DRIVER_VERSION = "580.95.05"
_OPEN_BY_DEFAULT = 560
MAJOR, UVM_MAJOR, CAPS_MAJOR = 195, 511, 508

# The driver has a range of numbers for GPU instances of each size, by the divisor of the memory: 8
# is an eighth of it. There are only seven of the smallest size.
_NUMBERS = {1: range(1), 2: range(1, 3), 4: range(3, 7), 8: range(7, 14)}
_PROFILE = re.compile(r"([1-7])g\.([0-9]{1,3})gb")

# A GPU in a processor's package has no memory but the machine's.
_MEMORY_OF_A_PACKAGE = "MemTotal:       125513088 kB\nMemFree:        98304512 kB"


@dataclass(frozen=True, slots=True, kw_only=True)
class NvidiaModel(Model):
    """An NVIDIA GPU."""

    driver: str = DRIVER
    class_code: str = "030200"
    revision: str = "a1"
    address_bits: int = 47  # of memory addresses, as the driver shows them
    mig_memory: int = 0  # GiB that MIG can divide; 0: no MIG
    mig_shares: int = 8  # the parts of the memory; the smallest instance has one of them
    mig_slices: int = 7  # compute slices; the smallest instance has one of them

    # The driver that a machine with it is likely to run. Data centres follow the long-lived branches
    # 535 and 580, or the first branch that serves a new GPU. Workstations and laptops have what their
    # distribution has, and a GPU that branch 590 no longer serves has an older one. A machine with
    # several models has the newest version.
    driver_version: str = DRIVER_VERSION

    # The open kernel module serves GPUs since Turing.
    has_open_module: bool = True


_MODELS = (
    NvidiaModel(
        name="nvidia:h100",
        title="NVIDIA H100 80GB HBM3",
        product="NVIDIA H100 80GB HBM3",
        ids="10de:2330",
        board="10de:16c1",
        speed="32.0",
        vbios="96.00.89.00.01",
        address_bits=52,
        mig_memory=80,
    ),
    NvidiaModel(
        name="nvidia:h200",
        title="NVIDIA H200 (SXM)",
        product="NVIDIA H200",
        ids="10de:2335",
        board="10de:18be",
        speed="32.0",
        vbios="96.00.a0.00.03",
        address_bits=52,
        mig_memory=141,
        driver_version="570.172.08",
    ),
    NvidiaModel(
        name="nvidia:b200",
        title="NVIDIA B200",
        product="NVIDIA B200",
        ids="10de:2901",
        board="10de:1999",
        speed="32.0",
        vbios="97.00.88.00.0f",
        address_bits=52,
        mig_memory=180,
        driver_version="570.172.08",
    ),
    NvidiaModel(
        name="nvidia:b300",
        title="NVIDIA B300 (SXM)",
        product="NVIDIA B300 SXM6 AC",
        ids="10de:3182",
        board="10de:20e6",
        speed="64.0",
        vbios="97.10.4b.00.0c",
        address_bits=52,
        mig_memory=269,
        driver_version="590.48.01",
    ),
    NvidiaModel(
        name="nvidia:rtxpro6000",
        title="NVIDIA RTX PRO 6000 Blackwell Server Edition",
        product="NVIDIA RTX PRO 6000 Blackwell Server Edition",
        ids="10de:2bb5",
        board="10de:204e",
        speed="32.0",
        port="1022:153b",
        vbios="98.02.73.00.01",
        address_bits=52,
        mig_memory=96,
        mig_shares=4,
        mig_slices=4,
        driver_version="575.57.08",
    ),
    NvidiaModel(
        name="nvidia:l40s",
        title="NVIDIA L40S",
        product="NVIDIA L40S",
        ids="10de:26b9",
        board="10de:1851",
        vbios="95.02.66.00.15",
        driver_version="550.163.01",
    ),
    NvidiaModel(
        name="nvidia:a100",
        title="NVIDIA A100-SXM4-80GB",
        product="NVIDIA A100-SXM4-80GB",
        ids="10de:20b2",
        board="10de:1463",
        port="1022:1483",
        vbios="92.00.45.00.03",
        mig_memory=80,
        driver_version="570.195.03",
    ),
    NvidiaModel(
        name="nvidia:gb200",
        title="NVIDIA GB200",
        product="NVIDIA GB200",
        ids="10de:2941",
        board="10de:2046",
        speed="32.0",
        port="10de:22b1",
        on_arm=True,
        vbios="97.00.82.00.2e",
        address_bits=52,
        mig_memory=186,
    ),
    NvidiaModel(
        name="nvidia:gb10",
        title="NVIDIA GB10",
        product="NVIDIA GB10",
        ids="10de:2e12",
        board="10de:0000",
        class_code="030000",
        speed="2.5",
        port="10de:22d1",
        on_arm=True,
        coherent=True,
        vbios="9a.0b.15.00.05",
        address_bits=52,
    ),
    NvidiaModel(
        name="nvidia:l4",
        title="NVIDIA L4",
        product="NVIDIA L4",
        ids="10de:27b8",
        board="10de:16ca",
        vbios="95.04.29.00.06",
        driver_version="535.274.02",
    ),
    NvidiaModel(
        name="nvidia:t4",
        title="NVIDIA Tesla T4",
        product="Tesla T4",
        ids="10de:1eb8",
        board="10de:12a2",
        speed="8.0",
        vbios="90.04.38.00.03",
        driver_version="535.183.01",
    ),
    NvidiaModel(
        name="nvidia:rtx4090",
        title="NVIDIA GeForce RTX 4090",
        product="NVIDIA GeForce RTX 4090",
        ids="10de:2684",
        board="1043:889d",
        class_code="030000",
        sound="22ba",
        port="8086:a70d",
        vbios="95.02.18.80.5f",
        driver_version="575.64.03",
    ),
    NvidiaModel(
        name="nvidia:gtx1050ti",
        title="NVIDIA GeForce GTX 1050 Ti",
        product="NVIDIA GeForce GTX 1050 Ti",
        ids="10de:1c82",
        class_code="030000",
        sound="0fb9",
        speed="8.0",
        vbios="86.07.39.00.34",
        driver_version="535.247.01",
        has_open_module=False,
    ),
    NvidiaModel(
        name="nvidia:gtx1060",
        title="NVIDIA GeForce GTX 1060 6GB",
        product="NVIDIA GeForce GTX 1060 6GB",
        ids="10de:1c03",
        board="1458:3771",
        class_code="030000",
        sound="10f1",
        speed="8.0",
        port="8086:1901",
        vbios="86.06.45.00.a8",
        driver_version="470.256.02",
        has_open_module=False,
    ),
    NvidiaModel(
        name="nvidia:gtx1650-laptop",
        title="NVIDIA GeForce GTX 1650, of a laptop",
        product="NVIDIA GeForce GTX 1650",
        ids="10de:1f91",
        board="103c:85fc",
        class_code="030000",
        sound="10fa",
        speed="8.0",
        port="8086:1901",
        vbios="90.17.29.00.4f",
        driver_version="550.120",
    ),
    NvidiaModel(
        name="nvidia:gtx1660",
        title="NVIDIA GeForce GTX 1660",
        product="NVIDIA GeForce GTX 1660",
        ids="10de:2184",
        class_code="030000",
        sound="1aeb",
        speed="8.0",
        port="8086:1901",
        vbios="90.16.25.40.12",
        driver_version="545.29.06",
    ),
    NvidiaModel(
        name="nvidia:gtx1660super",
        title="NVIDIA GeForce GTX 1660 SUPER",
        product="NVIDIA GeForce GTX 1660 SUPER",
        ids="10de:21c4",
        class_code="030000",
        sound="1aeb",
        speed="8.0",
        port="1022:1483",
        vbios="90.16.42.00.61",
        driver_version="560.35.03",
    ),
    NvidiaModel(
        name="nvidia:gtx1660ti-laptop",
        title="NVIDIA GeForce GTX 1660 Ti, of a laptop",
        product="NVIDIA GeForce GTX 1660 Ti",
        ids="10de:2191",
        class_code="030000",
        speed="8.0",
        port="8086:1901",
        vbios="90.16.2e.00.4d",
        driver_version="525.147.05",
    ),
    NvidiaModel(
        name="nvidia:rtx3060",
        title="NVIDIA GeForce RTX 3060",
        product="NVIDIA GeForce RTX 3060",
        ids="10de:2503",
        class_code="030000",
        vbios="94.06.25.00.6a",
        driver_version="550.144.03",
    ),
    NvidiaModel(
        name="nvidia:rtx3060-laptop",
        title="NVIDIA GeForce RTX 3060, of a laptop",
        product="NVIDIA GeForce RTX 3060 Laptop GPU",
        ids="10de:2560",
        board="17aa:3a81",
        class_code="030000",
        sound="228e",
        speed="8.0",
        port="1022:1633",
        vbios="94.06.19.00.51",
        driver_version="550.127.05",
    ),
    NvidiaModel(
        name="nvidia:rtx3070ti",
        title="NVIDIA GeForce RTX 3070 Ti",
        product="NVIDIA GeForce RTX 3070 Ti",
        ids="10de:2482",
        class_code="030000",
        sound="228b",
        port="8086:1901",
        vbios="94.04.5e.00.25",
        driver_version="565.77",
    ),
    NvidiaModel(
        name="nvidia:rtx3080",
        title="NVIDIA GeForce RTX 3080",
        product="NVIDIA GeForce RTX 3080",
        ids="10de:2206",
        board="1458:404b",
        class_code="030000",
        sound="1aef",
        vbios="94.02.42.00.a9",
        driver_version="570.153.02",
    ),
    NvidiaModel(
        name="nvidia:rtx5070",
        title="NVIDIA GeForce RTX 5070",
        product="NVIDIA GeForce RTX 5070",
        ids="10de:2f04",
        class_code="030000",
        speed="32.0",
        vbios="98.05.2a.00.64",
        driver_version="570.124.04",
    ),
    NvidiaModel(
        name="nvidia:rtx6000",
        title="NVIDIA Quadro RTX 6000",
        product="Quadro RTX 6000",
        ids="10de:1e30",
        board="10de:12ba",
        class_code="030000",
        sound="10f7",
        speed="8.0",
        port="8086:2030",
        vbios="90.02.18.00.02",
        driver_version="550.90.07",
    ),
)

_MACHINES = {
    "machine:dgx-h100": ("nvidia:h100=8", "roots=1", "numa=2", "bmc:aspeed"),
    "machine:gb200": (
        "nvidia:gb200,domain=8",
        "nvidia:gb200,domain=9",
        "nvidia:gb200,domain=18",
        "nvidia:gb200,domain=19",
        "numa=2",
    ),
    "machine:hgx-h200": ("nvidia:h200=8", "roots=1", "numa=2", "bmc:aspeed"),
    "machine:hgx-b200": ("nvidia:b200=8", "roots=1", "numa=2", "bmc:aspeed"),
    "machine:hgx-b300": ("nvidia:b300=8", "roots=1", "numa=2", "bmc:aspeed"),
    "machine:rtxpro6000": ("nvidia:rtxpro6000=8", "roots=1", "numa=2", "bmc:aspeed"),
    "machine:l40s": ("nvidia:l40s=4", "roots=2", "numa=2", "bmc:aspeed"),
    "machine:gb10": ("nvidia:gb10,domain=f",),
    "machine:l4": ("nvidia:l4=4", "roots=2", "numa=2", "bmc:aspeed"),
    "machine:laptop": ("nvidia:rtx3060-laptop", "amd:cezanne,console"),
    "machine:workstation": ("nvidia:rtx3080", "amd:rx6700xt,console", "numa=0"),
    "machine:vm": ("nvidia:t4", "virtual:bochs,console", "roots=0", "numa=0"),
    "machine:a100-mig": ("nvidia:a100,mig=7", "nvidia:a100", "numa=2", "bmc:aspeed"),
}

_OPTIONS = {
    "mig=7": "how many MIG instances of the smallest size an NVIDIA GPU is divided into, or which, "
    "like 3g.40gb:1g.10gb"
}


class FakeNvidia(FakeVendor):
    """GPUs with NVIDIA's own driver, whole or divided by MIG."""

    models = _MODELS
    machines = _MACHINES
    options = _OPTIONS

    def check_options(self, model: Model, options: Mapping[str, str]) -> None:
        wanted = options.get("mig", "0")
        if wanted != "0":
            _instances(_as_nvidia(model), wanted)

    def assign_numbers(self, functions: Sequence[Function], processors: int) -> None:
        """Sets the numbers in reverse order, because a real driver may not follow the bus."""
        functions = [function for function in functions if _is_ours(function)]
        for minor, function in enumerate(reversed(functions)):
            function.numbers.index = minor
            if _is_open(functions) or not function.model.has_screen:
                function.numbers.firmware = _driver_version(functions)

    def machine_entries(self, functions: Sequence[Function], processors: int) -> Entries:
        if not any(function.driver == DRIVER for function in functions):
            return Entries()

        entries = Entries(majors={"nvidia": MAJOR, "nvidia-uvm": UVM_MAJOR})
        entries.majors["nvidia-caps"] = CAPS_MAJOR
        version = _driver_version(functions)
        for module in ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm"):
            entries.files[f"sys/module/{module}/version"] = version
        if any(function.model.coherent for function in functions):
            entries.files["proc/meminfo"] = _MEMORY_OF_A_PACKAGE

        processor = "aarch64" if any(function.model.on_arm for function in functions) else "x86_64"
        module = f"{processor} Kernel Module  {version}  Wed Oct 22 09:15:26 UTC 2025"
        if _is_open([function for function in functions if _is_ours(function)]):
            module = f"Open Kernel Module for {processor}  {version}  Release Build  (root@host)  "
        entries.files["proc/driver/nvidia/version"] = (
            f"NVRM version: NVIDIA UNIX {module}\nGCC version:  gcc version 13.3.0"
        )

        entries.nodes["dev/nvidiactl"] = (MAJOR, 255)
        entries.nodes["dev/nvidia-modeset"] = (MAJOR, 254)
        entries.nodes["dev/nvidia-uvm"] = (UVM_MAJOR, 0)
        entries.nodes["dev/nvidia-uvm-tools"] = (UVM_MAJOR, 1)
        return entries

    def function_entries(self, function: Function) -> Entries:
        if not _is_ours(function):
            return Entries()
        card = f"proc/driver/nvidia/gpus/{function.address}"
        capabilities = f"proc/driver/nvidia/capabilities/gpu{function.numbers.index}"
        entries = Entries(folders=[card, capabilities])
        entries.files[f"{card}/information"] = _information(
            function, function.numbers.firmware or "N/A"
        )
        entries.nodes[f"dev/nvidia{function.numbers.index}"] = (MAJOR, function.numbers.index)

        for name, minor in _capabilities(function).items():
            entries.files[f"{capabilities}/mig/{name}"] = (
                f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1"
            )
            entries.nodes[f"dev/nvidia-caps/nvidia-cap{minor}"] = (CAPS_MAJOR, minor)
        return entries


def _is_ours(function: Function) -> bool:
    return function.driver == DRIVER and function.physical is None


def _as_nvidia(model: Model) -> NvidiaModel:
    if not isinstance(model, NvidiaModel):
        raise TypeError(f"{model.name} is no model of NVIDIA")
    return model


def _driver_version(functions: Sequence[Function]) -> str:
    """Returns the version of the machine's driver: the newest that one of its GPUs has."""
    versions = [
        _as_nvidia(function.model).driver_version for function in functions if _is_ours(function)
    ]
    return max(versions, key=lambda version: [int(part) for part in version.split(".")])


def _is_open(functions: Sequence[Function]) -> bool:
    """Returns True if the machine has the open kernel module.

    That is so from branch 560 on, where it became the default, if it serves all of the GPUs.
    """
    branch = int(_driver_version(functions).partition(".")[0])
    return branch >= _OPEN_BY_DEFAULT and all(
        _as_nvidia(function.model).has_open_module for function in functions
    )


def _information(function: Function, firmware: str) -> str:
    """Returns the driver's file of a GPU, with tabs as the driver prints them."""
    model = _as_nvidia(function.model)
    gpu_uuid = uuid.uuid5(uuid.NAMESPACE_DNS, f"{function.address}.claimd.dev")
    mask = (1 << model.address_bits) - 1
    lines = (
        f"Model: \t\t {model.product}",
        f"IRQ:   \t\t {64 + function.numbers.index}",
        f"GPU UUID: \t GPU-{gpu_uuid}",
        f"Video BIOS: \t {model.vbios}",
        "Bus Type: \t PCIe",
        f"DMA Size: \t {model.address_bits} bits",
        f"DMA Mask: \t {mask:#x}",
        f"Bus Location: \t {function.address}",
        f"Device Minor: \t {function.numbers.index}",
        f"GPU Firmware: \t {firmware}",
        "GPU Excluded:\t No",
    )
    return "\n".join(lines)


def _capabilities(function: Function) -> dict[str, int]:
    """Returns the minor numbers of the capabilities of a GPU that MIG divides, by their paths.

    The numbers start at 3, after those of `config` and `monitor`. Each possible instance has nine.
    """
    minors: dict[str, int] = {}
    first = 3 + function.numbers.index * 135
    for instance in _instances(_as_nvidia(function.model), function.options.get("mig", "0")):
        minors[f"gi{instance}/access"] = first + instance * 9
        minors[f"gi{instance}/ci0/access"] = first + instance * 9 + 1
    return minors


def _instances(model: NvidiaModel, wanted: str) -> list[int]:
    """Returns the numbers of the wanted GPU instances.

    `wanted` is a number of smallest instances, or profiles with colons between them. Raises
    ValueError if they do not fit.
    """
    profiles = wanted.split(":")
    if wanted.isdecimal():
        gibibytes = int(model.mig_memory / model.mig_shares + 0.5)
        profiles = [f"1g.{gibibytes}gb"] * number("mig", wanted)

    instances: list[int] = []
    slices = eighths = 0
    for profile in profiles:
        match = _PROFILE.fullmatch(profile)
        if match is None or not model.mig_memory:
            refuse("mig", wanted, f"a number of instances of {model.name}, or profiles of it")

        divisor = round(model.mig_memory / max(int(match[2]), 1))
        slices += int(match[1])
        eighths += 8 // divisor if divisor in _NUMBERS else 9
        free = [one for one in _NUMBERS.get(divisor, ()) if one not in instances]
        is_too_small = divisor > model.mig_shares
        if not free or is_too_small or slices > model.mig_slices or eighths > 8:
            refuse("mig", wanted, f"what {model.name} has room for")
        instances.append(free[0])
    return sorted(instances)
