"""Whole trees, file by file, so that an unintended change of any file is noticed.

A file of tests/cases/fake has the words of a machine in its first line. Below it is everything that
is written for them, as `shown` prints it: mode and content of files, targets of links, names of
nodes. Other tests compare the trees with real machines.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from claimd_devices import fake

CASES = Path(__file__).parents[2] / "cases/fake"


def list_entries(folder: Path) -> list[str]:
    """Returns a line for everything in the tree except the marker, which has the words."""
    lines = []
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if name == fake.MARKER:
            continue
        if path.is_symlink():
            lines.append(f"{name} -> {path.readlink()}")
        elif name.startswith("dev/") and not path.is_dir():
            lines.append(f"{name} {path.stat().st_mode & 0o777:o}")  # a file without the right
        elif path.is_file():
            content = path.read_bytes()
            text = (
                content.rstrip(b"\0").hex()
                if path.name == "config"
                else repr(content.decode())[1:-1]
            )
            lines.append(f"{name} {path.stat().st_mode & 0o777:o} {text}".rstrip())
    return lines


@pytest.mark.parametrize("case", sorted(CASES.glob("*.txt")), ids=lambda path: path.stem)
def test_a_tree_is_as_it_was_also_once_its_gpus_were_away(case: Path, tmp_path: Path) -> None:
    words, *lines = case.read_text().splitlines()
    fake.write(tmp_path, fake.parse(words.split()))
    assert list_entries(tmp_path) == lines

    physical = [address for address in fake.gpu_addresses(tmp_path) if address.endswith("0")]
    for address in physical:
        fake.unplug(tmp_path, address)
    left = "\n".join(list_entries(tmp_path))
    assert not [address for address in physical if address in left]
    for address in physical:
        fake.plug(tmp_path, address)
    assert list_entries(tmp_path) == lines
