"""The models of AMD's GPUs, one row each: facts of the chip and its board.

`amd` makes the driver's files of them. This module has no logic.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .gpu import Model, Switch


@dataclass(frozen=True, slots=True, kw_only=True)
class AmdModel(Model):
    """An AMD GPU."""

    driver: str = "amdgpu"
    gfx: int  # KFD's number of the compile target
    chip: str = "ip discovery"  # KFD's name of the chip
    simds: int
    simds_per_unit: int = 4
    waves: tuple[int, int] = (8, 64)  # the number on one SIMD, and their width
    core: str = ""  # the version of its graphics core; empty if the chip has no table of cores
    dies: int = 1  # that compute; the most partitions
    dead: int = 0  # further dies that the maker has turned off
    modes: str = ""
    memory_modes: str = ""

    # The labels of the temperature sensors, in order; - is a missing sensor, * has no critical
    # value.
    sensors: str = "edge junction mem"
    is_apu: bool = False  # without a serial number, and without memory of its own
    has_id: bool = True  # the driver shows the chip's serial number; never for an APU
    usable: int = 0  # bytes that KFD shows, if the firmware reserves fewer
    has_xgmi: bool = False  # joined with the other GPUs of its model in the machine
    power_cap: int = 0  # watts; 0: the driver shows none


_MI300X = AmdModel(
    name="amd:mi300x",
    title="AMD Instinct MI300X",
    product="AMD Instinct MI300X OAM",
    ids="1002:74a1",
    class_code="120000",
    memory=206141652992,
    vbios="113-M3000100-102",
    speed="32.0",
    port="1022:14ab",
    switch=Switch(upstream="1022:1500", downstream="1002:1501"),
    gfx=90402,
    core="9.4.3",
    simds=1216,
    dies=8,
    modes="SPX, DPX, QPX, CPX",
    memory_modes="NPS1, NPS4",
    sensors="- junction mem",
    has_xgmi=True,
    power_cap=750,
)

_RX480 = AmdModel(
    name="amd:rx480",
    title="AMD Radeon RX 480",
    ids="1002:67df",
    board="1043:04fd",
    revision="c7",
    memory=8589934592,
    vbios="115-D000PI0-100",
    speed="8.0",
    port="8086:1901",
    gfx=80003,
    chip="polaris10",
    simds=144,
    sensors="edge",
    has_id=False,
)

MODELS = (
    _MI300X,
    replace(
        _MI300X,
        name="amd:mi325x",
        title="AMD Instinct MI325X",
        product="AMD Instinct MI325X OAM",
        ids="1002:74a5",
        memory=274861129728,
        vbios="113-M3250101-103",
        memory_modes="NPS1, NPS2, NPS4",
        power_cap=1000,
    ),
    replace(
        _MI300X,
        name="amd:mi355x",
        title="AMD Instinct MI355X",
        product="AMD Instinct MI355X OAM",
        ids="1002:75a3",
        memory=309220868096,
        vbios="113-M3550101-100",
        port="1022:153b",
        gfx=90500,
        core="9.5.0",
        simds=1024,
        memory_modes="NPS1, NPS2",
        power_cap=1400,
    ),
    replace(
        _MI300X,
        name="amd:mi308x",
        title="AMD Instinct MI308X, an MI300X with half of its dies",
        product="AMD Instinct MI308X",
        ids="1002:74a2",
        vbios="113-M3080202-101",
        simds=320,
        dies=4,
        dead=4,
        modes="SPX, DPX, CPX",
        power_cap=650,
    ),
    AmdModel(
        name="amd:mi300a",
        title="AMD Instinct MI300A, with the processors in its package",
        product="AMD Instinct MI300A",
        ids="1002:74a0",
        class_code="120000",
        memory=137438953472,
        vbios="113-MI3SRIOV-001",
        port="1022:14ab",
        gfx=90402,
        core="9.4.3",
        simds=912,
        dies=6,
        modes="SPX, TPX, CPX",
        memory_modes="NPS1",
        sensors="- junction mem",
        has_xgmi=True,
        power_cap=550,
    ),
    AmdModel(
        name="amd:mi210",
        title="AMD Instinct MI210",
        product="AMD Instinct MI210",
        ids="1002:740f",
        board="1002:0c34",
        class_code="038000",
        revision="02",
        memory=68702699520,
        vbios="113-D67301-059",
        port="1022:1483",
        switch=Switch(upstream="1022:14c7", downstream="1002:14c8"),
        gfx=90010,
        chip="aldebaran",
        simds=416,
    ),
    AmdModel(
        name="amd:radeon",
        title="AMD Radeon RX 7900 XTX",
        ids="1002:744c",
        board="1eae:7901",
        revision="c8",
        memory=25753026560,
        vbios="113-D7020100-102",
        sound="ab30",
        port="1022:14db",
        switch=Switch(upstream="1002:1478", downstream="1002:1479"),
        gfx=110000,
        core="11.0.0",
        simds=192,
        simds_per_unit=2,
        waves=(16, 32),
    ),
    AmdModel(
        name="amd:strix",
        title="AMD Ryzen AI 300 (Strix Point), a processor's own GPU",
        ids="1002:150e",
        board="17aa:5102",
        class_code="038000",
        revision="d1",
        memory=536870912,
        vbios="113-STRIXEMU-001",
        port="1022:150c",
        gfx=110500,
        core="11.5.0",
        simds=32,
        simds_per_unit=2,
        waves=(16, 32),
        sensors="edge*",
        is_apu=True,
        usable=16428261376,
    ),
    _RX480,
    replace(
        _RX480,
        name="amd:rx580",
        title="AMD Radeon RX 580",
        board="1043:0519",
        revision="e7",
        vbios="115-D000PI2-100",
        port="1022:1453",
    ),
    AmdModel(
        name="amd:rx6650xt",
        title="AMD Radeon RX 6650 XT",
        ids="1002:73ef",
        revision="c1",
        memory=8573157376,
        vbios="113-D535XTRF-100",
        port="1022:1483",
        width="8",
        switch=Switch(upstream="1002:1478", downstream="1002:1479"),
        inner=("16.0", "16"),
        gfx=100302,
        core="10.3.4",
        simds=64,
        simds_per_unit=2,
        waves=(16, 32),
        has_id=False,
    ),
    AmdModel(
        name="amd:rx6700xt",
        title="AMD Radeon RX 6700 XT",
        ids="1002:73df",
        board="1002:0e36",
        revision="c1",
        memory=12868124672,
        vbios="113-D5121100-101",
        sound="ab28",
        port="1022:1483",
        switch=Switch(upstream="1002:1478", downstream="1002:1479"),
        gfx=100301,
        core="10.3.2",
        simds=80,
        simds_per_unit=2,
        waves=(16, 32),
        has_id=False,
    ),
    AmdModel(
        name="amd:rx6950xt",
        title="AMD Radeon RX 6950 XT",
        ids="1002:73a5",
        board="1002:0e3a",
        revision="c0",
        memory=17163091968,
        vbios="113-D4300200-100",
        sound="ab28",
        port="1022:1483",
        switch=Switch(upstream="1002:1478", downstream="1002:1479"),
        gfx=100300,
        core="10.3.0",
        simds=160,
        simds_per_unit=2,
        waves=(16, 32),
    ),
    AmdModel(
        name="amd:cezanne",
        title="AMD Ryzen 5000 (Cezanne), a processor's own GPU",
        ids="1002:1638",
        revision="c1",
        memory=536870912,
        vbios="113-CEZANNE-018",
        sound="1637",
        port="1022:1635",
        gfx=90012,
        core="9.3.0",
        simds=32,
        sensors="edge*",
        is_apu=True,
        usable=8172617728,
    ),
    AmdModel(
        name="amd:rembrandt",
        title="AMD Ryzen 6000 (Rembrandt), a processor's own GPU",
        ids="1002:1681",
        revision="c8",
        memory=536870912,
        vbios="113-REMBRANDT-X37",
        sound="1640",
        port="1022:14b9",
        gfx=100305,
        core="10.3.3",
        simds=24,
        simds_per_unit=2,
        waves=(16, 32),
        sensors="edge*",
        is_apu=True,
        usable=16345206784,
    ),
)
