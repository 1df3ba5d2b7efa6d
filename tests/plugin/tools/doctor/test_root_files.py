"""Files that somebody names are read only if they are root's, ordinary and small."""

import os
import socket

import pytest

from claimd.tools.doctor import root_files
from claimd.tools.doctor.root_files import NotReadError, RootFiles
from claimd_devices.host_files import HostFiles

STRANGER = 65534


@pytest.fixture
def files(tmp_path):
    return RootFiles(HostFiles(str(tmp_path)))


def test_an_ordinary_file(tmp_path, files):
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("/a")
    assert files.content("/a") == files.content("/link") == b"abc"
    assert files.exists("/link")
    assert not files.exists("/b")


def make_pipe(place):
    os.mkfifo(place)


def make_socket(place):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))


def make_link_to_device(place):
    place.symlink_to("/dev-zero")
    os.mknod(place.parent / "dev-zero", 0o020666, os.makedev(1, 5))


def make_device(place):
    os.mknod(place, 0o020666, os.makedev(1, 5))


@pytest.mark.parametrize(
    "make", [make_pipe, make_socket, make_device, make_link_to_device, os.mkdir]
)
def test_what_is_not_an_ordinary_file(tmp_path, files, make):
    make(tmp_path / "a")
    with pytest.raises(NotReadError, match="is not an ordinary file"):
        files.content("/a")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_a_stranger(tmp_path, files):
    (tmp_path / "a").write_bytes(b"abc")
    os.chown(tmp_path / "a", STRANGER, STRANGER)
    with pytest.raises(NotReadError, match="/a is not root's"):
        files.content("/a")


def test_a_long_file(tmp_path, files):
    with open(tmp_path / "a", "wb") as file:
        file.truncate(root_files.MOST_BYTES)
    assert len(files.content("/a")) == root_files.MOST_BYTES
    with open(tmp_path / "a", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(NotReadError, match="bytes, more than"):
        files.content("/a")


def test_many_files(tmp_path, files):
    (tmp_path / "a").write_bytes(b"abc")
    for _ in range(root_files.MOST_FILES):
        files.content("/a")
    with pytest.raises(NotReadError, match="more than 64 files"):
        files.content("/a")


def test_many_names(tmp_path, files, monkeypatch):
    monkeypatch.setattr(root_files, "MOST_NAMES", 10)
    for number in range(4):
        (tmp_path / str(number)).touch()
    assert files.names("/") == ["0", "1", "2", "3"]
    assert files.names("/nowhere") == []
    with pytest.raises(NotReadError, match="more than 10 names"):
        files.names("/")


def test_much_time(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"abc")
    monkeypatch.setattr(root_files, "MOST_SECONDS", -1.0)
    late = RootFiles(HostFiles(str(tmp_path)))
    for ask in (late.content, late.names):
        with pytest.raises(NotReadError, match="takes more than"):
            ask("/a")
