"""The whole examination: looks at everything, judges it, and returns the findings."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Mapping

from claimd.kubernetes.kube import client, errors, resources
from claimd.node.config import Config
from claimd.node.prepare import checkpoint
from claimd_devices.gpu import Inventory

from . import agreement, api, cluster, drivers, host, kubelet, runtime, sight
from .check import Check, Finding, Level, with_names, worst_level

CHECKS: tuple[Check, ...] = (
    *kubelet.CHECKS,
    *runtime.CHECKS,
    *drivers.CHECKS,
    *host.CHECKS,
    *api.CHECKS,
    *agreement.CHECKS,
)

# These can be done without access to the nodes.
CLUSTER_CHECKS: tuple[Check, ...] = (
    *cluster.CHECKS,
    *(check for check in api.CHECKS if check not in (api.NODE, api.CLOCK)),
    kubelet.KUBELET_VERSION,
    runtime.RUNTIME_VERSION,
)

# Seconds until a disagreement is looked at again. It may come from a claim that is being prepared.
SECOND_LOOK = 1.5


@dataclasses.dataclass
class Progress:
    """The part that an examination is looking at, in words for people."""

    part: str = "the processes of the host"


async def examine_node(
    settings: Config,
    server: client.Client | str,
    *,
    environment: Mapping[str, str] | None = None,
    second_look: float = SECOND_LOOK,
    settings_file: str = "",
    progress: Progress | None = None,
) -> list[Finding]:
    """Runs every check of the node that we run on, and returns the findings. Changes nothing.

    `server` is the API server, or the reason why none is known. `settings_file` is the file that
    the settings were read from, if there is one.
    """
    progress = progress or Progress()
    seen = sight.look_around(settings, environment, settings_file)

    # A read of the kernel's files may take long or block for ever, so a thread does it.
    progress.part = "the GPUs and their drivers"
    driver_facts = await asyncio.to_thread(drivers.look, seen)
    inventory = driver_facts.inventory
    progress.part = "the API server"
    if isinstance(server, str):
        api_facts = api.Facts(unknown=server)
    else:
        api_facts = await api.look(server, settings, inventory)

    # The Node says which kubelet and which runtime it has.
    known: api.NodeFacts = api_facts.node.value or api.NodeFacts(name=settings.node_name)
    progress.part = "the kubelet, and claimd's endpoint"
    kubelet_facts = await kubelet.look(seen, known.kubelet_version)
    progress.part = "the configuration of the container runtime"
    runtime_facts = runtime.look(seen, known.runtime_version)
    progress.part = "the machine"
    host_facts = host.look(seen)

    # The checkpoints say which claims hold which GPU.
    progress.part = "the records of claims"
    claims = agreement.claims_by_address(checkpoint.read_claims(seen.plugin_folder)[0])

    async def judge_agreement() -> list[Finding]:
        ours = published = None
        if not isinstance(server, str) and not api_facts.trouble and not api_facts.node_missing:
            ours = resources.Resources(server, settings.driver_name, settings.node_name)
            with contextlib.suppress(errors.ApiError):
                published = await ours.all_slices(settings.node_name)
        agreement_facts = await agreement.look(seen, inventory, ours, published)
        is_registered = kubelet_facts.ready is None or kubelet_facts.ready[0]
        return agreement.judge(agreement_facts, registered=is_registered)

    # Claims come and go while we look. Only a disagreement that lasts is a fault.
    agreed = await judge_agreement()
    if worst_level(agreed) in (Level.ERROR, Level.WARNING):
        await asyncio.sleep(second_look)
        agreed = await judge_agreement()

    findings = [
        *kubelet.judge(kubelet_facts),
        *runtime.judge(runtime_facts, seen.how),
        *drivers.judge(driver_facts, runtime_facts.systemd_cgroup, seen.how),
        *host.judge(host_facts, seen.how),
        *api.judge(api_facts, inventory, seen.settings_place, claims),
        *agreed,
    ]
    namespace = seen.settings_place.namespace
    return [with_names(finding, settings.node_name, namespace) for finding in findings]


async def examine_cluster(
    settings: Config, server: client.Client, *, progress: Progress | None = None
) -> list[Finding]:
    """Runs every check that needs no access to a node. Changes nothing."""
    progress = progress or Progress()
    progress.part = "the API server"
    settings = dataclasses.replace(settings, node_name="")
    api_facts = await api.look(server, settings, Inventory())
    judged = api.judge(api_facts, Inventory())
    if api_facts.trouble:
        return judged

    # These checks are about one node. `cluster` makes them for each of the nodes.
    of_nodes = {check.name for check in (*api.OF_A_NODE, api.NODE, api.CLOCK)}
    of_server = [finding for finding in judged if finding.check not in of_nodes]
    progress.part = "claimd's pods and slices"
    facts = await cluster.look(server, settings)
    return [*of_server, *cluster.judge(facts)]
