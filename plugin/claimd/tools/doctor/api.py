"""Checks of the API server: it answers, serves the resource API, and grants claimd its rights.

The checks for other drivers and device plugins on the node are here as well, since their slices and
resources are read from the API server.
"""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from claimd.common import plain_text
from claimd.kubernetes.api import versions
from claimd.kubernetes.api.document import Document
from claimd.kubernetes.api.resource import GROUP
from claimd.kubernetes.kube import client, errors, resources
from claimd.node.config import Config
from claimd.node.report import conflicts
from claimd.node.report.conflicts import Rival
from claimd_devices import vendors
from claimd_devices.gpu import Inventory

from . import access, gates
from .ask import GIVE_NODE, NO_NODE, UNASKED, Answer, decode_document, get
from .check import Check, Finding, Level
from .setting import Place

API_SERVER = Check(
    name="api-server",
    level=Level.ERROR,
    looks_at="a request to the API server, with the credentials that claimd has",
    expected="an API server that answers, is trusted, and takes our credentials",
    remedy="from this place see that the address and port are right, that no NetworkPolicy or firewall "
    "stands between, and that the token and the certificate authority are of this cluster",
)
API_VERSION = Check(
    name="api-version",
    level=Level.ERROR,
    looks_at="the API server's /version",
    expected="Kubernetes 1.34 or later; 1.32 and 1.33 with the beta API",
    remedy="update the cluster",
)
RESOURCE_API = Check(
    name="resource-api",
    level=Level.ERROR,
    looks_at="the versions of resource.k8s.io that the API server serves",
    expected=f"one of {', '.join(versions.PREFERRED)}",
    remedy="Kubernetes 1.34 serves v1 by itself; on 1.32 and 1.33 start the API server with "
    "--feature-gates=DynamicResourceAllocation=true --runtime-config=resource.k8s.io/v1beta1=true, "
    "and the other components with the gate",
)
NODE = Check(
    name="node",
    level=Level.ERROR,
    looks_at="the Node of the setting `node-name`",
    expected="a Node of this name",
    remedy="node-name has to be the name of the Node: in the DaemonSet it comes from spec.nodeName "
    "(CLAIMD_NODE_NAME)",
)
CLOCK = Check(
    name="clock",
    level=Level.WARNING,
    looks_at="the node's clock, compared with the Date of the API server's answers",
    expected="the same time, within ten seconds: tokens and certificates have times, and so have "
    "taints and Events",
    remedy="on the node run a time service: `systemctl enable --now chronyd` or systemd-timesyncd, "
    "then `timedatectl`",
)
OTHER_DRIVERS = Check(
    name="other-drivers",
    level=Level.ERROR,
    looks_at="slices of other drivers with PCI addresses of our GPUs",
    expected="one driver for each GPU",
    remedy="decide whose they are, and end the pods that have them by the one that yields; then take "
    "the other driver and its slices off this node, or add their addresses to the setting `exclude`",
)
DEVICE_PLUGINS = Check(
    name="device-plugins",
    level=Level.ERROR,
    looks_at="the Node's allocatable: resources of the vendors' device plugins",
    expected="no device plugin that hands out the same GPUs",
    remedy="take the device plugin off this node (its DaemonSet, by a label), or leave the GPUs to it "
    "by the setting `exclude`; docs/migrate.md has the order",
)
STALE_CAPACITY = Check(
    name="stale-capacity",
    level=Level.NOTE,
    looks_at="the Node's capacity: what a device plugin that is gone has left there",
    expected="no count of a device plugin's in the capacity",
    remedy="nothing: the count falls to 0 five minutes after the plugin has gone, and pods are "
    "scheduled by allocatable, which is 0; a device plugin that is starting shows the same",
)
CHECKS = (
    API_SERVER,
    API_VERSION,
    RESOURCE_API,
    NODE,
    CLOCK,
    access.RIGHTS,
    access.POLICY,
    OTHER_DRIVERS,
    DEVICE_PLUGINS,
    STALE_CAPACITY,
    gates.SERVER_GATES,
    gates.KUBELET_GATES,
)

# The checks that can differ from node to node.
OF_A_NODE = (OTHER_DRIVERS, DEVICE_PLUGINS, STALE_CAPACITY, gates.KUBELET_GATES)

MOST_SKEW = 10.0  # seconds
_OLDEST = 32


