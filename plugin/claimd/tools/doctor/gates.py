"""Feature gates of the API server and of the kubelet, as far as they can be seen."""

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
    """A feature gate, where it counts, and what does not work while it is off."""

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

# What a gate is needed for alone, if anything: else it is no loss.
_PARTS, _SHARING, _LISTS = (
    "DRAPartitionableDevices",
    "DRAConsumableCapacity",
    "DRAListTypeAttributes",
)


def judge_server(answer: Answer, needed: frozenset[str], dropped: tuple[str, ...]) -> list[Finding]:
    """`needed` are the gates that this node needs; `dropped` says what a dry run has lost."""
    if dropped:
        return [SERVER_GATES.failed(sentence) for sentence in dropped]
    return _off(SERVER_GATES, SERVER, answer, needed)


def judge_kubelet(answer: Answer, needed: frozenset[str]) -> list[Finding]:
    return _off(KUBELET_GATES, KUBELET, answer, needed)


def _off(check: Check, where: str, answer: Answer, needed: frozenset[str]) -> list[Finding]:
    """Those that are off, and that this node needs. What is not named is on for good, or unknown."""
    if answer.value is None:
        return [check.unseen(answer.trouble, answer.how)]
    found = []
    for gate in GATES:
        is_optional = gate.name in (_PARTS, _SHARING, _LISTS) and gate.name not in needed
        is_off = answer.value.get(gate.name) is False
        if where in gate.where and is_off and not is_optional:
            seen = f"the {where}'s feature gate {gate.name} is off: {gate.without}"
            found.append(check.failed(seen, level=gate.level))
    return found or [check.well("none that is needed is off")]


async def of_kubelet(api: client.Client, node: str) -> Answer:
    if not node:
        return Answer(trouble=NO_NODE, how=GIVE_NODE)
    return await of_component(api, kubelet_metrics(node))


def kubelet_metrics(node: str) -> str:
    """Where the API server shows the metrics of a node's kubelet."""
    return f"/api/v1/nodes/{quote(node, safe='')}/proxy/metrics"


async def of_component(api: client.Client, path: str) -> Answer:
    """Which gates are on, as the component's metrics say."""
    try:
        text = (await api.request("GET", path)).decode(errors="replace")
    except errors.ApiError as error:
        how = f"as an administrator: kubectl get --raw {path} | grep kubernetes_feature_enabled | grep DRA"
        return Answer(trouble=f"{path} may not be read: {error.reason or error}", how=how)
    return Answer(value={name: state == "1" for name, state in _GATE.findall(text)})


def needed_by(settings: Config, inventory: Inventory) -> frozenset[str]:
    needed = set()
    if slices.has_partitions(inventory):
        needed.add(_PARTS)
    if sharing.is_any_shared(sharing.parse(settings.share), inventory):
        needed.add(_SHARING)
    if settings.numa_list:
        needed.add(_LISTS)
    return frozenset(needed)


async def dropped(
    ours: resources.Resources, settings: Config, needed: frozenset[str]
) -> tuple[str, ...]:
    """What the API server loses of a slice that it is shown, of what this node needs."""
    node, driver = settings.node_name, settings.driver_name
    sentences = []
    try:
        if _PARTS in needed:
            sentences.append(await ours.keeps_counters(slices.counters_probe(driver, node)))
        if _SHARING in needed:
            sentences.append(await ours.keeps_sharing(slices.sharing_probe(driver, node)))
    except errors.ApiError:
        # That it may not be asked is told by the rights.
        return ()
    return tuple(sentence for sentence in sentences if sentence)
