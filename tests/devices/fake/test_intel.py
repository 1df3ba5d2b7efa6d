from __future__ import annotations

import pytest

from claimd_devices import fake
from claimd_devices.fake import layout
from claimd_devices.fake.gpu import Function
from claimd_devices.fake.intel import FakeIntel

VENDOR = FakeIntel()


def functions(*words: str) -> list[Function]:
    return layout.functions(fake.parse(words))


def own_files(function: Function) -> dict[str, str | bytes]:
    """Returns the files in the function's folder, by name."""
    head = f"{function.folder}/"
    files = VENDOR.function_entries(function).files
    return {name.removeprefix(head): value for name, value in files.items()}


def test_the_data_centre_build_of_i915_tells_the_memory() -> None:
    (function,) = functions("intel:max1550")
    assert own_files(function) == {
        "drm/card0/lmem_total_bytes": "137438953472",
        "drm/card0/gt/gt0/rps_max_freq_mhz": "1600",
        "drm/card0/gt/gt1/rps_max_freq_mhz": "1600",
    }


def test_xe_tells_no_memory() -> None:
    (function,) = functions("intel:b580")
    assert sorted(own_files(function)) == [
        "tile0/gt0/freq0/max_freq",
        "tile0/gt1/freq0/max_freq",
        "vram_d3cold_threshold",
    ]


def test_a_part_of_the_processor_is_on_no_link() -> None:
    (function,) = functions("intel:uhd770")
    files = own_files(function)
    assert files["current_link_width"] == "0"
    assert files["max_link_width"] == "255"
    assert files["max_link_speed"] == "Unknown"


@pytest.mark.parametrize("driver", ["i915", "xe", "nouveau"])
def test_its_nodes_have_names_by_their_path(driver: str) -> None:
    (function,) = functions(f"intel:arc,driver={driver}")
    assert VENDOR.function_entries(function).links == {
        "dev/dri/by-path/pci-0000:13:00.0-card": "dev/dri/card0",
        "dev/dri/by-path/pci-0000:13:00.0-render": "dev/dri/renderD128",
    }


def test_a_virtual_function_has_the_names_alone() -> None:
    _, virtual = functions("intel:flex170,vfs=1")
    entries = VENDOR.function_entries(virtual)
    assert len(entries.links) == 2
    assert entries.files == {}
