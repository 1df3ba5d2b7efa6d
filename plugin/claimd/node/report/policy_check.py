"""Whether the cluster's admission policies hold us: once after the start, a write that they must refuse is tried.

A policy that matches nobody says nothing: a renamed account, a binding that was never applied, a role
that grants everything. So the wrong slice is tried as a dry run, which is never kept, and if it is let
through, people are told. What we may do does not depend on the answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from claimd.common import names, pacing
from claimd.kubernetes.api.meta import ObjectMeta
from claimd.kubernetes.api.resource import ResourcePool, ResourceSlice, ResourceSliceSpec
from claimd.kubernetes.kube import errors as kube_errors
from claimd.kubernetes.kube import resources
from claimd_devices import values

log = logging.getLogger(__name__)

REASON = "AdmissionPolicyMissing"
# Seconds within which it is tried, at a time that each node draws for itself: where all nodes start at
# once, it must not stand in the way of what they publish.
SPREAD = 60.0
FIRST_DELAY, LAST_DELAY = 5.0, 300.0  # seconds between tries while the API server is away


@values.dataclass(slots=True, kw_only=True, eq=False, repr=False)
class PolicyCheck:
    """Tries what admission must refuse. `run` may be called once."""

    resources: resources.Resources
    driver: str
    node: str
    published: (
        asyncio.Event
    )  # set when slices of ours stand: what kubelet and scheduler wait for goes first
    record_event: Callable[[str, str], None]  # about the node: reason and note

    async def run(self) -> None:
        """Tries once; again only as long as the API server does not answer."""
        await self.published.wait()
        await asyncio.sleep(pacing.between(0.0, SPREAD))

        backoff = pacing.Backoff(FIRST_DELAY, LAST_DELAY, jitter=(0.8, 1.2))
        while not await self.check():  # noqa: ASYNC110  there is no event for an answer
            await asyncio.sleep(backoff.next_delay())

    async def check(self) -> bool:
        """Whether there was an answer. Tells people if the wrong slice would have been kept."""
        try:
            if await is_held(self.resources, self.driver, self.node):
                return True
        except kube_errors.ApiError as error:
            log.debug("cannot try what admission has to refuse, trying again: %s", error)
            return False

        sentence = (
            "the API server would let this node's token publish devices of another node; expected the admission "
            "policies of claimd's manifests (deploy/base/admission.yaml) to refuse it; apply them, and see that the "
            "role of the service account grants own, not any, on nodes.claimd.dev"
        )
        log.warning("%s", sentence)
        self.record_event(REASON, sentence)
        return True


async def is_held(resources_: resources.Resources, driver: str, node: str) -> bool:
    """Whether the API server refuses us a slice of another node; nothing is kept if it does not.

    ApiError if there was no answer.
    """
    try:
        await resources_.create_slice(_slice_of_another(node, driver), dry_run=True)
    except (kube_errors.Forbidden, kube_errors.Invalid) as refusal:
        log.debug("admission holds us to this node: %s", refusal)
        return True
    return False


def _slice_of_another(node: str, driver: str) -> ResourceSlice:
    """Right in every way but one: it is of a node that we do not run on."""
    other = names.shorten(f"not-{node}", 63)
    return ResourceSlice(
        metadata=ObjectMeta(name=names.slice_name(0xFFFFE, driver, other)),
        spec=ResourceSliceSpec(
            driver=driver,
            node_name=other,
            pool=ResourcePool(name=other, generation=1, resource_slice_count=1),
        ),
    )
