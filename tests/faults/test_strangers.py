"""The short run of random hostile claims and answers: another seed would do as well."""

import asyncio
import random
import time

from claimd.common import errors
from claimd.kubernetes.api.resource import ResourceClaim
from claimd.kubernetes.kube import errors as kube_errors
from claimd.kubernetes.kube import resources
from claimd.node.prepare import cdi, checkpoint, plan
from tests.faults import strangers
from tests.support import worlds


def test_hostile_claims_and_answers_hurt_nobody():
    print(asyncio.run(strangers.attack(320, seed=1)))


def test_no_hostile_claim_keeps_the_loop_from_its_neighbours():
    """All that is done with a claim in one turn of the loop, by the processor's time."""
    dice = random.Random(1)
    inventory = worlds.inventory(3)
    bodies = strangers._bodies([gpu.name for gpu in inventory.gpus])
    longest, prepared = 0.0, 0
    for number in range(200):
        data = strangers._spoil(dice, bodies, f"uid-{number}")
        began = time.thread_time()
        try:
            _prepare(data, inventory)
            prepared += 1
        except (errors.ClaimError, kube_errors.Malformed):
            pass
        longest = max(longest, time.thread_time() - began)
    assert prepared > 10
    assert longest < 0.05


def _prepare(data, inventory):
    """What a prepare does in one step."""
    claim = resources._decode(data, ResourceClaim, "a claim")
    prepared = plan.plan(
        claim,
        driver=worlds.DRIVER,
        pool=worlds.NODE,
        inventory=inventory,
        neighbours=(),
        now="2026-01-01T00:00:00Z",
    )
    cdi.build(prepared, inventory)
    checkpoint.encode(checkpoint.Checkpoint(version=1, boot_id="b", claim=prepared))
