"""Each bug of the instances that the crash campaign found."""

import resource

import pytest

from claimd.common import errors
from claimd.node import instance


def start(folder, identity):
    started = instance.Instance(folder, identity)
    started.enter()
    return started


@pytest.mark.parametrize("identity", ["two", "dead"])
def test_what_an_instance_left_that_died_in_taking_over_is_swept(tmp_path, identity):
    (tmp_path / ".publisher.dead").write_text("de")
    start(tmp_path, identity)
    assert not (tmp_path / ".publisher.dead").exists()


def test_what_a_living_instance_is_writing_is_left_alone(tmp_path):
    first = start(tmp_path, "one")
    (tmp_path / ".publisher.one").write_text("on")
    second = start(tmp_path, "two")
    assert (tmp_path / ".publisher.one").exists()
    first.leave()
    second.leave()


def test_on_a_full_disk_it_does_not_publish_yet_and_does_not_fail(tmp_path):
    first = start(tmp_path, "one")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        first.on_registered()  # is called by the kubelet, who must not be told that it failed
        assert not first.may_publish()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert first.may_publish(), "the next glance"


def test_an_instance_that_cannot_be_looked_at_counts_as_alive(tmp_path):
    first, second = start(tmp_path, "one"), start(tmp_path, "two")
    second.on_registered()
    first.on_registered()
    path = tmp_path / "instances" / "one"
    path.unlink()
    path.symlink_to(path)  # whoever opens it gets ELOOP
    assert not second.may_publish()


def test_a_second_one_of_the_same_name_is_told_so(tmp_path):
    first = start(tmp_path, "one")
    with pytest.raises(errors.Fatal, match="another claimd lives here"):
        start(tmp_path, "one")
    first.leave()
