"""`claimd doctor --cluster`: checks all nodes from outside.

Everything is read from the API server, except the state of each claimd. That is asked at its
endpoint, through the API server's proxy, or at the pod's address if the proxy may not be used.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from claimd.common import probe
from claimd.kubernetes.api.document import Document
from claimd.kubernetes.api.resource import GROUP, STANDARD
from claimd.kubernetes.api.versions import PREFERRED, spec_from_wire
from claimd.kubernetes.kube import client, errors
from claimd.node.config import Config
from claimd_devices.gpu import Gpu, Inventory

from . import access, agreement, api, ask, gates, kubelet, runtime
from .ask import UNASKED, Answer
from .check import Check, Finding, Level, with_names

PODS = Check(
    name="claimd-pods",
    level=Level.ERROR,
    looks_at="the pods of claimd and what their containers wait for",
    expected="a claimd pod on each node with GPUs, running and ready",
    remedy="kubectl -n NAMESPACE describe pod POD; kubectl -n NAMESPACE logs POD --previous",
)
ENDPOINTS = Check(
    name="claimd-answers",
    level=Level.ERROR,
    looks_at="/readyz at the endpoint of each claimd pod",
    expected="ready: registered with the kubelet, the slices published",
    remedy="run doctor on that node: kubectl -n NAMESPACE exec POD -- claimd doctor",
)
NODE_SLICES = Check(
    name="node-slices",
    level=Level.ERROR,
    looks_at="the ResourceSlices of our driver, compared with the nodes that have a claimd pod",
    expected="slices of each node with claimd, all that the pool has, and of no other node",
    remedy="run doctor on that node: kubectl -n NAMESPACE exec POD -- claimd doctor",
)
CLASSES = Check(
    name="device-classes",
    level=Level.WARNING,
    looks_at="the DeviceClasses whose selectors name our driver",
    expected="a class by which claims ask for our devices",
    remedy="kubectl apply -f deploy/base/deviceclasses.yaml",
)
CHECKS = (PODS, ENDPOINTS, NODE_SLICES, CLASSES)

_SECONDS = 5.0
_READY = "Ready"
_MOST_AT_ONCE = 8


@dataclass(frozen=True, kw_only=True)
class Pod:
    """One of claimd's pods."""

    namespace: str
    name: str
    node: str
    account: str
    address: str = ""
    port: str = ""  # the endpoint's port; empty: nobody outside the pod can ask it
    ready: bool = False
    trouble: str = ""  # the reason for which a container does not run
    # The endpoint's answer. None: it could not be asked.
    answer: tuple[bool, str] | None = None


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The state of the cluster, as far as the API server and the endpoints report it."""

    nodes: Answer  # a list of api.NodeFacts
    pods: Answer  # a list of Pod
    slices: Answer  # a list of documents, whose specs have the shape of v1
    classes: Answer  # a list of documents
    kubelet_gates: Mapping[str, Answer] = field(default_factory=dict)  # by node
    driver: str


def judge(facts: Facts) -> list[Finding]:
    """Judges claimd's pods and slices in the cluster, and then each node with claimd."""
    findings = [
        *_judge_pods(facts),
        *_judge_endpoints(facts),
        *_judge_slices(facts),
        _judge_classes(facts),
    ]
    for node in facts.nodes.value or ():
        findings += _with_node(node.name, _judge_node(facts, node))
    return findings


def _with_node(node: str, findings: Sequence[Finding]) -> list[Finding]:
    return [dataclasses.replace(with_names(finding, node), node=node) for finding in findings]


def _judge_pods(facts: Facts) -> list[Finding]:
    pods: list[Pod] | None = facts.pods.value
    if pods is None:
        return [PODS.unknown(facts.pods.trouble, facts.pods.how)]
    if not pods:
        return [
            PODS.failure(
                f"the cluster has no pod with the label {access.SELECTOR}",
                remedy="install claimd: kubectl apply -k deploy/base (docs/install.md)",
            )
        ]

    failures = []
    for pod in pods:
        if pod.ready:
            continue
        seen = f"pod {pod.namespace}/{pod.name} is not ready"
        if pod.trouble:
            seen = f"{seen}: {pod.trouble}"
        remedy = PODS.remedy.replace("NAMESPACE", pod.namespace).replace("POD", pod.name)
        failures += _with_node(pod.node, [PODS.failure(seen, remedy=remedy)])
    return failures or [PODS.success(f"{len(pods)} pods are ready")]


def _judge_endpoints(facts: Facts) -> list[Finding]:
    findings = []
    for pod in facts.pods.value or ():
        how = f"kubectl -n {pod.namespace} exec {pod.name} -- claimd probe ready"
        if not pod.port:
            finding = ENDPOINTS.unknown("its endpoint is nothing that can be asked from here", how)
        elif pod.answer is None:
            finding = ENDPOINTS.unknown("it could not be asked from here", how)
        elif pod.answer[0]:
            finding = ENDPOINTS.success("it is ready")
        elif not pod.ready and pod.trouble:
            # The check of the pods reports it.
            finding = ENDPOINTS.unknown("its pod does not run", f"mend {PODS.name} first")
        else:
            remedy = f"kubectl -n {pod.namespace} exec {pod.name} -- claimd doctor"
            finding = ENDPOINTS.failure(pod.answer[1], remedy=remedy)
        findings += _with_node(pod.node, [finding])
    return findings


