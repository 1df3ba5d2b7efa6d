"""The files of i915 and xe for Intel's GPUs, and the models."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .gpu import Entries, FakeVendor, Function, Model, Switch, link

_ARC_BEHIND_SWITCH = ("2.5", "1")


@dataclass(frozen=True, slots=True, kw_only=True)
class IntelModel(Model):
    """An Intel GPU."""

    driver: str = "i915"
    tiles: int = 1


_ARC_A770 = IntelModel(
    name="intel:arc",
    title="Intel Arc A770",
    ids="8086:56a0",
    board="8086:1020",
    revision="08",
    port="8086:a70d",
    switch=Switch(upstream="8086:4fa1", downstream="8086:4fa4", number=1),
    inner=_ARC_BEHIND_SWITCH,
)

_ARC_B580 = IntelModel(
    name="intel:b580",
    title="Intel Arc B580",
    ids="8086:e20b",
    board="8086:1100",
    driver="xe",
    port="8086:a70d",
    width="8",
    switch=Switch(upstream="8086:e2ff", downstream="8086:e2f0", number=1),
    inner=_ARC_BEHIND_SWITCH,
)

_MODELS = (
    IntelModel(
        name="intel:max1550",
        title="Intel Data Center GPU Max 1550",
        ids="8086:0bd5",
        board="8086:0000",
        class_code="038000",
        revision="2f",
        memory=137438953472,
        speed="32.0",
        virtual=63,
        tiles=2,
    ),
    IntelModel(
        name="intel:flex170",
        title="Intel Data Center GPU Flex 170",
        ids="8086:56c0",
        board="8086:4905",
        class_code="038000",
        revision="08",
        memory=14940110848,
        virtual=31,
        switch=Switch(upstream="8086:4fa0", downstream="8086:4fa4", number=1),
        inner=_ARC_BEHIND_SWITCH,
    ),
    _ARC_A770,
    _ARC_B580,
    replace(
        _ARC_B580,
        name="intel:b60",
        title="Intel Arc Pro B60",
        ids="8086:e211",
        board="",
        port="8086:352a",
        speed="32.0",
        virtual=12,
    ),
    replace(
        _ARC_B580,
        name="intel:b70",
        title="Intel Arc Pro B70",
        ids="8086:e223",
        board="",
        port="8086:352a",
        speed="32.0",
        width="16",
        virtual=12,
    ),
    IntelModel(
        name="intel:uhd770",
        title="Intel UHD Graphics 770, a processor's own GPU",
        ids="8086:4680",
        board="1043:8694",
        revision="0c",
        virtual=7,
        on_board=True,
    ),
    IntelModel(
        name="intel:max1100",
        title="Intel Data Center GPU Max 1100",
        ids="8086:0bda",
        class_code="038000",
        revision="2f",
        memory=51539607552,
        speed="32.0",
    ),
    replace(
        _ARC_A770,
        name="intel:a750",
        title="Intel Arc A750",
        ids="8086:56a1",
        board="",
        switch=Switch(upstream="8086:4fa0", downstream="8086:4fa4", number=1),
    ),
    replace(
        _ARC_B580,
        name="intel:b570",
        title="Intel Arc B570",
        ids="8086:e20c",
        board="",
    ),
    IntelModel(
        name="intel:hd530",
        title="Intel HD Graphics 530, the processor's own GPU, next to a card with a screen",
        ids="8086:1912",
        class_code="038000",
        revision="06",
        on_board=True,
    ),
    IntelModel(
        name="intel:hd530-laptop",
        title="Intel HD Graphics 530 of a laptop, a processor's own GPU",
        ids="8086:191b",
        revision="06",
        on_board=True,
    ),
    IntelModel(
        name="intel:uhd630",
        title="Intel UHD Graphics 630, a processor's own GPU",
        ids="8086:3e92",
        on_board=True,
    ),
    IntelModel(
        name="intel:cometlake",
        title="Intel UHD Graphics (Comet Lake), a laptop processor's own GPU",
        ids="8086:9bc4",
        revision="05",
        on_board=True,
    ),
    IntelModel(
        name="intel:jasperlake",
        title="Intel UHD Graphics (Jasper Lake), a small processor's own GPU",
        ids="8086:4e61",
        revision="01",
        on_board=True,
    ),
)

_MACHINES = {
    "machine:max1550": ("intel:max1550=4", "numa=2", "bmc:aspeed"),
    "machine:flex170": ("intel:flex170,vfs=4", "intel:flex170", "numa=2", "bmc:aspeed"),
    "machine:b580": ("intel:b580", "numa=0"),
    "machine:b60": ("intel:b60=4", "roots=2", "numa=2", "bmc:aspeed"),
    "machine:uhd770": ("intel:uhd770", "bmc:aspeed,console", "numa=0"),
}


class FakeIntel(FakeVendor):
    """GPUs with i915 or xe. Both drivers make few files."""

    models = _MODELS
    machines = _MACHINES

    def function_entries(self, function: Function) -> Entries:
        entries = Entries()

        # Intel's user space looks for the nodes by these names, with every driver.
        for name in function.drm:
            kind = "card" if name.startswith("card") else "render"
            entries.links[f"dev/dri/by-path/pci-{function.address}-{kind}"] = f"dev/dri/{name}"

        if function.physical is None:
            for name, value in _values(function).items():
                entries.files[f"{function.folder}/{name}"] = value
        return entries


def _values(function: Function) -> dict[str, str]:
    """Returns the files that the driver makes in the folder of a function."""
    model = function.model
    values: dict[str, str] = {}
    if model.on_board:  # a part of the processor is on no link at all
        values |= link(now=("Unknown", "0"), most=("Unknown", "255"))

    if function.driver == "i915":
        card = f"drm/card{function.numbers.card}"
        if model.memory:
            values[f"{card}/lmem_total_bytes"] = str(model.memory)
        for gt in range(_tiles(model)):
            values[f"{card}/gt/gt{gt}/rps_max_freq_mhz"] = "1600"
    if function.driver == "xe":
        values["tile0/gt0/freq0/max_freq"] = "2850"
        values["tile0/gt1/freq0/max_freq"] = "1500"
        values["vram_d3cold_threshold"] = "300"
    return values


def _tiles(model: Model) -> int:
    return model.tiles if isinstance(model, IntelModel) else 1