@dataclass(frozen=True, kw_only=True)
class NodeFacts:
    """The fields of a Node that the checks need."""

    name: str
    kubelet_version: str = ""
    runtime_version: str = ""
    capacity: Mapping[str, str] = field(default_factory=dict)
    allocatable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The answers of the API server.

    `unknown` is the reason why we know no API server. `trouble` is the reason why the API
    server gives no answer. In either case the other fields are empty.
    """

    unknown: str = ""
    trouble: str = ""
    minor: int = 0
    version: str = ""
    served: tuple[str, ...] | None = None
    node_name: str = ""
    node: Answer = UNASKED  # NodeFacts
    node_missing: bool = False
    skew: float | None = None
    account: str = ""  # the account whose rights were checked
    driver: str = ""  # our driver's name
    denied: Answer = UNASKED  # a tuple of each Right that the account lacks
    held: Answer = UNASKED  # True if admission holds claimd to its node
    slices: Answer = UNASKED  # of all drivers on the node
    gates: Answer = UNASKED  # a mapping from gate to True if it is on
    kubelet_gates: Answer = UNASKED
    needed: frozenset[str] = frozenset()  # the gates that this node needs
    dropped: tuple[str, ...] = ()  # a sentence for each field that a dry run has lost
    conflicts: tuple[Rival, ...] = ()
    excluded: tuple[str, ...] = ()  # the setting `exclude`


def judge(
    facts: Facts,
    inventory: Inventory,
    place: Place | None = None,
    holders: Mapping[str, Sequence[str]] | None = None,
) -> list[Finding]:
    """Judges the API server's answers.

    `holders` are the titles of our claims on each GPU, by its address. None: they are not known.
    """
    # Without an API server every check says why it could not be made.
    if facts.unknown:
        how = "give --kubeconfig FILE, or run it in claimd's pod"
        return [check.unknown(facts.unknown, how) for check in CHECKS]
    if facts.trouble:
        reason, how = "the API server gives no answer", f"mend {API_SERVER.name} first"
        others = [check.unknown(reason, how) for check in CHECKS[1:]]
        return [API_SERVER.failure(facts.trouble), *others]

    return [
        API_SERVER.success("it answers"),
        _judge_version(facts),
        _judge_served_versions(facts),
        _judge_node(facts),
        _judge_clock(facts),
        *access.judge_rights(facts.account, facts.denied, facts.driver),
        access.judge_policy(facts.held),
        *judge_rivals(facts, inventory, place, holders),
        *gates.judge_server(facts.gates, facts.needed, facts.dropped),
        *gates.judge_kubelet(facts.kubelet_gates, facts.needed),
    ]


def _judge_version(facts: Facts) -> Finding:
    if facts.minor < _OLDEST:
        return API_VERSION.failure(f"the API server is {facts.version}")
    return API_VERSION.success(facts.version)


def _judge_served_versions(facts: Facts) -> Finding:
    if not facts.served:
        return RESOURCE_API.failure("the API server does not serve resource.k8s.io")
    known = [version for version in versions.PREFERRED if version in facts.served]
    if not known:
        return RESOURCE_API.failure(f"the API server serves {', '.join(facts.served)} of it")
    return RESOURCE_API.success(known[0])


def _judge_node(facts: Facts) -> Finding:
    if facts.node_missing:
        return NODE.failure(f"there is no Node {facts.node_name}")
    if facts.node.value is None:
        return NODE.unknown(facts.node.trouble, facts.node.how)
    return NODE.success(facts.node_name)


def _judge_clock(facts: Facts) -> Finding:
    if facts.skew is None:
        return CLOCK.unknown("the API server's answers have no Date", "date -u, on both")
    if abs(facts.skew) > MOST_SKEW:
        direction = "ahead of" if facts.skew > 0 else "behind"
        seen = f"the node's clock is {abs(facts.skew):,.0f} s {direction} the API server's"
        return CLOCK.failure(seen)
    return CLOCK.success(f"{abs(facts.skew):.0f} s apart")


def find_rivals(inventory: Inventory, slices: Sequence[Document], driver: str) -> tuple[Rival, ...]:
    """Returns another driver's device for each GPU of ours that it publishes as well."""
    rivals = conflicts.rivals(inventory, slices, driver)
    return tuple(sorted(rivals.values(), key=lambda rival: rival.address))


def judge_rivals(
    facts: Facts,
    inventory: Inventory,
    place: Place | None = None,
    holders: Mapping[str, Sequence[str]] | None = None,
) -> list[Finding]:
    """Judges whether other drivers or device plugins hand out the same GPUs."""
    place = place or Place()
    return [
        *_judge_other_drivers(facts, inventory, place, holders),
        *_judge_device_plugins(facts, inventory, place),
    ]