def _judge_slices(facts: Facts) -> list[Finding]:
    if facts.slices.value is None or facts.pods.value is None:
        lacking = facts.slices if facts.slices.value is None else facts.pods
        return [NODE_SLICES.unknown(lacking.trouble, lacking.how)]

    by_node: dict[str, list[Document]] = {}
    for spec in _specs(facts):
        if spec.get("driver") == facts.driver:
            by_node.setdefault(spec.get("nodeName") or "", []).append(spec)
    pods = {pod.node: pod for pod in facts.pods.value}

    # A claimd that runs has to publish slices.
    failures = []
    for node, pod in sorted(pods.items()):
        if pod.ready and node not in by_node:
            remedy = f"kubectl -n {pod.namespace} exec {pod.name} -- claimd doctor"
            finding = NODE_SLICES.failure(f"there is no slice of {facts.driver}", remedy=remedy)
            failures += _with_node(node, [finding])

    # A pool needs all its slices, and its node needs a claimd that prepares the devices.
    for node, specs in sorted(by_node.items()):
        _, lack = agreement.newest_generation(specs)
        if lack:
            failures += _with_node(node, [NODE_SLICES.failure(lack)])
        if node not in pods:
            left_over = NODE_SLICES.failure(
                "its GPUs are published, and no claimd pod is there to prepare them",
                level=Level.WARNING,
                remedy="if claimd was removed from the node: kubectl delete resourceslices "
                f"--field-selector spec.driver={facts.driver},spec.nodeName={node}",
            )
            failures += _with_node(node, [left_over])
    return failures or [NODE_SLICES.success(f"slices of {len(by_node)} nodes")]


def _judge_classes(facts: Facts) -> Finding:
    if facts.classes.value is None:
        return CLASSES.unknown(facts.classes.trouble, facts.classes.how)

    # A selector is an expression in CEL. One for our devices has the driver's name in it.
    names = []
    for item in facts.classes.value:
        selectors = str((item.get("spec") or {}).get("selectors"))
        if facts.driver in selectors:
            names.append(item["metadata"]["name"])
    if names:
        return CLASSES.success(", ".join(sorted(names)))
    return CLASSES.failure(f"no DeviceClass has a selector that names {facts.driver}")


def _judge_node(facts: Facts, node: api.NodeFacts) -> list[Finding]:
    """Makes those checks of one node that need no access to the node.

    A node without claimd gets no findings.
    """
    if node.name not in {pod.node for pod in facts.pods.value or ()}:
        return []

    of_kubelet = kubelet.Facts(folder="", version=node.kubelet_version)
    of_runtime = runtime.Facts(version=node.runtime_version)
    inventory = _inventory(facts, node.name)
    of_api = api.Facts(
        node=Answer(value=node),
        slices=facts.slices,
        conflicts=api.find_rivals(inventory, _slices_on(facts, node.name), facts.driver),
        kubelet_gates=facts.kubelet_gates.get(node.name, UNASKED),
    )
    return [
        kubelet.judge_version(of_kubelet),
        runtime.judge_version(of_runtime),
        *api.judge_rivals(of_api, inventory),
        *gates.judge_kubelet(of_api.kubelet_gates, of_api.needed),
    ]


def _specs(facts: Facts) -> list[Document]:
    return [slice_["spec"] for slice_ in facts.slices.value or ()]


def _slices_on(facts: Facts, node: str) -> list[Document]:
    slices = []
    for slice_ in facts.slices.value or ():
        if slice_["spec"].get("nodeName") == node:
            slices.append(slice_)
    return slices


def _inventory(facts: Facts, node: str) -> Inventory:
    """Returns the GPUs that a node's slices describe, with name, address and vendor only."""
    gpus = {}
    for slice_ in _slices_on(facts, node):
        spec = slice_["spec"]
        for device in spec.get("devices") or ():
            attributes = device.get("attributes") or {}
            address = attributes.get(f"{STANDARD}pciBusID", {}).get("string")
            if spec.get("driver") == facts.driver and address:
                vendor = attributes.get("vendor", {}).get("string", "")
                gpus[device["name"]] = Gpu(
                    name=device["name"],
                    address=address,
                    vendor=vendor,
                    vendor_id=0,
                    device_id=0,
                    driver="",
                )
    return Inventory.from_unsorted(gpus.values())


# ---------------------------------------------------------------- looking


