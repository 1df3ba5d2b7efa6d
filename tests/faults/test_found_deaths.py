"""Each bug of the whole program that the crash campaign found, as the point of the campaign that
shows it.
"""

import shutil

import pytest

from claimd.common import names
from tests.faults import deaths
from tests.faults.scenarios import NEW, OLD
from tests.faults.world import world
from tests.support.worlds import DRIVER

PLUGIN = f"kubelet/plugins/{DRIVER}"
RESTORE = f"restore/rename@cdi/.{names.cdi_file(DRIVER, 'uid-c')}.new/1/ENOSPC"


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
@pytest.mark.parametrize(
    "point",
    [
        # the records cannot be read when they are to be reported
        f"start/flock@{PLUGIN}/claims.lock/3/ENOLCK",
        # their lock cannot be let go of by itself
        f"start/flock@{PLUGIN}/claims.lock/2/ENOLCK",
        # a dead predecessor's socket stays
        f"start/unlink@kubelet/plugins_registry/{DRIVER}-reg.sock/1/EROFS",
        # our own socket stays at the end
        f"stop/unlink@kubelet/plugins_registry/{DRIVER}-reg.sock/1+/EROFS",
        # the checkpoint of a claim that was prepared early, and is not needed any more
        f"early-refused/unlink@{PLUGIN}/claims/uid-early.json/1+/EROFS",
        # the kubelet's word that we are registered
        f"update-new/openat@{PLUGIN}/.publisher.{NEW}/1/ENOSPC",
    ],
)
async def test_an_error_of_the_disk_ends_nothing(point):
    async with world() as world_:
        assert await deaths.attempt(world_, point) in (deaths.SURVIVED, deaths.ENDED)


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
@pytest.mark.parametrize(
    "point",
    [
        # the mark of our life stays at the end
        f"update-old/unlink@{PLUGIN}/instances/{OLD}/1/EROFS",
        # the mark of our life cannot be locked at the start
        f"update-new/flock@{PLUGIN}/instances/{NEW}/1/ENOLCK",
        # the records cannot be read when one is to be reported
        f"many/flock@{PLUGIN}/claims.lock/3/ENOLCK",
    ],
)
async def test_an_error_of_the_disk_is_told_in_a_sentence(point):
    async with world() as world_:
        assert await deaths.attempt(world_, point) in (deaths.SURVIVED, deaths.ENDED)


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
async def test_a_cdi_file_that_a_start_could_not_write_is_written_when_the_disk_will_have_it():
    """Nobody asks for a claim whose pods run; a container that restarts would find nothing."""
    async with world() as world_:
        assert await deaths.attempt(world_, RESTORE) == deaths.SURVIVED
