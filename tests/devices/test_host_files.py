from __future__ import annotations

import os
from pathlib import Path

import pytest

from claimd_devices.host_files import HostFiles


@pytest.fixture
def host(tmp_path: Path) -> Path:
    for path in ("usr/lib/a", "drv/usr/lib/b", "usr/lib/only", "drv/etc/alternatives/c"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
    (tmp_path / "lib").symlink_to("usr/lib")
    (tmp_path / "abs").symlink_to("/usr/lib/a")
    (tmp_path / "up").symlink_to("../../../usr/lib/a")
    (tmp_path / "ring").symlink_to("ring2")
    (tmp_path / "ring2").symlink_to("ring")
    (tmp_path / "nowhere").symlink_to("/not/there")
    (tmp_path / "drv/inside").symlink_to("/usr/lib/b")
    (tmp_path / "drv/outside").symlink_to("/usr/lib/only")
    (tmp_path / "drv/neither").symlink_to("/usr/lib/neither")
    (tmp_path / "drv/lib").symlink_to("/usr/lib")
    return tmp_path


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/usr/lib/a", "/usr/lib/a"),
        ("/lib/a", "/usr/lib/a"),
        ("/lib/../lib/./a", "/usr/lib/a"),
        ("/abs", "/usr/lib/a"),
        ("/up", "/usr/lib/a"),
        ("/lib", "/usr/lib"),
        ("/ring", None),
        ("/nowhere", None),
        ("/usr/lib/a/below", None),
        ("/not/there/either", None),
    ],
)
def test_where_a_path_leads(host: Path, path: str, place: str | None) -> None:
    assert HostFiles(str(host)).real(path) == place


def test_below_nothing_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "hostNone").mkdir()
    (tmp_path / "hostNone/a").touch()
    assert HostFiles(f"{tmp_path}/host").real("/missing/a") is None
    assert HostFiles(f"{tmp_path}/host").names("/missing") == ("", [])
    assert HostFiles(f"{tmp_path}/hostNone/a").content("/missing", []) is None
    (tmp_path / "fileNone").write_text("another file")
    assert HostFiles(f"{tmp_path}/file").content("/missing", []) is None


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/inside", "/drv/usr/lib/b"),
        ("/lib/b", "/drv/usr/lib/b"),
        ("/outside", "/usr/lib/only"),
        ("/neither", None),
    ],
)
def test_in_a_root_of_its_own(host: Path, path: str, place: str | None) -> None:
    assert HostFiles(str(host), "/drv").real(path) == place


def test_what_is_in_them(host: Path) -> None:
    files, notes = HostFiles(str(host), "/drv"), []
    assert files.names("/lib") == ("/drv/usr/lib", ["b"])
    assert files.names("/not/there") == ("", [])
    assert files.content("/inside", notes) == b"drv/usr/lib/b"
    assert files.content("/neither", notes) is None
    assert notes == []
    assert files.content("/lib", notes) is None
    assert "Is a directory" in notes[0]
    assert files.link_name("/drv/outside") == "only"
    assert files.link_name("/drv/usr/lib/b") == ""


def test_a_path_of_thousands_of_folders_leads_nowhere(host: Path) -> None:
    deep = "a/" * 2000
    (host / "deep").symlink_to(deep)
    files = HostFiles(str(host))
    assert files.real(f"/{deep}") is None
    assert files.real("/deep") is None


def test_a_socket_is_something(host: Path) -> None:
    os.mknod(host / "socket", 0o140600)
    assert HostFiles(str(host)).real("/socket") == "/socket"
