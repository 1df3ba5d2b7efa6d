import os
import shutil

import pytest

from claimd.common import errors
from claimd.node import instance


def start(folder, identity):
    started = instance.Instance(folder, identity)
    started.enter()
    return started


def test_nobody_publishes_before_the_kubelet_registered_it(tmp_path):
    first = start(tmp_path, "one")
    assert not first.may_publish()
    first.on_registered()
    assert first.may_publish()


def test_the_newest_registered_publishes(tmp_path):
    first, second = start(tmp_path, "one"), start(tmp_path, "two")
    first.on_registered()
    assert first.may_publish()
    assert not second.may_publish(), "it lives, but the kubelet does not know it"
    second.on_registered()
    assert (first.may_publish(), second.may_publish()) == (False, True)


def test_whether_another_one_publishes(tmp_path):
    first, second = start(tmp_path, "one"), start(tmp_path, "two")
    assert not first.another_publishes(), "nobody does yet"
    first.on_registered()
    assert (first.another_publishes(), second.another_publishes()) == (False, True)
    second.on_registered()
    assert (first.another_publishes(), second.another_publishes()) == (True, False)
    second.leave()
    assert not first.another_publishes(), "it has, and does not live"


def test_another_takes_over_from_the_one_that_left(tmp_path):
    first, second = start(tmp_path, "one"), start(tmp_path, "two")
    first.on_registered()
    second.on_registered()
    second.leave()
    assert first.may_publish()


def test_another_takes_over_from_the_dead(tmp_path):
    first = start(tmp_path, "one")
    first.on_registered()
    child = os.fork()
    if child == 0:
        second = start(tmp_path, "two")
        second.on_registered()
        os._exit(0)
    os.waitpid(child, 0)
    assert (tmp_path / "publisher").read_text() == "two"
    assert first.may_publish()
    assert (tmp_path / "publisher").read_text() == "one"


def test_the_dead_are_tidied_up_and_the_living_are_not(tmp_path):
    first = start(tmp_path, "one")
    (tmp_path / "instances" / "dead").touch()
    second = start(tmp_path, "two")
    assert sorted(os.listdir(tmp_path / "instances")) == ["one", "two"]
    first.leave()
    second.leave()
    assert os.listdir(tmp_path / "instances") == []


def test_each_death_is_noticed_once(tmp_path):
    first = start(tmp_path, "one")
    assert not first.tidy_up()
    (tmp_path / "instances" / "dead").touch()
    assert (first.tidy_up(), first.tidy_up()) == (True, False)
    second = start(tmp_path, "two")
    assert not first.tidy_up(), "it lives"
    second.leave()
    assert not first.tidy_up(), "one that left has nothing unfinished"
    first.leave()


def test_a_container_that_restarts_in_its_pod_is_the_same_instance(tmp_path):
    child = os.fork()
    if child == 0:
        start(tmp_path, "pod").on_registered()
        os._exit(0)
    os.waitpid(child, 0)
    again = start(tmp_path, "pod")
    assert not again.may_publish(), "not before the kubelet registered it again"
    again.on_registered()
    assert again.may_publish()


def test_a_mark_that_somebody_took_away_is_made_anew(tmp_path):
    first = start(tmp_path, "one")
    first.on_registered()
    first.refresh()
    (tmp_path / "instances" / "one").unlink()
    (tmp_path / "instances").rmdir()
    first.refresh()
    second = start(tmp_path, "two")
    assert not second._is_alive("three")
    assert second._is_alive("one")
    first.leave()
    assert os.listdir(tmp_path / "instances") == ["two"]


def test_a_mark_alone_and_the_whole_plugin_folder_are_made_anew(tmp_path):
    folder = tmp_path / "plugin"
    first = start(folder, "one")
    (folder / "instances" / "one").unlink()
    first.refresh()
    assert os.listdir(folder / "instances") == ["one"]
    shutil.rmtree(folder)
    first.refresh()
    assert os.listdir(folder / "instances") == ["one"]


