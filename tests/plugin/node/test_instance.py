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
    one = start(tmp_path, "one")
    assert not one.may_publish()
    one.on_registered()
    assert one.may_publish()


def test_the_newest_registered_publishes(tmp_path):
    one, two = start(tmp_path, "one"), start(tmp_path, "two")
    one.on_registered()
    assert one.may_publish()
    assert not two.may_publish(), "it lives, but the kubelet does not know it"
    two.on_registered()
    assert (one.may_publish(), two.may_publish()) == (False, True)


def test_whether_another_one_publishes(tmp_path):
    one, two = start(tmp_path, "one"), start(tmp_path, "two")
    assert not one.another_publishes(), "nobody does yet"
    one.on_registered()
    assert (one.another_publishes(), two.another_publishes()) == (False, True)
    two.on_registered()
    assert (one.another_publishes(), two.another_publishes()) == (True, False)
    two.leave()
    assert not one.another_publishes(), "it has, and does not live"


def test_another_takes_over_from_the_one_that_left(tmp_path):
    one, two = start(tmp_path, "one"), start(tmp_path, "two")
    one.on_registered()
    two.on_registered()
    two.leave()
    assert one.may_publish()


def test_another_takes_over_from_the_dead(tmp_path):
    one = start(tmp_path, "one")
    one.on_registered()
    child = os.fork()
    if child == 0:
        two = start(tmp_path, "two")
        two.on_registered()
        os._exit(0)
    os.waitpid(child, 0)
    assert (tmp_path / "publisher").read_text() == "two"
    assert one.may_publish()
    assert (tmp_path / "publisher").read_text() == "one"


def test_the_dead_are_tidied_up_and_the_living_are_not(tmp_path):
    one = start(tmp_path, "one")
    (tmp_path / "instances" / "dead").touch()
    two = start(tmp_path, "two")
    assert sorted(os.listdir(tmp_path / "instances")) == ["one", "two"]
    one.leave()
    two.leave()
    assert os.listdir(tmp_path / "instances") == []


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
    one = start(tmp_path, "one")
    one.on_registered()
    one.refresh()
    (tmp_path / "instances" / "one").unlink()
    (tmp_path / "instances").rmdir()
    one.refresh()
    two = start(tmp_path, "two")
    assert not two._is_alive("three")
    assert two._is_alive("one")
    one.leave()
    assert os.listdir(tmp_path / "instances") == ["two"]


def test_a_mark_alone_and_the_whole_plugin_folder_are_made_anew(tmp_path):
    folder = tmp_path / "plugin"
    one = start(folder, "one")
    (folder / "instances" / "one").unlink()
    one.refresh()
    assert os.listdir(folder / "instances") == ["one"]
    shutil.rmtree(folder)
    one.refresh()
    assert os.listdir(folder / "instances") == ["one"]


def test_one_that_does_not_live_has_no_mark_to_make_anew(tmp_path):
    instance.Instance(tmp_path, "one").refresh()
    assert os.listdir(tmp_path) == []


def test_two_of_one_identity_are_one_too_many(tmp_path):
    one = start(tmp_path, "pod")
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(errors.Fatal, match="another claimd lives here as instance pod: two need"):
        start(tmp_path, "pod")
    assert len(os.listdir("/proc/self/fd")) == before
    one.leave()
    start(tmp_path, "pod").leave()


def test_a_folder_that_cannot_be_used_says_so(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(
        errors.Fatal, match="cannot keep anything in .*/file/p: Not a directory; it"
    ):
        start(tmp_path / "file" / "p", "one")


def test_nothing_stays_open_of_one_that_has_left(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    one = start(tmp_path, "one")
    mark = tmp_path / "instances" / "one"
    assert mark.stat().st_mode & 0o777 == 0o600
    mark.unlink()
    one.refresh()
    assert len(os.listdir("/proc/self/fd")) == before + 1
    one.leave()
    assert len(os.listdir("/proc/self/fd")) == before
    assert not mark.exists()
    one.leave()
    one.refresh()
    assert not mark.exists(), "it lives no more"


def test_a_mark_that_is_there_is_left_alone(tmp_path):
    one = start(tmp_path, "one")
    made = (tmp_path / "instances" / "one").stat().st_ino
    one.refresh()
    assert (tmp_path / "instances" / "one").stat().st_ino == made
    one.leave()


def test_what_the_disk_refuses_is_tried_again(tmp_path, caplog):
    one, two = start(tmp_path, "one"), start(tmp_path, "two")
    one.on_registered()
    (tmp_path / "publisher").unlink()
    (tmp_path / "publisher").mkdir()
    (tmp_path / "publisher" / "x").touch()
    two.on_registered()
    assert caplog.text.count("cannot write down that we publish") == 1
    assert not two.may_publish()
    assert caplog.text.count("cannot write down that we publish") == 2
    (tmp_path / "publisher" / "x").unlink()
    (tmp_path / "publisher").rmdir()
    (tmp_path / "publisher").write_text("one")
    assert two.may_publish(), "though the one before lives: we were registered after it"
    assert (tmp_path / "publisher").read_text() == "two"
    assert not one.may_publish()


def test_who_published_may_not_be_known(tmp_path):
    one = start(tmp_path, "one")
    one.on_registered()
    (tmp_path / "publisher").unlink()
    assert one.may_publish()
    (tmp_path / "publisher").write_text("")
    assert one.may_publish()
    assert (tmp_path / "publisher").read_text() == "one"


def test_who_may_live_counts_as_alive(tmp_path):
    """Two that publish are worse than none for a while."""
    one = start(tmp_path, "one")
    one.on_registered()
    (tmp_path / "instances" / "odd").mkdir()
    (tmp_path / "publisher").write_text("odd")
    assert not one.may_publish()
    (tmp_path / "instances" / "odd").rmdir()
    assert one.may_publish()


def test_what_others_were_writing_is_tidied_up_once_they_are_dead(tmp_path):
    living = start(tmp_path, "living")
    for owner in ("living", "dead", "one"):
        (tmp_path / f"{instance._UNFINISHED}{owner}").touch()
    one = start(tmp_path, "one")
    left = sorted(path.name for path in tmp_path.glob(f"{instance._UNFINISHED}*"))
    assert left == [f"{instance._UNFINISHED}living"]
    living.leave()
    one.leave()
