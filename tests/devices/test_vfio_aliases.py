from __future__ import annotations

from pathlib import Path

import pytest

from claimd_devices import vfio_aliases
from claimd_devices.gpu import Roots
from claimd_devices.vfio_aliases import Alias

GRACE = "pci:v000010DEd00002342sv000010DEsd000016EBbc03sc02i00"
ANY = Alias("v*d*sv*sd*bc*sc*i*", "vfio_pci")
ITS_OWN = Alias("v000010DEd00002342sv*sd*bc*sc*i*", "nvgrace_gpu_vfio_pci")
ITS_BOARD = Alias("v000010DEd00002342sv000010DEsd*bc*sc*i*", "board_vfio_pci")
OTHER = Alias("v000010DEd00002345sv*sd*bc*sc*i*", "other_vfio_pci")


@pytest.mark.parametrize(
    ("aliases", "module"),
    [
        ((), "vfio_pci"),
        ((ANY, OTHER), "vfio_pci"),
        ((OTHER,), "vfio_pci"),
        ((ANY, ITS_OWN), "nvgrace_gpu_vfio_pci"),
        ((ITS_OWN, ITS_BOARD, ANY), "board_vfio_pci"),
    ],
)
def test_the_most_specific_pattern_decides(aliases: tuple[Alias, ...], module: str) -> None:
    assert vfio_aliases.module_for(GRACE, aliases) == module


def write(folder: Path, release: str, content: str) -> Roots:
    kernel = folder / "proc/sys/kernel"
    kernel.mkdir(parents=True)
    (kernel / "osrelease").write_text(f"{release}\n")
    modules = folder / "usr/lib/modules" / release.replace("/", "")
    modules.mkdir(parents=True)
    (modules / "modules.alias").write_text(content)
    # An absolute link, which must not lead out of the host's root.
    (folder / "lib").symlink_to("/usr/lib")
    return Roots.in_folder(folder)


def test_only_lines_for_virtual_machines_are_read(tmp_path: Path) -> None:
    content = (
        "# Aliases extracted from modules themselves.\n"
        "alias pci:v000010DEd*sv*sd*bc03sc02i00* nvidia\n"
        "alias vfio_pci:v000010DEd00002342sv*sd*bc*sc*i* nvgrace_gpu_vfio_pci\n"
        "alias vfio_pci:damaged\n"
        "alias vfio_pci:v*d*sv*sd*bc*sc*i* vfio_pci\n"
    )
    notes: list[str] = []
    assert vfio_aliases.read_aliases(write(tmp_path, "6.8.0-1-arm64", content), notes) == (
        ITS_OWN,
        ANY,
    )
    assert notes == []


@pytest.mark.parametrize("release", ["6.8.0/../..", ""])
def test_a_release_that_is_none_is_noted(tmp_path: Path, release: str) -> None:
    notes: list[str] = []
    assert vfio_aliases.read_aliases(write(tmp_path, release, ""), notes) == ()
    assert len(notes) == 1 and "osrelease" in notes[0]
