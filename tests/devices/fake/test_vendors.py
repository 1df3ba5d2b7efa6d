from __future__ import annotations

from pathlib import Path

import pytest

from claimd_devices import fake, scan
from claimd_devices.fake import gpu, layout, vendors
from claimd_devices.gpu import UNKNOWN, Roots


def test_models_are_listed_with_what_people_call_them() -> None:
    titles = fake.models()
    assert titles["nvidia:h100"] == "NVIDIA H100 80GB HBM3"
    assert titles["intel:b580"] == "Intel Arc B580"
    assert list(titles) == list(fake.MODELS)
    assert all(title and not title.endswith(".") for title in titles.values())
    assert len(set(titles.values())) == len(titles)


def test_machines_are_listed_with_their_words() -> None:
    assert fake.machines()["machine:l4"] == "nvidia:l4=4 roots=2 numa=2 bmc:aspeed"
    assert list(fake.machines()) == list(fake.MACHINES)


@pytest.mark.parametrize("name", [*fake.MODELS, *fake.MACHINES])
def test_what_is_listed_can_be_written(name: str) -> None:
    assert fake.parse([name])["devices"]


def test_a_model_is_known_by_its_name_and_belongs_to_one_vendor() -> None:
    for name, model in fake.MODELS.items():
        assert model.name == name
        assert model in vendors.vendor_of_model(model).models
    assert sum(len(row.models) for row in vendors.VENDORS) == len(fake.MODELS)


@pytest.mark.parametrize(
    ("driver", "model"),
    [
        ("nvidia", "nvidia:l4"),
        ("amdgpu", "amd:radeon"),
        ("i915", "intel:arc"),
        ("xe", "intel:arc"),
    ],
)
def test_the_vendor_of_a_driver(driver: str, model: str) -> None:
    assert vendors.vendor_of_driver(driver) is vendors.vendor_of_model(fake.MODELS[model])


@pytest.mark.parametrize("driver", ["", "vfio-pci", "nouveau", "ast"])
def test_a_driver_that_is_nobody_s(driver: str) -> None:
    assert vendors.vendor_of_driver(driver) is None


# ---------------------------------------------------------------- facts from public dumps

DUMPS = Path(__file__).parents[2] / "cases/models.tsv"
ROWS = [line.split("\t") for line in DUMPS.read_text().splitlines() if not line.startswith("#")]
COLUMNS = ("ids", "board", "class", "revision", "driver", "sound")

# Models without a public dump of their bus. The facts that they share with others come from those.
NOT_SHOWN = {
    "amd:mi210",
    "amd:mi300a",
    "amd:mi308x",
    "amd:mi325x",
    "amd:mi355x",
    "intel:arc",
    "intel:b60",
    "intel:b70",
    "intel:max1550",
}


def test_forty_models_and_more_are_as_dumps_show_them() -> None:
    shown = {row[0] for row in ROWS}
    assert len(ROWS) == len(shown) >= 40
    assert shown | NOT_SHOWN == {name for name, model in fake.MODELS.items() if model.is_gpu}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_model_is_as_a_public_dump_shows_it(row: list[str]) -> None:
    name, *facts, source = row
    (function,) = layout.functions(fake.parse([name]))
    files = gpu.function_entries(function).files

    def identifier(folder: str, *names: str) -> str:
        return ":".join(str(files[f"{folder}/{name}"]).removeprefix("0x") for name in names)

    written = {
        "ids": identifier(function.folder, "vendor", "device"),
        "board": identifier(function.folder, "subsystem_vendor", "subsystem_device"),
        "class": identifier(function.folder, "class")[:4],
        "revision": identifier(function.folder, "revision"),
        "driver": function.driver,
        "sound": identifier(function.sound, "device") if function.sound else "",
    }
    for column, fact in zip(COLUMNS, facts, strict=True):
        assert fact in ("-", written[column]), column
    assert "/" in source


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_what_a_model_is_is_known(row: list[str], tmp_path: Path) -> None:
    fake.write(tmp_path, fake.parse([row[0]]))
    (gpu,) = scan.scan(Roots.in_folder(tmp_path)).gpus
    assert gpu.product
    assert gpu.family not in (None, UNKNOWN)
    assert gpu.integrated is not None
