"""All the looking and all the judging, put together."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Mapping

from claimd.common import names
from claimd.kubernetes.kube import client, errors, resources
from claimd.node.config import Config
from claimd.node.prepare import checkpoint
from claimd_devices.gpu import Inventory

from . import agreement, api, cluster, drivers, host, kubelet, runtime, sight
from .check import Check, Finding, Level, named

CHECKS: tuple[Check, ...] = (
    *kubelet.CHECKS,
    *runtime.CHECKS,
    *drivers.CHECKS,
    *host.CHECKS,
    *api.CHECKS,
    *agreement.CHECKS,
)

# And from outside of the nodes.
CLUSTER_CHECKS: tuple[Check, ...] = (
    *cluster.CHECKS,
    *(check for check in api.CHECKS if check not in (api.NODE, api.CLOCK)),
    kubelet.KUBELET_VERSION,
    runtime.RUNTIME_VERSION,
)

# Seconds until what does not agree is looked at again: a claim may be just being prepared.
SECOND_LOOK = 1.5


async def node(
    settings: Config,
    server: client.Client | str,
    *,
    environment: Mapping[str, str] | None = None,
    second_look: float = SECOND_LOOK,
    settings_file: str = "",
) -> list[Finding]:
    """What every check says of the node that we run on. Changes nothing.

    `server` is the API server, or why none is known; `settings_file` is where the settings come from,
    if they have a file.
    """
    seen = sight.of(settings, environment, settings_file)

    # The kernel's files may take their time, or never answer.
    driver_facts = await asyncio.to_thread(drivers.look, seen)
    inventory = driver_facts.inventory
    if isinstance(server, str):
        api_facts = api.Facts(unknown=server)
    else:
        api_facts = await api.look(server, settings, inventory)

    known: api.NodeFacts = api_facts.node.value or api.NodeFacts(name=settings.node_name)
    kubelet_facts = await kubelet.look(seen, known.kubelet_version)
    runtime_facts = runtime.look(seen, known.runtime_version)
    host_facts = host.look(seen)

    folder = names.plugin_folder(seen.place(settings.kubelet_dir), settings.driver_name)
    claims = agreement.holders(checkpoint.read_claims(folder)[0])

    async def agree() -> list[Finding]:
        ours = published = None
        if not isinstance(server, str) and not api_facts.trouble and not api_facts.node_missing:
            ours = resources.Resources(server, settings.driver_name, settings.node_name)
            with contextlib.suppress(errors.ApiError):
                published = await ours.all_slices(settings.node_name)
        agreed = await agreement.look(seen, inventory, ours, published)
        return agreement.judge(
            agreed, registered=kubelet_facts.ready is None or kubelet_facts.ready[0]
        )

    agreed = await agree()
    if any(finding.level in (Level.ERROR, Level.WARNING) for finding in agreed):
        await asyncio.sleep(second_look)
        agreed = await agree()

    found = [
        *kubelet.judge(kubelet_facts),
        *runtime.judge(runtime_facts, seen.how),
        *drivers.judge(driver_facts, runtime_facts.systemd_cgroup, seen.how),
        *host.judge(host_facts, seen.how),
        *api.judge(api_facts, inventory, seen.settings_place, claims),
        *agreed,
    ]
    namespace = seen.settings_place.namespace
    return [named(finding, settings.node_name, namespace) for finding in found]


async def whole_cluster(settings: Config, server: client.Client) -> list[Finding]:
    """What every check says that needs no node. Changes nothing."""
    settings = dataclasses.replace(settings, node_name="")
    api_facts = await api.look(server, settings, Inventory())
    judged = api.judge(api_facts, Inventory())
    if api_facts.trouble:
        return judged

    # What is of a node is told of each.
    of_nodes = {check.name for check in (*api.OF_A_NODE, api.NODE, api.CLOCK)}
    facts = await cluster.look(server, settings)
    return [
        *(finding for finding in judged if finding.check not in of_nodes),
        *cluster.judge(facts),
    ]
