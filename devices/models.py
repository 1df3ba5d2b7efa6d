"""The models and machines that `fake` can write: what PCI and the kernel say of each. Data, and
nothing that acts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

# The sound function beside some GPUs, then memory in bytes where the driver tells it, then what the
# driver calls it.
_TABLE = """
nvidia:h100    10de:2330 10de:16c1 030200 a1 nvidia     -    -            NVIDIA H100 80GB HBM3
nvidia:a100    10de:20b2 10de:1463 030200 a1 nvidia     -    -            NVIDIA A100-SXM4-80GB
nvidia:gb200   10de:2941 10de:2046 030200 a1 nvidia     -    -            NVIDIA GB200
nvidia:gb10    10de:2e12 10de:0000 030000 a1 nvidia     -    -            NVIDIA GB10
nvidia:l4      10de:27b8 10de:16ca 030200 a1 nvidia     -    -            NVIDIA L4
nvidia:t4      10de:1eb8 10de:12a2 030200 a1 nvidia     -    -            Tesla T4
nvidia:rtx4090 10de:2684 1043:889d 030000 a1 nvidia     22ba -            NVIDIA GeForce RTX 4090
amd:mi300x     1002:74a1 1002:74a1 120000 00 amdgpu     -    206141652992 AMD Instinct MI300X OAM
amd:mi210      1002:740f 1002:0c34 038000 02 amdgpu     -    68702699520  AMD Instinct MI210
amd:radeon     1002:744c 1eae:7901 030000 c8 amdgpu     ab30 25753026560  -
amd:strix      1002:150e 17aa:5102 038000 d1 amdgpu     -    536870912    -
intel:max1550  8086:0bd5 8086:0000 038000 2f i915       -    137438953472 -
intel:flex170  8086:56c0 8086:4905 038000 08 i915       -    14940110848  -
intel:arc      8086:56a0 8086:1020 030000 08 i915       -    -            -
intel:b580     8086:e20b 8086:1100 030000 00 xe         -    -            -
intel:uhd770   8086:4680 1043:8694 030000 0c i915       -    -            -
bmc:aspeed     1a03:2000 1a03:2000 030000 52 ast        -    -            -
bmc:matrox     102b:0538 1590:00e4 030000 01 mgag200    -    -            -
virtual:bochs  1234:1111 1af4:1100 030000 02 bochs-drm  -    -            -
virtual:virtio 1af4:1050 1af4:1100 030000 01 virtio-pci -    -            -
virtual:vmware 15ad:0405 15ad:0405 030000 00 vmwgfx     -    -            -
"""


Switch = tuple[
    str, str, int
]  # ids of the port towards the slot and of the one towards the GPU; the latter's number


@dataclass(frozen=True, slots=True, kw_only=True)
class More:
    """What there is beyond PCI's ids."""

    speed: str = "16.0"  # GT/s of the link that the board has
    width: str = "16"
    port: str = "8086:352a"  # ids of the root port before it
    switch: Switch | None = None  # on the board or in the package, between the slot and the GPU
    inner: tuple[str, str] = (
        "",
        "",
    )  # speed and width of the link behind the switch, if these are others
    # a part of the processor's package by NVLink-C2C: its root port says that it has no link
    coherent: bool = False
    gfx: int = 0  # KFD's number of the compile target
    chip: str = "ip discovery"  # as KFD names it
    simds: int = 0
    simds_per_unit: int = 4
    waves: tuple[int, int] = (8, 64)  # on one SIMD, and how wide they are
    dies: int = 1  # that compute: into so many partitions it can be divided
    modes: str = ""
    memory_modes: str = ""
    # of temperature, in the order of their numbers; * has no critical value
    sensors: str = "edge junction mem"
    vbios: str = ""
    address_bits: int = 47  # that NVIDIA's driver says the GPU can reach
    virtual: int = 0  # functions that it can have
    tiles: int = 1


