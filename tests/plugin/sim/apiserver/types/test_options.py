"""Tests of the default options of writes and deletions."""

from claimd.sim.apiserver.types.options import DeleteOptions, WriteOptions


def test_a_write_is_done_and_nobody_refuses_it():
    options = WriteOptions(field_manager="m")
    assert (options.dry_run, options.subresource, options.api_version) == (False, "", "")
    assert options.validate_admission(None, {}) is None


def test_a_deletion_is_done_in_the_background_whatever_the_object_is():
    options = DeleteOptions()
    assert (options.uid, options.resource_version) == (None, None)
    assert (options.propagation_policy, options.dry_run) == ("Background", False)
    assert options.grace_period_seconds is None
    assert options.validate_admission({}, None) is None
