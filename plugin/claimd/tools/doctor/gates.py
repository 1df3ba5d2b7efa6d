"""The feature gates of the API server and of the kubelet, as far as they can be seen.

A component shows its gates in its metrics. If we may not read the API server's metrics, a dry run
tells which fields of a slice it drops.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote

from claimd.kubernetes.kube import client, errors, resources
from claimd.node.config import Config
from claimd.node.publish import sharing, slices
from claimd_devices.gpu import Inventory

from .ask import GIVE_NODE, NO_NODE, Answer
from .check import Check, Finding, Level

SERVER_GATES = Check(
    name="api-server-gates",
    level=Level.WARNING,
    looks_at="kubernetes_feature_enabled in the API server's /metrics, or what it keeps of a dry run",
    expected="the gates on that this node needs",
    remedy="add --feature-gates=NAME=true to the API server (docs/compatibility.md says what is "
    "missing without it)",
)

KUBELET_GATES = Check(
    name="kubelet-gates",
    level=Level.WARNING,
    looks_at="kubernetes_feature_enabled in the kubelet's /metrics, through the API server",
    expected="the gates on that this node needs",
    remedy="set the gate under featureGates in the kubelet's configuration (mostly "
    "/var/lib/kubelet/config.yaml), and restart the kubelet",
)

_GATE = re.compile(r'^kubernetes_feature_enabled\{name="(\w+)"[^}]*\} ([01])\b', re.M)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A feature gate, the components that need it, and the loss while it is off."""

    name: str
    where: tuple[str, ...]
    without: str
    level: Level = Level.WARNING


SERVER, KUBELET = "API server", "kubelet"

GATES = (
    Gate(
        name="DynamicResourceAllocation",
        where=(SERVER, KUBELET),
        without="no pod gets a device",
        level=Level.ERROR,
    ),
    Gate(name="DRADeviceTaints", where=(SERVER,), without="sick GPUs are not tainted"),
    Gate(
        name="DRAResourceClaimDeviceStatus",
        where=(SERVER,),
        without="claims do not say what was given",
    ),
    Gate(
        name="DRAPartitionableDevices",
        where=(SERVER,),
        without="of a divided GPU the parts alone are published",
    ),
    Gate(name="DRAConsumableCapacity", where=(SERVER,), without="no GPU is shared"),
    Gate(
        name="DRAListTypeAttributes",
        where=(SERVER,),
        without="numaNode as a list is refused: leave numa-list off",
    ),
    Gate(
        name="DRAExtendedResource",
        where=(SERVER, KUBELET),
        without="pods that say claimd.dev/gpu: 1 wait for ever",
        level=Level.NOTE,
    ),
    Gate(
        name="ResourceHealthStatus",
        where=(SERVER, KUBELET),
        without="a pod's status has no health of its GPUs",
        level=Level.NOTE,
    ),
)

# Each of these serves one feature. Without that feature on this node its gate may be off.
_PARTS, _SHARING, _LISTS = (
    "DRAPartitionableDevices",
    "DRAConsumableCapacity",
    "DRAListTypeAttributes",
)


def judge_server(answer: Answer, needed: frozenset[str], dropped: tuple[str, ...]) -> list[Finding]:
    """Judges the API server's gates.

    `needed` are the gates that this node needs. `dropped` has a sentence for each field that a dry
    run has lost. That is better evidence than the metrics.
    """
    if dropped:
        return list(map(SERVER_GATES.failure, dropped))
    return _judge_gates(SERVER_GATES, SERVER, answer, needed)


def judge_kubelet(answer: Answer, needed: frozenset[str]) -> list[Finding]:
    """Judges the gates of a node's kubelet."""
    return _judge_gates(KUBELET_GATES, KUBELET, answer, needed)


def _judge_gates(check: Check, where: str, answer: Answer, needed: frozenset[str]) -> list[Finding]:
    """Returns a failure for each gate that this node needs and that is off.

    A gate that the metrics do not name is either locked to its default, which is on, or unknown to
    this release. Neither is a fault.
    """
    if answer.value is None:
        return [check.unknown(answer.trouble, answer.how)]

    failures = []
    for gate in GATES:
        is_optional = gate.name in (_PARTS, _SHARING, _LISTS) and gate.name not in needed
        is_off = answer.value.get(gate.name) is False
        if where in gate.where and is_off and not is_optional:
            seen = f"the {where}'s feature gate {gate.name} is off: {gate.without}"
            failures.append(check.failure(seen, level=gate.level))
    return failures or [check.success("none that is needed is off")]


async def ask_kubelet(api: client.Client, node: str) -> Answer:
    """Reads which gates are on in the kubelet of a node, through the API server."""
    if not node:
        return Answer(trouble=NO_NODE, how=GIVE_NODE)
    return await ask_component(api, kubelet_metrics(node))


def kubelet_metrics(node: str) -> str:
    """Returns the path at which the API server proxies the metrics of a node's kubelet."""
    return f"/api/v1/nodes/{quote(node, safe='')}/proxy/metrics"


async def ask_component(api: client.Client, path: str) -> Answer:
    """Reads which gates are on from the metrics of a component."""
    try:
        text = (await api.request("GET", path)).decode(errors="replace")
    except errors.ApiError as error:
        how = f"as an administrator: kubectl get --raw {path} | grep kubernetes_feature_enabled | grep DRA"
        return Answer(trouble=f"{path} may not be read: {error.reason or error}", how=how)
    return Answer(value={name: state == "1" for name, state in _GATE.findall(text)})


def needed_gates(settings: Config, inventory: Inventory) -> frozenset[str]:
    """Returns the gates that the settings and the GPUs of this node make necessary."""
    needed = set()
    if slices.has_partitions(inventory):
        needed.add(_PARTS)
    if sharing.is_any_shared(sharing.parse(settings.share), inventory):
        needed.add(_SHARING)
    if settings.numa_list:
        needed.add(_LISTS)
    return frozenset(needed)


async def find_dropped_fields(
    ours: resources.Resources, settings: Config, needed: frozenset[str]
) -> tuple[str, ...]:
    """Creates slices as a dry run, and returns a sentence for each needed field that is lost.

    An API server whose gate is off drops the fields of that gate, and reports no error.
    """
    node, driver = settings.node_name, settings.driver_name
    sentences = []
    try:
        if _PARTS in needed:
            sentences.append(await ours.check_counters(slices.counters_probe(driver, node)))
        if _SHARING in needed:
            sentences.append(await ours.check_sharing(slices.sharing_probe(driver, node)))
    except errors.ApiError:
        # A missing right is reported by the check of the rights.
        return ()
    return tuple(filter(None, sentences))