def test_one_that_does_not_live_has_no_mark_to_make_anew(tmp_path):
    instance.Instance(tmp_path, "one").refresh()
    assert os.listdir(tmp_path) == []


def test_two_of_one_identity_are_one_too_many(tmp_path):
    first = start(tmp_path, "pod")
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(errors.Fatal, match="another claimd lives here as instance pod: two need"):
        start(tmp_path, "pod")
    assert len(os.listdir("/proc/self/fd")) == before
    first.leave()
    start(tmp_path, "pod").leave()


def test_a_folder_that_cannot_be_used_says_so(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(
        errors.Fatal, match="cannot keep anything in .*/file/p: Not a directory; it"
    ):
        start(tmp_path / "file" / "p", "one")


def test_nothing_stays_open_of_one_that_has_left(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    first = start(tmp_path, "one")
    mark = tmp_path / "instances" / "one"
    assert mark.stat().st_mode & 0o777 == 0o600
    mark.unlink()
    first.refresh()
    assert len(os.listdir("/proc/self/fd")) == before + 1
    first.leave()
    assert len(os.listdir("/proc/self/fd")) == before
    assert not mark.exists()
    first.leave()
    first.refresh()
    assert not mark.exists(), "it lives no more"


def test_a_mark_that_is_there_is_left_alone(tmp_path):
    first = start(tmp_path, "one")
    inode = (tmp_path / "instances" / "one").stat().st_ino
    first.refresh()
    assert (tmp_path / "instances" / "one").stat().st_ino == inode
    first.leave()


def test_what_the_disk_refuses_is_tried_again(tmp_path, caplog):
    first, second = start(tmp_path, "one"), start(tmp_path, "two")
    first.on_registered()
    (tmp_path / "publisher").unlink()
    (tmp_path / "publisher").mkdir()
    (tmp_path / "publisher" / "x").touch()
    second.on_registered()
    assert caplog.text.count("cannot write down that we publish") == 1
    assert not second.may_publish()
    assert caplog.text.count("cannot write down that we publish") == 2
    (tmp_path / "publisher" / "x").unlink()
    (tmp_path / "publisher").rmdir()
    (tmp_path / "publisher").write_text("one")
    assert second.may_publish(), "though the one before lives: we were registered after it"
    assert (tmp_path / "publisher").read_text() == "two"
    assert not first.may_publish()


def test_who_published_may_not_be_known(tmp_path):
    first = start(tmp_path, "one")
    first.on_registered()
    (tmp_path / "publisher").unlink()
    assert first.may_publish()
    (tmp_path / "publisher").write_text("")
    assert first.may_publish()
    assert (tmp_path / "publisher").read_text() == "one"


@pytest.mark.parametrize("content", [b"\0\0\0", b"\xff\xfe"])
def test_a_name_that_a_loss_of_power_has_harmed_is_nobodys(tmp_path, content):
    first = start(tmp_path, "one")
    first.on_registered()
    (tmp_path / "publisher").write_bytes(content)
    assert not first.another_publishes()
    assert first.may_publish()
    assert (tmp_path / "publisher").read_text() == "one"


def test_who_may_live_counts_as_alive(tmp_path):
    """Two that publish are worse than none for a while."""
    first = start(tmp_path, "one")
    first.on_registered()
    (tmp_path / "instances" / "odd").mkdir()
    (tmp_path / "publisher").write_text("odd")
    assert not first.may_publish()
    (tmp_path / "instances" / "odd").rmdir()
    assert first.may_publish()


def test_what_others_were_writing_is_tidied_up_once_they_are_dead(tmp_path):
    living = start(tmp_path, "living")
    for owner in ("living", "dead", "one"):
        (tmp_path / f"{instance._UNFINISHED}{owner}").touch()
    first = start(tmp_path, "one")
    left = sorted(path.name for path in tmp_path.glob(f"{instance._UNFINISHED}*"))
    assert left == [f"{instance._UNFINISHED}living"]
    living.leave()
    first.leave()
