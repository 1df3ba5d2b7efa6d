"""The short run of the campaign of errors, drawn by FAULTS_SEED, and what it would say of a breach.
In full: `python -m tests.faults.errors`.
"""

import functools
import json
import os
import random

import pytest

from tests.faults import errors, errors_node, shim
from tests.faults.world import Broken, world
from tests.support.worlds import DRIVER

COUNT = 250

pytestmark = pytest.mark.skipif(not shim.is_possible(), reason="there is no C compiler")


async def test_an_error_costs_what_it_touches_and_nothing_else():
    seed = int(os.environ.get("FAULTS_SEED") or random.SystemRandom().randrange(1 << 31))
    print(f"FAULTS_SEED={seed}")
    campaign = errors.Campaign(seed, COUNT)
    await campaign.run()
    print(campaign.report(0.0))
    assert not campaign.broken, campaign.broken[0]
    assert campaign.tried >= COUNT
    # Errors are ordered in all phases. In `stop` there are few calls, and some seeds miss them.
    phases = {phase for phase, _, _, _ in campaign.table}
    assert phases >= set(errors.PHASES) - {"stop"}
    # One error of 300 is about a process or a thread, so a sample may have none.
    assert {tree for _, tree, _, _ in campaign.table} >= set(errors.TREES) - {"process"}


def test_an_error_can_be_ordered_again():
    text = "prepare/checkpoints/fsync/EIO/2/1"
    point = errors.Point.parse(text)
    assert str(point) == text
    assert point.fault == shim.Fault(call="fsync", tree="checkpoints", error="EIO", skip=2, times=1)


@pytest.fixture
async def node():
    """A node without instances, on which a pod runs with a claim."""
    async with world(functools.partial(errors_node.ErrorWorld, zygote=None)) as world_:
        node_ = errors_node.Node(world_)
        (world_.folder / "log").write_text("")
        name = node_.new_claim(0)
        node_.running[name] = b"{}"
        node_.path(name).write_bytes(b"{}")
        node_.check()
        yield node_
        await node_.close()


def test_a_removed_cdi_file_is_noticed_though_it_is_back(node):
    (name,) = node.running
    path = node.path(name)
    path.unlink()
    path.write_bytes(b"{}")
    with pytest.raises(Broken, match="was removed"):
        node.check()


def test_a_taint_is_noticed_though_it_is_over(node):
    taint = {"key": "claimd.dev/absent", "effect": "NoSchedule"}
    for taints in ([taint], []):
        device = {"name": "gpu-0", "taints": taints}
        spec = {
            "driver": DRIVER,
            "nodeName": "node-1",
            "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
            "devices": [device],
        }
        node.world.api.put("resourceslices", {"metadata": {"name": "s"}, "spec": spec})
    with pytest.raises(Broken, match="was tainted"):
        node.check()


def test_two_checkpoints_with_one_device_are_noticed(node):
    folder = node.world.plugin / "claims"
    folder.mkdir(parents=True)
    for uid in ("uid-a", "uid-b"):
        record = {"claim": {"uid": uid, "devices": [{"device": "gpu-0"}]}}
        (folder / f"{uid}.json").write_text(json.dumps(record))
    with pytest.raises(Broken, match="with one device"):
        node.check()


def test_a_stack_trace_is_noticed(node):
    with (node.world.folder / "log").open("a") as log:
        log.write("Traceback (most recent call last):\n")
    with pytest.raises(Broken, match="stack trace"):
        node.check()