def _judge_other_drivers(
    facts: Facts,
    inventory: Inventory,
    place: Place,
    holders: Mapping[str, Sequence[str]] | None,
) -> list[Finding]:
    if facts.slices.value is None:
        return [OTHER_DRIVERS.unknown(facts.slices.trouble, facts.slices.how)]
    if not facts.conflicts:
        return [OTHER_DRIVERS.success(f"none of {len(inventory.gpus)} GPUs is another's, too")]

    # People decide for each GPU. The setting to leave them all to the other driver is one line.
    addresses = [rival.address for rival in facts.conflicts]
    lines_to_leave = _lines_to_leave(facts, place, addresses)
    failures = []
    for rival in facts.conflicts:
        seen = (
            f"{rival.address} is published by the driver {rival.driver} as well, in the slice "
            f"{rival.slice_name} as {rival.device}: it could be given to two pods"
        )
        remedy = (
            _holders_line(rival.address, holders),
            _lines_to_check(rival),
            _lines_to_take(rival),
            lines_to_leave,
        )
        failures.append(OTHER_DRIVERS.failure(seen, remedy="\n".join(remedy)))
    return failures


def _holders_line(address: str, holders: Mapping[str, Sequence[str]] | None) -> str:
    """Returns a line that says which of our claims have the GPU now."""
    if holders is None:
        return "decide whose it is; whether a claim of claimd has it is told by doctor on the node"
    claims = holders.get(address, ())
    if claims:
        return f"decide whose it is: {', '.join(claims)} of claimd's claims has {address} now"
    return f"decide whose it is: no claim of claimd has {address} now"


def _lines_to_check(rival: Rival) -> str:
    """Returns the steps to find out whether the other driver is still there.

    Its slice may be all that is left.
    """
    return (
        f"see whether a claim has a device of {rival.driver}, and whether that driver runs here\n"
        "    kubectl get resourceclaims -A -o custom-columns="
        "CLAIM:.metadata.name,DRIVERS:.status.allocation.devices.results[*].driver\n"
        "    kubectl get pods -A -o wide --field-selector spec.nodeName=NODE\n"
        "if neither, its slice was left behind: it is claimd's"
    )


def _lines_to_take(rival: Rival) -> str:
    """Returns the steps to give the GPU to claimd."""
    return (
        f"if it is claimd's, end the pods that got it from {rival.driver}, keep that driver's "
        "DaemonSet off this node (by a nodeAffinity), then\n"
        "    kubectl delete resourceslices --field-selector "
        f"spec.driver={rival.driver},spec.nodeName=NODE"
    )


def _lines_to_leave(facts: Facts, place: Place, which: Sequence[str]) -> str:
    """Returns the steps to leave GPUs to the other driver or plugin.

    The setting in them includes everything that is excluded already, so that people can copy it.
    """
    value = ",".join(dict.fromkeys((*facts.excluded, *which)))
    lines = [
        "if it is the other's, end the pods that got it from claimd, then "
        f"{place.steps_to_set('exclude', value)}"
    ]
    if not place.is_of_node("exclude"):
        lines.append("for this node alone it needs a DaemonSet of its own (docs/migrate.md)")
    return "\n".join(lines)


def _judge_device_plugins(facts: Facts, inventory: Inventory, place: Place) -> list[Finding]:
    node: NodeFacts | None = facts.node.value
    if node is None:
        reason, how = "the Node could not be read", "kubectl describe node"
        return [DEVICE_PLUGINS.unknown(reason, how), STALE_CAPACITY.unknown(reason, how)]

    # The capacity keeps the resource of a plugin that has gone. Allocatable does not.
    by_plugin = conflicts.with_device_plugins(inventory, node.allocatable)
    vendor_of = {}
    for gpu in inventory.gpus:
        if gpu.name in by_plugin:
            vendor_of[by_plugin[gpu.name]] = gpu.vendor

    findings = []
    for sentence, vendor in sorted(vendor_of.items()):
        # The text after the semicolon is a remedy in short. Ours has the steps.
        seen = sentence.partition(";")[0]
        remedy = (
            "if they are claimd's, end the pods that have them by the plugin, and keep its "
            f"DaemonSet off this node (by a nodeAffinity)\n{_lines_to_leave(facts, place, [vendor])}"
        )
        findings.append(DEVICE_PLUGINS.failure(seen, remedy=remedy))
    if not findings:
        findings = [DEVICE_PLUGINS.success("none hands out a GPU of ours")]

    stale = _stale_resources(node)
    if stale:
        seen = f"the capacity has {', '.join(stale)}, of which nothing is allocatable"
        return [*findings, STALE_CAPACITY.failure(seen)]
    return [*findings, STALE_CAPACITY.success("nothing is left of a device plugin")]


