"""The API server: whether it answers, what it serves, what we may do there, and who else is on the
node.
"""

from __future__ import annotations

import asyncio
import email.utils
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import msgspec

from devices import vendors
from devices.gpu import Inventory

from ..api import versions
from ..api.document import Document
from ..api.resource import GROUP
from ..config import Config
from ..kube import client, errors, resources
from ..publish import sharing, slices
from ..report import conflicts, policy_check
from . import rights
from .check import Check, Finding, Level
from .rights import Right

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
    looks_at="the node's clock beside the Date of the API server's answers",
    expected="the same time, within ten seconds: tokens and certificates have times, and so have "
    "taints and Events",
    remedy="on the node run a time service: `systemctl enable --now chronyd` or systemd-timesyncd, "
    "then `timedatectl`",
)
RIGHTS = Check(
    name="rights",
    level=Level.ERROR,
    looks_at="each verb that claimd needs, by reviews of access",
    expected="every right of deploy/base/rbac.yaml",
    remedy="apply deploy/base of this version of claimd (`kubectl apply -k deploy/base`, or your "
    "overlay of it); where driver-name is another than gpu.claimd.dev, the resourceNames of the "
    "role have to say so",
)
POLICY = Check(
    name="admission-policy",
    level=Level.WARNING,
    looks_at="a write that the admission policies have to refuse, as a dry run; for an "
    "administrator the policies and their bindings",
    expected="the API server refuses a slice of another node to the token of this one",
    remedy="kubectl apply -f deploy/base/admission.yaml: each policy there needs its binding; the role "
    "has to grant `own`, and not `any`, on nodes of the group claimd.dev (deploy/base/rbac.yaml)",
)
OTHER_DRIVERS = Check(
    name="other-drivers",
    level=Level.ERROR,
    looks_at="slices of other drivers with PCI addresses of our GPUs",
    expected="one driver for each GPU",
    remedy="take the other driver off this node, or leave the GPU to it by the setting `exclude`; "
    "docs/migrate.md has the order",
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
CHECKS = (
    API_SERVER,
    API_VERSION,
    RESOURCE_API,
    NODE,
    CLOCK,
    RIGHTS,
    POLICY,
    OTHER_DRIVERS,
    DEVICE_PLUGINS,
    STALE_CAPACITY,
    SERVER_GATES,
    KUBELET_GATES,
)

# What is so on one node and not on another.
OF_A_NODE = (OTHER_DRIVERS, DEVICE_PLUGINS, STALE_CAPACITY, KUBELET_GATES)

SELECTOR = "app.kubernetes.io/name=claimd"  # of claimd's pods, as the manifests have them
MOST_SKEW = 10.0  # seconds
_OLDEST = 32
_GATE = re.compile(r'^kubernetes_feature_enabled\{name="(\w+)"[^}]*\} ([01])\b', re.M)
_NO_NODE, _GIVE_NODE = "node-name is not set", "give --node-name NAME"
_ACCOUNT = "system:serviceaccount:"


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


@dataclass(frozen=True, kw_only=True)
class NodeFacts:
    name: str
    kubelet_version: str = ""
    runtime_version: str = ""
    capacity: Mapping[str, str] = field(default_factory=dict)
    allocatable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What was learnt, or why nothing was: one of the two."""

    value: Any = None
    trouble: str = ""
    how: str = ""  # how somebody could learn it


@dataclass(frozen=True, kw_only=True)
class Facts:
    """`unknown` says that no API server is known here, `trouble` that it gives no answer."""

    unknown: str = ""
    trouble: str = ""
    minor: int = 0
    version: str = ""
    served: tuple[str, ...] | None = None
    node_name: str = ""
    node: Answer = Answer()  # NodeFacts
    node_missing: bool = False
    skew: float | None = None
    account: str = ""  # whose rights these are
    denied: Answer = Answer()  # tuple of Right
    held: Answer = Answer()  # bool
    slices: Answer = Answer()  # of all drivers on the node
    gates: Answer = Answer()  # mapping of gate to whether it is on
    kubelet_gates: Answer = Answer()
    # What this node needs gates for.
    needed: frozenset[str] = frozenset()
    dropped: tuple[str, ...] = ()  # sentences on what a dry run has lost
    conflicts: tuple[str, ...] = ()


def judge(facts: Facts, inventory: Inventory) -> list[Finding]:
    if facts.unknown:
        how = "give --kubeconfig FILE, or run it in claimd's pod"
        return [check.unseen(facts.unknown, how) for check in CHECKS]
    if facts.trouble:
        others = [
            check.unseen("the API server gives no answer", f"mend {API_SERVER.name} first")
            for check in CHECKS[1:]
        ]
        return [API_SERVER.failed(facts.trouble), *others]

    return [
        API_SERVER.well("it answers"),
        _version(facts),
        _served(facts),
        _node(facts),
        _clock(facts),
        *_rights(facts),
        _policy(facts),
        *judge_rivals(facts, inventory),
        *_server_gates(facts),
        *judge_kubelet_gates(facts),
    ]


def _version(facts: Facts) -> Finding:
    if facts.minor < _OLDEST:
        return API_VERSION.failed(f"the API server is {facts.version}")
    return API_VERSION.well(facts.version)


def _served(facts: Facts) -> Finding:
    if not facts.served:
        return RESOURCE_API.failed("the API server does not serve resource.k8s.io")
    known = [version for version in versions.PREFERRED if version in facts.served]
    if not known:
        return RESOURCE_API.failed(f"the API server serves {', '.join(facts.served)} of it")
    return RESOURCE_API.well(known[0])


def _node(facts: Facts) -> Finding:
    if facts.node_missing:
        return NODE.failed(f"there is no Node {facts.node_name}")
    if facts.node.value is None:
        return NODE.unseen(facts.node.trouble, facts.node.how)
    return NODE.well(facts.node_name)


def _clock(facts: Facts) -> Finding:
    if facts.skew is None:
        return CLOCK.unseen("the API server's answers have no Date", "date -u, on both")
    if abs(facts.skew) > MOST_SKEW:
        direction = "ahead of" if facts.skew > 0 else "behind"
        seen = f"the node's clock is {abs(facts.skew):,.0f} s {direction} the API server's"
        return CLOCK.failed(seen)
    return CLOCK.well(f"{abs(facts.skew):.0f} s apart")


def _rights(facts: Facts) -> list[Finding]:
    if facts.denied.value is None:
        return [RIGHTS.unseen(facts.denied.trouble, facts.denied.how)]
    denied: Sequence[Right] = facts.denied.value
    if not denied:
        return [RIGHTS.well(f"{facts.account} has them all")]

    found = []
    for level in (Level.ERROR, Level.WARNING):
        lacking = [right for right in denied if right.level is level]
        if lacking:
            losses = "; ".join(dict.fromkeys(right.without for right in lacking))
            verbs = ", ".join(map(str, lacking))
            seen = f"{facts.account} may not {verbs}: {losses}"
            found.append(RIGHTS.failed(seen, level=level))
    return found


def _policy(facts: Facts) -> Finding:
    if facts.held.value is None:
        return POLICY.unseen(facts.held.trouble, facts.held.how)
    if facts.held.value:
        return POLICY.well("a slice of another node is refused")
    return POLICY.failed(
        facts.held.trouble
        or "the API server would let this node's token publish devices of another node"
    )


def conflicts_of(inventory: Inventory, specs: Sequence[Document], driver: str) -> tuple[str, ...]:
    """A sentence for each GPU of ours that another driver publishes as well."""
    others = [{"spec": spec} for spec in specs]
    return tuple(sorted(conflicts.with_drivers(inventory, others, driver).values()))


def judge_rivals(facts: Facts, inventory: Inventory) -> list[Finding]:
    return [*_other_drivers(facts, inventory), *_device_plugins(facts, inventory)]


def _other_drivers(facts: Facts, inventory: Inventory) -> list[Finding]:
    if facts.slices.value is None:
        return [OTHER_DRIVERS.unseen(facts.slices.trouble, facts.slices.how)]
    if facts.conflicts:
        return [OTHER_DRIVERS.failed(sentence) for sentence in facts.conflicts]
    return [OTHER_DRIVERS.well(f"none of {len(inventory.gpus)} GPUs is another's, too")]


def _device_plugins(facts: Facts, inventory: Inventory) -> list[Finding]:
    node: NodeFacts | None = facts.node.value
    if node is None:
        return [
            check.unseen("the Node could not be read", "kubectl describe node")
            for check in (DEVICE_PLUGINS, STALE_CAPACITY)
        ]

    # By allocatable: what is gone stays in the capacity.
    by_plugin = conflicts.with_device_plugins(inventory, node.allocatable)
    found = [DEVICE_PLUGINS.failed(sentence) for sentence in sorted(set(by_plugin.values()))]
    stale = [
        f"{name}: {count}"
        for name, count in sorted(node.capacity.items())
        if count != "0"
        and node.allocatable.get(name, "0") == "0"
        and any(name.startswith(vendor.DEVICE_PLUGIN_RESOURCES) for vendor in vendors.VENDORS)
    ]
    if not found:
        found = [DEVICE_PLUGINS.well("none hands out a GPU of ours")]
    if stale:
        seen = f"the capacity has {', '.join(stale)}, of which nothing is allocatable"
        return [*found, STALE_CAPACITY.failed(seen)]
    return [*found, STALE_CAPACITY.well("nothing is left of a device plugin")]


def _server_gates(facts: Facts) -> list[Finding]:
    if facts.dropped:
        return [SERVER_GATES.failed(sentence) for sentence in facts.dropped]
    return _gates(SERVER_GATES, SERVER, facts.gates, facts.needed)


def judge_kubelet_gates(facts: Facts) -> list[Finding]:
    return _gates(KUBELET_GATES, KUBELET, facts.kubelet_gates, facts.needed)


def _gates(check: Check, where: str, answer: Answer, needed: frozenset[str]) -> list[Finding]:
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


# ---------------------------------------------------------------- looking


async def look(api: client.Client, settings: Config, inventory: Inventory) -> Facts:
    """Asks for everything. Whatever is refused is left out, with the reason."""
    try:
        answer = _document(await api.request("GET", "/version"))
        date = await api.date()
    except errors.ApiError as error:
        return Facts(trouble=str(error))

    minor = int((re.match(r"[0-9]{1,6}", str(answer.get("minor", ""))) or ["0"])[0])
    ours = resources.Resources(api, settings.driver_name, settings.node_name)
    node, missing = await _look_at_node(api, settings.node_name)
    account, is_admin = await _who(api, settings.node_name)
    denied = await _denied(api, settings.driver_name, account, is_admin, minor)
    of_node = await _slices(ours, settings.node_name)
    needed = _needed(settings, inventory)
    gates = await gates_of(api, "/metrics")
    dropped: tuple[str, ...] = ()
    if gates.value is None and not is_admin and settings.node_name:
        dropped = await _dropped(ours, settings, needed)
    return Facts(
        minor=minor,
        version=str(answer.get("gitVersion") or f"1.{minor}"),
        served=await _versions(api),
        node_name=settings.node_name,
        node=node,
        node_missing=missing,
        skew=_skew(date),
        account=account.value or "",
        denied=denied,
        held=await _held(api, ours, settings, account, is_admin, denied),
        slices=of_node,
        conflicts=conflicts_of(
            inventory, [slice_["spec"] for slice_ in of_node.value or ()], settings.driver_name
        ),
        gates=gates,
        kubelet_gates=await _kubelet_gates(api, settings.node_name),
        needed=needed,
        dropped=dropped,
    )


def _document(answer: bytes) -> Document:
    try:
        decoded = msgspec.json.decode(answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise errors.Malformed(f"the API server's answer is not as expected: {error}") from error
    return decoded if isinstance(decoded, dict) else {}


async def get(api: client.Client, path: str, **query: str) -> Answer:
    """A document, or why there is none."""
    try:
        return Answer(value=_document(await api.request("GET", path, query=query)))
    except errors.ApiError as error:
        return Answer(trouble=str(error), how=f"kubectl get --raw {path!r}, as an administrator")


async def post(api: client.Client, path: str, body: Document) -> Document:
    """A review, answered; ApiError if it is not."""
    return _document(await api.request("POST", path, body=msgspec.json.encode(body)))


async def _look_at_node(api: client.Client, name: str) -> tuple[Answer, bool]:
    if not name:
        return Answer(trouble=_NO_NODE, how=_GIVE_NODE), False
    path = f"/api/v1/nodes/{quote(name, safe='')}"
    try:
        node = _document(await api.request("GET", path))
    except errors.NotFound:
        return Answer(), True
    except errors.ApiError as error:
        return Answer(trouble=str(error), how=f"kubectl get node {name} -o yaml"), False
    return Answer(value=node_facts(node)), False


def node_facts(node: Document) -> NodeFacts:
    status = node.get("status") or {}
    told = status.get("nodeInfo") or {}
    return NodeFacts(
        name=(node.get("metadata") or {}).get("name", ""),
        kubelet_version=told.get("kubeletVersion", ""),
        runtime_version=told.get("containerRuntimeVersion", ""),
        capacity=status.get("capacity") or {},
        allocatable=status.get("allocatable") or {},
    )


async def _versions(api: client.Client) -> tuple[str, ...] | None:
    answer = await get(api, f"/apis/{GROUP}")
    if answer.value is None:
        return None
    return tuple(str(item.get("version")) for item in answer.value.get("versions") or ())


async def _slices(ours: resources.Resources, node: str) -> Answer:
    if not node:
        return Answer(trouble=_NO_NODE, how=_GIVE_NODE)
    try:
        return Answer(value=await ours.all_slices(node))
    except errors.ApiError as error:
        return Answer(
            trouble=str(error),
            how=f"kubectl get resourceslices --field-selector spec.nodeName={node}",
        )


def _skew(date: str) -> float | None:
    """Seconds that our clock is ahead; the Date is cut to whole seconds."""
    try:
        theirs = email.utils.parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError):
        return None
    return time.time() - theirs - 0.5


# ---------------------------------------------------------------- accounts and their rights


async def _who(api: client.Client, node: str) -> tuple[Answer, bool]:
    """Whose rights are to be looked at, and whether we are an administrator who may ask about others.

    In claimd's own pod it is who we are; for an administrator, the account of the pod on this node.
    """
    try:
        review = await post(api, "/apis/authentication.k8s.io/v1/selfsubjectreviews", _REVIEW_SELF)
    except errors.ApiError as error:
        return Answer(trouble=f"it is not known who we are: {error}", how=_AS_CLAIMD), False
    name = str(review.get("status", {}).get("userInfo", {}).get("username", ""))

    if name.startswith(_ACCOUNT) and not name.endswith(":default"):
        return Answer(value=name), False
    if not await _is_admin(api):
        why = f"we are {name or 'nobody'} here, whose rights are not claimd's"
        return Answer(trouble=why, how=_AS_CLAIMD), False

    query = {"labelSelector": SELECTOR}
    if node:
        query["fieldSelector"] = f"spec.nodeName={node}"
    pods = (await get(api, "/api/v1/pods", **query)).value or {}
    for pod in pods.get("items") or ():
        account = (pod.get("spec") or {}).get("serviceAccountName") or "default"
        return Answer(value=f"{_ACCOUNT}{pod['metadata']['namespace']}:{account}"), True
    return Answer(
        trouble="there is no claimd pod whose account could be asked about", how=_AS_CLAIMD
    ), True


async def _is_admin(api: client.Client) -> bool:
    try:
        return await _allowed(api, "", {"verb": "*", "group": "*", "resource": "*"})
    except errors.ApiError:
        return False


_AS_CLAIMD = "kubectl -n claimd-system exec POD -- claimd doctor"
_REVIEW_SELF = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
_AUTHORIZATION = "/apis/authorization.k8s.io/v1"


async def _allowed(api: client.Client, account: str, attributes: Mapping[str, str]) -> bool:
    """Whether the account may, or we ourselves if there is none."""
    kind = "SubjectAccessReview" if account else "SelfSubjectAccessReview"
    spec: Document = {"resourceAttributes": dict(attributes)}
    if account:
        namespace = account.split(":")[2]
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
        spec |= {"user": account, "groups": [*groups, "system:authenticated"]}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    review = await post(api, f"{_AUTHORIZATION}/{kind.lower()}s", body)
    return bool(review.get("status", {}).get("allowed"))


async def _denied(
    api: client.Client, driver: str, account: Answer, is_admin: bool, minor: int
) -> Answer:
    """Which of our rights are missing."""
    if account.value is None:
        return account
    asked = [right for right in rights.RIGHTS if right.since <= minor]
    subject = account.value if is_admin else ""
    try:
        allowed = await asyncio.gather(
            *(_allowed(api, subject, right.attributes(driver)) for right in asked)
        )
    except errors.ApiError as error:
        return Answer(trouble=str(error), how="kubectl auth can-i --list --as " + account.value)
    pairs = zip(asked, allowed, strict=True)
    return Answer(value=tuple(right for right, may in pairs if not may))


# ---------------------------------------------------------------- policies


async def _held(
    api: client.Client,
    ours: resources.Resources,
    settings: Config,
    account: Answer,
    is_admin: bool,
    denied: Answer,
) -> Answer:
    """Whether admission holds claimd to its node: tried as claimd, read as an administrator."""
    if is_admin:
        return await policies_bound(api)
    if account.value is None or denied.value is None:
        return Answer(trouble=account.trouble or denied.trouble, how=_AS_CLAIMD)
    if not settings.node_name:
        return Answer(trouble=_NO_NODE, how=_GIVE_NODE)
    if any(right.verb == "create" and right.group == GROUP for right in denied.value):
        return Answer(trouble="claimd may write no slice at all", how=f"mend {RIGHTS.name} first")
    try:
        return Answer(
            value=await policy_check.is_held(ours, settings.driver_name, settings.node_name)
        )
    except errors.ApiError as error:
        return Answer(trouble=str(error), how="once the API server answers")


_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_HELD_RESOURCES = ("resourceslices", "resourceclaims/status")


async def policies_bound(api: client.Client) -> Answer:
    """Whether there are policies that look at who may `own` a node, each with a binding that denies."""
    policies = await get(api, f"{_ADMISSION}/validatingadmissionpolicies")
    bindings = await get(api, f"{_ADMISSION}/validatingadmissionpolicybindings")
    if policies.value is None or bindings.value is None:
        return policies if policies.value is None else bindings

    denying = {
        binding["spec"].get("policyName")
        for binding in bindings.value.get("items") or ()
        if "Deny" in (binding["spec"].get("validationActions") or ())
    }
    for resource in _HELD_RESOURCES:
        names = [
            policy["metadata"]["name"]
            for policy in policies.value.get("items") or ()
            if _holds(policy["spec"], resource)
        ]
        if not names:
            return Answer(value=False, trouble=f"no admission policy of claimd is about {resource}")
        if not denying.intersection(names):
            return Answer(
                value=False, trouble=f"the admission policy {names[0]} has no binding that denies"
            )
    return Answer(value=True)


def _holds(spec: Document, resource: str) -> bool:
    """Whether a policy is one of ours about this resource."""
    conditions = str(spec.get("matchConditions") or "")
    rules = (spec.get("matchConstraints") or {}).get("resourceRules") or ()
    named = any(resource in (rule.get("resources") or ()) for rule in rules)
    return named and "claimd.dev" in conditions


# ---------------------------------------------------------------- feature gates


def _needed(settings: Config, inventory: Inventory) -> frozenset[str]:
    needed = set()
    if slices.has_partitions(inventory):
        needed.add(_PARTS)
    if sharing.is_any_shared(sharing.parse(settings.share), inventory):
        needed.add(_SHARING)
    if settings.numa_list:
        needed.add(_LISTS)
    return frozenset(needed)


async def _kubelet_gates(api: client.Client, node: str) -> Answer:
    if not node:
        return Answer(trouble=_NO_NODE, how=_GIVE_NODE)
    return await gates_of(api, kubelet_metrics(node))


def kubelet_metrics(node: str) -> str:
    """Where the API server shows the metrics of a node's kubelet."""
    return f"/api/v1/nodes/{quote(node, safe='')}/proxy/metrics"


async def gates_of(api: client.Client, path: str) -> Answer:
    """Which gates are on, as the component's metrics say."""
    try:
        text = (await api.request("GET", path)).decode(errors="replace")
    except errors.ApiError as error:
        how = f"as an administrator: kubectl get --raw {path} | grep kubernetes_feature_enabled | grep DRA"
        return Answer(trouble=f"{path} may not be read: {error.reason or error}", how=how)
    return Answer(value={name: state == "1" for name, state in _GATE.findall(text)})


async def _dropped(
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
