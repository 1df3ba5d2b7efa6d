import errno
import os
import shutil

import pytest

from claimd.common import durable
from claimd.node.prepare import claim_files

PREFIX = "ours_"


@pytest.fixture
def folder(tmp_path):
    return claim_files.ClaimFiles(tmp_path / "files", PREFIX)


def test_ensure_writes_once_and_puts_right(folder, tmp_path):
    path = tmp_path / "files" / f"{PREFIX}u1.json"
    assert folder.ensure("u1", b"text")
    assert not folder.ensure("u1", b"text")
    assert not folder.is_disturbed()
    path.write_bytes(b"edited")
    assert folder.is_disturbed()
    assert folder.ensure("u1", b"text")
    path.unlink()
    assert folder.is_disturbed()
    assert folder.ensure("u1", b"text")
    assert path.read_bytes() == b"text"
    assert os.listdir(tmp_path / "files") == [path.name], "no temporary file is left"


@pytest.mark.parametrize("damage", [os.unlink, lambda path: os.truncate(path, 0)])
def test_what_is_touched_in_the_moment_after_it_was_written_is_put_right(
    folder, tmp_path, monkeypatch, damage
):
    rename = os.rename

    def rename_and_damage(source, target):
        rename(source, target)
        damage(target)

    monkeypatch.setattr(os, "rename", rename_and_damage)
    assert folder.ensure("u1", b"text")
    monkeypatch.setattr(os, "rename", rename)
    assert folder.is_disturbed()
    assert folder.ensure("u1", b"text")
    assert (tmp_path / "files" / f"{PREFIX}u1.json").read_bytes() == b"text"


def test_a_folder_that_was_wiped_is_made_anew(folder, tmp_path):
    folder.ensure("u1", b"text")
    for file in (tmp_path / "files").iterdir():
        file.unlink()
    (tmp_path / "files").rmdir()
    assert folder.is_disturbed()
    assert folder.ensure("u1", b"text")


def test_right_content_of_another_instance_is_left(folder, tmp_path):
    claim_files.ClaimFiles(tmp_path / "files", PREFIX).ensure("u1", b"text")
    assert not folder.ensure("u1", b"text")


def test_only_ours_are_listed_and_removed(folder, tmp_path):
    folder.ensure("u1", b"text")
    claim_files.ClaimFiles(tmp_path / "files", "theirs_").ensure("u2", b"text")
    (tmp_path / "files" / "nvidia.yaml").write_text("theirs")
    assert folder.sweep() == {"u1"}
    folder.remove("u1")
    folder.remove("u1")
    assert folder.sweep() == set()
    assert len(os.listdir(tmp_path / "files")) == 2


def test_what_is_kept_no_more_is_not_minded(folder, tmp_path):
    folder.ensure("u1", b"text")
    folder.ensure("u2", b"text")
    folder.keep({"u1"})
    os.unlink(folder.path("u2"))
    assert not folder.is_disturbed()
    os.unlink(folder.path("u1"))
    assert folder.is_disturbed()


def test_a_file_that_was_removed_or_forgotten_is_not_minded(folder, tmp_path):
    folder.ensure("u1", b"text")
    folder.ensure("u2", b"text")
    folder.remove("u1")
    assert not folder.is_disturbed()
    folder.forget("u2")
    os.unlink(folder.path("u2"))
    assert not folder.is_disturbed()


def test_a_sweep_removes_what_a_dead_writer_left_behind(folder, tmp_path):
    folder.ensure("u1", b"text")
    unfinished = tmp_path / "files" / durable.unfinished_name(f"{PREFIX}u2.json")
    unfinished.touch()
    folder.sweep()
    assert not unfinished.exists()


def test_a_failed_write_leaves_nothing(tmp_path):
    (tmp_path / "files").write_text("a file where the folder should be")
    with pytest.raises(OSError):
        claim_files.ClaimFiles(tmp_path / "files").ensure("u1", b"text")
    assert os.listdir(tmp_path) == ["files"]


def test_a_stamp_is_asked_for_only_when_something_has_changed(folder, tmp_path):
    """It sees what the file holds, and says what it shall hold."""
    seen = []

    def stamped(existing):
        seen.append(existing)
        return b"stamped" if existing in (None, b"stamped") else b"stamped again"

    assert folder.ensure("u1", b"one", stamped)
    assert not folder.ensure("u1", b"one", stamped)
    assert not folder.ensure("u1", b"two", stamped), "the file is right for this, too"
    assert not folder.ensure("u1", b"two", stamped)
    (tmp_path / "files" / f"{PREFIX}u1.json").write_bytes(b"edited")
    assert folder.ensure("u1", b"two", stamped)
    assert seen == [None, b"stamped", b"edited"]
    assert (tmp_path / "files" / f"{PREFIX}u1.json").read_bytes() == b"stamped again"


def test_only_a_file_that_is_gone_counts_as_removed(folder, tmp_path):
    (tmp_path / "files" / f"{PREFIX}u1.json").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        folder.remove("u1")


def test_a_folder_that_cannot_be_read_does_not_count_as_empty(folder, tmp_path):
    assert folder.sweep() == set(), "there is no folder yet"
    (tmp_path / "files").write_text("a file where the folder should be")
    for call in (folder.sweep, folder.sync):
        with pytest.raises(NotADirectoryError):
            call()


def test_a_write_that_fails_is_tried_again_only_if_the_folder_was_missing(
    folder, tmp_path, monkeypatch
):
    folder.ensure("u1", b"text")
    renames = []

    def rename(source, target):
        renames.append(target)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(OSError, match="No space left"):
        folder.ensure("u1", b"other text")
    assert len(renames) == 1


def test_what_cannot_be_removed_or_is_gone_is_no_error(folder, tmp_path):
    folder.ensure("u1", b"text")
    unfinished = tmp_path / "files" / f".{PREFIX}u2.json.123"
    unfinished.mkdir()
    assert folder.sweep() == {"u1"}
    assert unfinished.exists()
    shutil.rmtree(tmp_path / "files")
    folder.remove("u1")
    folder.sync()