def _stale_resources(node: NodeFacts) -> list[str]:
    """Returns the resources of device plugins, with counts, that are in the capacity only."""
    prefixes: tuple[str, ...] = ()
    for vendor in vendors.VENDORS:
        prefixes += vendor.DEVICE_PLUGIN_RESOURCES

    stale = []
    for name, count in sorted(node.capacity.items()):
        is_of_plugin = name.startswith(prefixes)
        if is_of_plugin and count != "0" and node.allocatable.get(name, "0") == "0":
            stale.append(f"{name}: {count}")
    return stale


# ---------------------------------------------------------------- looking


async def look(api: client.Client, settings: Config, inventory: Inventory) -> Facts:
    """Asks the API server for everything. A refused request becomes the reason for the missing
    fact.
    """
    # If the first request fails, all others would fail for the same reason.
    try:
        answer = decode_document(await api.request("GET", "/version"))
        date = await api.date()
    except errors.ApiError as error:
        return Facts(trouble=str(error))

    minor = int((re.match(r"[0-9]{1,6}", str(answer.get("minor", ""))) or ["0"])[0])
    ours = resources.Resources(api, settings.driver_name, settings.node_name)

    # The rights of claimd's account, and whether admission holds it to its node.
    node, missing = await _look_at_node(api, settings.node_name)
    account, is_admin = await access.find_account(api, settings.node_name)
    denied = await access.find_denied_rights(api, settings, account, is_admin, minor)
    held = await access.check_policy(api, ours, settings, account, is_admin, denied)

    # Without its metrics the API server shows by a dry run which gates are off. An administrator
    # can read the metrics.
    of_node = await _all_slices(ours, settings.node_name)
    needed = gates.needed_gates(settings, inventory)
    server_gates = await gates.ask_component(api, "/metrics")
    dropped: tuple[str, ...] = ()
    if server_gates.value is None and not is_admin and settings.node_name:
        dropped = await gates.find_dropped_fields(ours, settings, needed)
    return Facts(
        minor=minor,
        version=str(answer.get("gitVersion") or f"1.{minor}"),
        served=await _served_versions(api),
        node_name=settings.node_name,
        node=node,
        node_missing=missing,
        skew=_skew(date),
        account=account.value or "",
        driver=settings.driver_name,
        denied=denied,
        held=held,
        slices=of_node,
        conflicts=find_rivals(inventory, of_node.value or (), settings.driver_name),
        excluded=settings.exclude,
        gates=server_gates,
        kubelet_gates=await gates.ask_kubelet(api, settings.node_name),
        needed=needed,
        dropped=dropped,
    )


async def _look_at_node(api: client.Client, name: str) -> tuple[Answer, bool]:
    """Reads the Node. Also returns True if the API server has no Node of this name."""
    if not name:
        return Answer(trouble=NO_NODE, how=GIVE_NODE), False
    path = f"/api/v1/nodes/{quote(name, safe='')}"
    try:
        node = decode_document(await api.request("GET", path))
    except errors.NotFound:
        return Answer(), True
    except errors.ApiError as error:
        return Answer(trouble=str(error), how=f"kubectl get node {name} -o yaml"), False
    return Answer(value=node_facts(node)), False


def node_facts(node: Document) -> NodeFacts:
    """Returns the fields of a Node that the checks need."""
    status = node.get("status") or {}
    info = status.get("nodeInfo") or {}
    return NodeFacts(
        name=(node.get("metadata") or {}).get("name", ""),
        kubelet_version=info.get("kubeletVersion", ""),
        runtime_version=info.get("containerRuntimeVersion", ""),
        capacity=status.get("capacity") or {},
        allocatable=status.get("allocatable") or {},
    )


async def _served_versions(api: client.Client) -> tuple[str, ...] | None:
    answer = await get(api, f"/apis/{GROUP}")
    if answer.value is None:
        return None
    return tuple(str(item.get("version")) for item in answer.value.get("versions") or ())


async def _all_slices(ours: resources.Resources, node: str) -> Answer:
    if not node:
        return Answer(trouble=NO_NODE, how=GIVE_NODE)
    try:
        return Answer(value=plain_text.plain_value(await ours.all_slices(node)))
    except errors.ApiError as error:
        return Answer(
            trouble=str(error),
            how=f"kubectl get resourceslices --field-selector spec.nodeName={node}",
        )


def _skew(date: str) -> float | None:
    """Returns by how many seconds our clock is ahead; None if the answer had no Date."""
    try:
        theirs = email.utils.parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError):
        return None

    # The Date has whole seconds: on average half a second is cut off.
    return time.time() - theirs - 0.5
