import os
import shutil

from plugin import instance


def start(folder, identity):
    started = instance.Instance(folder, identity)
    started.enter()
    return started


def test_nobody_publishes_before_the_kubelet_registered_it(tmp_path):
    one = start(tmp_path, "one")
    assert not one.may_publish()
    one.registered()
    assert one.may_publish()


def test_the_newest_registered_publishes(tmp_path):
    one, two = start(tmp_path, "one"), start(tmp_path, "two")
    one.registered()
    assert one.may_publish()
    assert not two.may_publish(), "it lives, but the kubelet does not know it"
    two.registered()
    assert (one.may_publish(), two.may_publish()) == (False, True)


def test_another_takes_over_from_the_one_that_left(tmp_path):
    one, two = start(tmp_path, "one"), start(tmp_path, "two")
    one.registered()
    two.registered()
    two.leave()
    assert one.may_publish()


def test_another_takes_over_from_the_dead(tmp_path):
    one = start(tmp_path, "one")
    one.registered()
    child = os.fork()
    if child == 0:
        two = start(tmp_path, "two")
        two.registered()
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
        start(tmp_path, "pod").registered()
        os._exit(0)
    os.waitpid(child, 0)
    again = start(tmp_path, "pod")
    assert not again.may_publish(), "not before the kubelet registered it again"
    again.registered()
    assert again.may_publish()


def test_a_mark_that_somebody_took_away_is_made_anew(tmp_path):
    one = start(tmp_path, "one")
    one.registered()
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