_NAVI: Switch = ("1002:1478", "1002:1479", 0)
_MORE = {
    "nvidia:h100": More(speed="32.0", vbios="96.00.89.00.01", address_bits=52),
    "nvidia:a100": More(port="1022:1483", vbios="92.00.45.00.03"),
    "nvidia:gb200": More(speed="32.0", port="10de:22b1", vbios="97.00.82.00.2e", address_bits=52),
    "nvidia:gb10": More(
        speed="2.5", port="10de:22d1", coherent=True, vbios="9a.0b.15.00.05", address_bits=52
    ),
    "nvidia:l4": More(vbios="95.04.29.00.06"),
    "nvidia:t4": More(speed="8.0", vbios="90.04.38.00.03"),
    "nvidia:rtx4090": More(port="8086:a70d", vbios="95.02.18.80.5f"),
    "amd:mi300x": More(
        speed="32.0",
        port="1022:14ab",
        switch=("1022:1500", "1002:1501", 0),
        gfx=90402,
        simds=1216,
        dies=8,
        modes="SPX, DPX, QPX, CPX",
        memory_modes="NPS1, NPS4",
        sensors="- junction mem",
        vbios="113-M3000100-102",
    ),
    "amd:mi210": More(
        port="1022:1483",
        switch=("1022:14c7", "1002:14c8", 0),
        gfx=90010,
        chip="aldebaran",
        simds=416,
        vbios="113-D67301-059",
    ),
    "amd:radeon": More(
        port="1022:14db",
        switch=_NAVI,
        gfx=110000,
        simds=192,
        simds_per_unit=2,
        waves=(16, 32),
        vbios="113-D7020100-102",
    ),
    "amd:strix": More(
        port="1022:150c",
        gfx=110500,
        simds=32,
        simds_per_unit=2,
        waves=(16, 32),
        sensors="edge*",
        vbios="113-STRIXEMU-001",
    ),
    "intel:max1550": More(speed="32.0", virtual=63, tiles=2),
    "intel:flex170": More(virtual=31, switch=("8086:4fa0", "8086:4fa4", 1), inner=("2.5", "1")),
    "intel:arc": More(port="8086:a70d", switch=("8086:4fa1", "8086:4fa4", 1), inner=("2.5", "1")),
    "intel:b580": More(
        port="8086:a70d", width="8", switch=("8086:e2ff", "8086:e2f0", 1), inner=("2.5", "1")
    ),
    "intel:uhd770": More(virtual=7),
}

# A few words each: what they stand for can be said by hand just as well.
MACHINES = {
    "machine:dgx-h100": ("nvidia:h100=8", "roots=1", "numa=2", "bmc:aspeed"),
    "machine:gb200": (
        *(f"nvidia:gb200,domain={domain}" for domain in ("8", "9", "18", "19")),
        "numa=2",
    ),
    "machine:gb10": ("nvidia:gb10,domain=f",),
    "machine:l4": ("nvidia:l4=4", "roots=2", "numa=2", "bmc:aspeed"),
    "machine:a100-mig": ("nvidia:a100,mig=7", "nvidia:a100", "numa=2", "bmc:aspeed"),
    "machine:mi300x": ("amd:mi300x=8", "numa=2", "bmc:aspeed"),
    "machine:mi300x-cpx": ("amd:mi300x=8,mode=cpx,memory_mode=nps4", "numa=2", "bmc:aspeed"),
    "machine:mi210": ("amd:mi210=4", "roots=2", "numa=2", "bmc:matrox"),
    "machine:radeon": ("amd:radeon", "numa=0"),
    "machine:strix": ("amd:strix", "numa=0"),
    "machine:max1550": ("intel:max1550=4", "numa=2", "bmc:aspeed"),
    "machine:flex170": ("intel:flex170,vfs=4", "intel:flex170", "numa=2", "bmc:aspeed"),
    "machine:b580": ("intel:b580", "numa=0"),
    "machine:uhd770": ("intel:uhd770", "bmc:aspeed,console", "numa=0"),
}


# What people call those whose driver does not tell a name.
_TITLES = {
    "amd:radeon": "AMD Radeon RX 7900 XT",
    "amd:strix": "AMD Ryzen AI 300 (Strix Point), a processor's own GPU",
    "intel:max1550": "Intel Data Center GPU Max 1550",
    "intel:flex170": "Intel Data Center GPU Flex 170",
    "intel:arc": "Intel Arc A770",
    "intel:b580": "Intel Arc B580",
    "intel:uhd770": "Intel UHD Graphics 770, a processor's own GPU",
    "bmc:aspeed": "an ASPEED server management chip's screen, which is no GPU",
    "bmc:matrox": "a Matrox server management chip's screen, which is no GPU",
    "virtual:bochs": "the screen that QEMU emulates, which is no GPU",
    "virtual:virtio": "a virtio screen, which is no GPU",
    "virtual:vmware": "VMware's screen, which is no GPU",
}


@dataclass(frozen=True, slots=True)
class Model:
    name: str
    ids: str
    board: str
    class_code: str
    revision: str
    driver: str
    sound: str
    memory: str
    product: str
    more: More = field(default_factory=More)

    @property
    def title(self) -> str:
        """What people call it."""
        return _TITLES.get(self.name, self.product)

    @property
    def is_gpu(self) -> bool:
        """Not one of the screens that a scan leaves alone."""
        return not self.name.startswith(("bmc:", "virtual:"))


def _model(line: str) -> Model:
    row = line.split(maxsplit=8)
    return Model(*row, more=_MORE.get(row[0], More()))  # type: ignore[misc,arg-type]  # nine columns


MODELS = {model.name: model for model in map(_model, _TABLE.strip().splitlines())}
