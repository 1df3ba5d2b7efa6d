"""Each bug of the whole program that the crash campaign found, as the point of the campaign that shows it."""

import shutil

import pytest

from tests.faults import deaths
from tests.faults.scenarios import NEW
from tests.faults.world import world
from tests.support.worlds import DRIVER

PLUGIN = f"kubelet/plugins/{DRIVER}"


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
@pytest.mark.parametrize(
    "point",
    [
        f"start/openat@{PLUGIN}/claims.lock/2/EIO",  # the records cannot be read when they are to be reported
        f"start/unlink@kubelet/plugins_registry/{DRIVER}-reg.sock/1/EROFS",  # a dead predecessor's socket stays
        f"stop/unlink@kubelet/plugins_registry/{DRIVER}-reg.sock/2/EROFS",  # our own socket stays at the end
        f"update-new/openat@{PLUGIN}/.publisher.{NEW}/1/ENOSPC",  # the kubelet's word that we are registered
    ],
)
async def test_an_error_of_the_disk_ends_nothing(point):
    async with world() as made:
        assert await deaths.attempt(made, point) in (deaths.SURVIVED, deaths.ENDED)
