"""Real mounts whose folders on the host are removed or moved."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from claimd.node import host_mounts
from tests.support import mounts

# Asks again for each line on stdin.
ASK = """
import sys
from pathlib import Path
from claimd.node.host_mounts import HostMounts

asked = HostMounts([Path(folder) for folder in sys.argv[1:]])
print(asked.lost(), flush=True)
for _ in sys.stdin:
    print(asked.lost(), flush=True)
"""


@pytest.fixture
def container(tmp_path):
    """Starts a process that has `host folder` mounted at `inside`, and asks it again and again."""
    host, inside, plain = (tmp_path / name for name in ("host folder", "inside", "plain"))
    for folder in (host, inside, plain):
        folder.mkdir()
    (tmp_path / "link").symlink_to(inside)
    ask_again = [sys.executable, "-c", ASK, tmp_path / "link", plain]
    line = [*mounts.prefix({inside: host}), *ask_again]
    with subprocess.Popen(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "\n"

        def ask():
            process.stdin.write("?\n")
            process.stdin.flush()
            return process.stdout.readline().strip()

        yield tmp_path, ask
        process.stdin.close()


def test_origins_as_the_kernel_shows_them(tmp_path, monkeypatch):
    """The table of mounts is played, since not every machine lets a test mount something."""
    folders = [tmp_path / name for name in ("plain", "one", "a b")]
    for folder in folders:
        folder.mkdir()
    table = tmp_path / "mountinfo"
    monkeypatch.setattr(host_mounts, "_MOUNTS", table)

    def write(one, with_space):
        folder = str(tmp_path / "a b").replace(" ", "\\040")
        table.write_text(
            f"30 20 8:1 {one} {tmp_path}/one rw - ext4 /dev/sda1 rw\n"
            f"31 20 8:1 {with_space} {folder} rw - ext4 /dev/sda1 rw\n"
        )

    asked = host_mounts.HostMounts(folders)
    write("/host/one", "/host/two")
    assert asked.lost() == "", "what is not mounted is not lost"
    write("/host/one", "/elsewhere")
    assert asked.lost().startswith(f"the folder {tmp_path}/a b was moved on the host")
    write("/host/one//deleted", "/host/two")
    assert asked.lost().startswith(f"the folder {tmp_path}/one was removed on the host")
    table.unlink()
    assert asked.lost() == "", "nobody could look"


@mounts.needs_mounts
@pytest.mark.parametrize("is_new", [False, True])
def test_a_folder_that_is_removed_on_the_host_is_lost(container, is_new):
    folder, ask = container
    (folder / "host folder/file").write_text("x")
    shutil.rmtree(folder / "plain")
    assert ask() == "", "what is not mounted is not lost"
    shutil.rmtree(folder / "host folder")
    if is_new:
        (folder / "host folder").mkdir()
    expected = (
        f"the folder {folder}/inside was removed on the host, and this container still has it"
    )
    assert ask() == expected


@mounts.needs_mounts
def test_a_folder_that_is_moved_on_the_host_is_lost_until_it_is_back(container):
    folder, ask = container
    (folder / "host folder").rename(folder / "other")
    expected = f"the folder {folder}/inside was moved on the host, and this container still has it"
    assert ask() == expected
    (folder / "other").rename(folder / "host folder")
    assert ask() == ""


def test_mounts_that_cannot_be_read_are_not_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(host_mounts, "_MOUNTS", tmp_path / "missing")
    assert host_mounts.HostMounts([Path("/")]).lost() == ""


def test_the_kernels_escapes_are_replaced(tmp_path, monkeypatch):
    table = tmp_path / "mountinfo"
    line = r"104 43 254:0 {} /a\040b\134c\011d\012e rw,relatime - ext4 /dev/vda rw"
    table.write_text(line.format("/x//deleted") + "\n")
    monkeypatch.setattr(host_mounts, "_MOUNTS", table)
    asked = host_mounts.HostMounts([Path("/a b\\c\td\ne")])
    assert "was removed on the host" in asked.lost()

    # A later mount covers the lost one.
    table.write_text(line.format("/x//deleted") + "\n" + line.format("/y") + "\n")
    asked = host_mounts.HostMounts([Path("/a b\\c\td\ne")])
    assert asked.lost() == ""