async def look(server: client.Client, settings: Config) -> Facts:
    """Reads the state of the cluster. A part that may not be read becomes the reason for its
    absence.
    """
    pods = await ask.get(server, "/api/v1/pods", labelSelector=access.SELECTOR)
    nodes = await ask.get(server, "/api/v1/nodes")
    listed: list[Pod] | None = None
    if pods.value is not None:
        items = pods.value.get("items") or ()
        listed = await _ask_endpoints(server, [_read_pod(item) for item in items])

    # Only the kubelets of nodes with claimd are asked for their gates.
    node_facts: list[api.NodeFacts] | None = None
    kubelet_gates: dict[str, Answer] = {}
    if nodes.value is not None:
        node_facts = [api.node_facts(item) for item in nodes.value.get("items") or ()]
        node_names = {node.name for node in node_facts}
        with_claimd = sorted({pod.node for pod in listed or ()} & node_names)
        answers = await _gather([gates.ask_kubelet(server, name) for name in with_claimd])
        kubelet_gates = dict(zip(with_claimd, answers, strict=True))

    return Facts(
        nodes=dataclasses.replace(nodes, value=node_facts),
        pods=dataclasses.replace(pods, value=listed),
        slices=await _list_objects(server, "resourceslices"),
        classes=await _list_objects(server, "deviceclasses"),
        kubelet_gates=kubelet_gates,
        driver=settings.driver_name,
    )


async def _gather(questions: list[Any]) -> list[Any]:
    """Awaits all questions, a few at a time, and returns the answers in their order."""
    turns = asyncio.Semaphore(_MOST_AT_ONCE)

    async def wait_for_turn(question: Any) -> Any:
        async with turns:
            return await question

    return await asyncio.gather(*map(wait_for_turn, questions))


async def _list_objects(server: client.Client, kind: str) -> Answer:
    """Lists objects of the resource API in the best version that is served.

    The specs of slices are returned in the shape of v1.
    """
    answer = Answer()
    for version in PREFERRED:
        answer = await ask.get(server, f"/apis/{GROUP}/{version}/{kind}")
        if answer.value is None:
            continue

        items = answer.value.get("items") or []
        if kind == "resourceslices":
            for item in items:
                item["spec"] = spec_from_wire(item["spec"], version)
        return Answer(value=items)
    return answer


def _read_pod(item: Document) -> Pod:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    conditions = status.get("conditions") or ()
    is_ready = False
    for condition in conditions:
        if condition.get("type") == _READY:
            is_ready = condition.get("status") == "True"
    return Pod(
        namespace=item["metadata"]["namespace"],
        name=item["metadata"]["name"],
        node=spec.get("nodeName") or "",
        account=spec.get("serviceAccountName") or "default",
        address=status.get("podIP") or "",
        port=_endpoint_port(spec),
        ready=is_ready,
        trouble=_pod_trouble(status),
    )


def _endpoint_port(spec: Document) -> str:
    """Returns the port of the endpoint, or "" if it listens to its own pod only.

    The variable of the container decides, and then its list of ports.
    """
    for container in spec.get("containers") or ():
        for variable in container.get("env") or ():
            if variable.get("name") == "CLAIMD_ENDPOINT":
                host, _, port = str(variable.get("value")).rpartition(":")
                return port if port.isdecimal() and host not in ("127.0.0.1", "unix") else ""
        for port in container.get("ports") or ():
            if port.get("name") == "endpoint":
                return str(port.get("containerPort"))
    return ""


def _pod_trouble(status: Document) -> str:
    """Returns why a container waits or has ended, or why no node takes the pod, or ""."""
    for container in status.get("containerStatuses") or ():
        state = container.get("state") or {}
        for kind in ("waiting", "terminated"):
            details = state.get(kind)
            if details:
                return ": ".join(filter(None, (details.get("reason"), details.get("message"))))

    # A pod without a node has no containers yet.
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("message") or condition.get("reason") or "")
    return ""


async def _ask_endpoints(server: client.Client, pods: list[Pod]) -> list[Pod]:
    answers = await _gather([_ask_endpoint(server, pod) for pod in pods])
    pairs = zip(pods, answers, strict=True)
    return [dataclasses.replace(pod, answer=answer) for pod, answer in pairs]


async def _ask_endpoint(server: client.Client, pod: Pod) -> tuple[bool, str] | None:
    """Asks a pod's endpoint whether it is ready. Returns None if it cannot be reached."""
    if not pod.port or not pod.node:
        return None

    # The API server's proxy reaches every pod, but not everybody may use it.
    path = (
        f"/api/v1/namespaces/{quote(pod.namespace, safe='')}"
        f"/pods/{quote(pod.name, safe='')}:{pod.port}/proxy/readyz"
    )
    try:
        await server.request("GET", path, timeout=_SECONDS)
    except errors.ServerError as error:
        # An answer with a reason is a Status of the API server, which did not reach the pod. Any
        # other answer is claimd's own.
        if not error.reason:
            return False, error.message.partition("error: ")[2] or error.message
    except errors.ApiError:
        pass
    else:
        return True, "ok"

    # From a machine in the pods' network the pod's address works as well.
    if not pod.address:
        return None
    host = f"[{pod.address}]" if ":" in pod.address else pod.address
    is_ready, words = await asyncio.to_thread(probe.ask, f"{host}:{pod.port}", "/readyz", _SECONDS)
    if words.startswith("no answer at"):
        return None
    return is_ready, words
