"""Checks once after the start whether the cluster's admission policies restrict us to this node.

A policy that applies to nobody fails silently: the account was renamed, the binding was never
applied, or a role grants everything. So the check sends a slice that the policies must refuse, as a
dry run. If the API server accepts it, an Event and the log warn about it. The answer does not
change the work of claimd.
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

# Seconds within which each node picks a random time. If all nodes start at once, the checks must
# not delay their slices.
SPREAD = 60.0
FIRST_DELAY, LAST_DELAY = 5.0, 300.0  # seconds between tries while the API server is away


@values.dataclass(slots=True, kw_only=True, eq=False, repr=False)
class PolicyCheck:
    """Sends a request that admission must refuse. `run` may be called once."""

    resources: resources.Resources
    driver: str
    node: str

    # Set when our slices are published. The kubelet and the scheduler wait for them, so they go
    # first.
    published: asyncio.Event

    record_event: Callable[[str, str], None]  # about the node: reason and note

    async def run(self) -> None:
        """Checks until the API server has answered once."""
        await self.published.wait()
        await asyncio.sleep(pacing.between(0.0, SPREAD))

        backoff = pacing.Backoff(FIRST_DELAY, LAST_DELAY, jitter=(0.8, 1.2))
        while not await self.check():  # noqa: ASYNC110  there is no event for an answer
            await asyncio.sleep(backoff.next_delay())

    async def check(self) -> bool:
        """Returns True if there was an answer. Warns if the slice was accepted."""
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
    """Returns True if the API server refuses a slice of another node. No slice is stored.

    Raises ApiError if there was no answer.
    """
    try:
        await resources_.create_slice(_slice_of_another(node, driver), dry_run=True)
    except (kube_errors.Forbidden, kube_errors.Invalid) as refusal:
        log.debug("admission holds us to this node: %s", refusal)
        return True
    return False


def _slice_of_another(node: str, driver: str) -> ResourceSlice:
    """Returns a slice with only one fault: it belongs to a node that we do not run on."""
    other = names.shorten(f"not-{node}", 63)
    return ResourceSlice(
        metadata=ObjectMeta(name=names.slice_name(0xFFFFE, driver, other)),
        spec=ResourceSliceSpec(
            driver=driver,
            node_name=other,
            pool=ResourcePool(name=other, generation=1, resource_slice_count=1),
        ),
    )
