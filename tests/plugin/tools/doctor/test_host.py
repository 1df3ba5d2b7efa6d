"""Findings about the machine, given facts that a test cannot produce, such as a full disk."""

import dataclasses

import pytest

from claimd.tools.doctor import host
from claimd.tools.doctor.check import Level

WELL = host.Facts(folder="/plugins", open_files=20, limit=1024)


def levels(**changes):
    findings = host.judge(dataclasses.replace(WELL, **changes), "look there")
    return {finding.check: finding.level for finding in findings if finding.level is not Level.WELL}


def test_a_machine_that_is_well():
    assert levels() == {}


@pytest.mark.parametrize(
    ("changes", "level"),
    [
        ({"free_bytes": 63 << 20}, Level.ERROR),
        ({"free_inodes": 999}, Level.ERROR),
        ({"free_bytes": 1 << 30, "all_bytes": 1 << 40}, Level.WARNING),
        ({"folder_trouble": "/plugins cannot be looked at"}, Level.ERROR),
    ],
)
def test_a_disk_that_is_full_or_nearly(changes, level):
    assert levels(**changes) == {"disk": level}


def test_a_disk_without_inodes_has_no_lack_of_them():
    assert levels(free_inodes=0, all_inodes=0) == {}


def test_selinux_by_what_can_be_seen():
    context = "system_u:system_r:spc_t:s0"
    assert levels(enforced=True, context=context) == {}
    assert levels(enforced=True, context=context, denials=None) == {"selinux-denials": Level.UNSEEN}
    assert levels(enforced=True, context="") == {"selinux": Level.UNSEEN}
    assert levels(enforced=True, context="a:b:container_runtime_t:s0") == {}
    assert levels(enforced=True, context="a:b:container_t:s0") == {"selinux": Level.ERROR}


def test_open_files_of_a_claimd_that_is_not_seen():
    assert levels(open_files=None) == {"open-files": Level.UNSEEN}
