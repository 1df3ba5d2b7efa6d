"""What can be seen of all nodes from outside of them: `claimd doctor --cluster`.

Everything is read of the API server, and each claimd is asked at its endpoint, through the API
server or, where that may not be, at its pod's address.
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

from . import access, api, ask, gates, kubelet, runtime
from .ask import UNASKED, Answer
from .check import Check, Finding, Level, named

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
    looks_at="the ResourceSlices of our driver, beside the nodes with a claimd pod",
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
    """A pod of claimd's."""

    namespace: str
    name: str
    node: str
    account: str
    address: str = ""
    port: str = ""  # of its endpoint; empty: it has none that can be asked from outside
    ready: bool = False
    trouble: str = ""  # what its container waits for
    # What the endpoint said; None: it could not be asked.
    answer: tuple[bool, str] | None = None


@dataclass(frozen=True, kw_only=True)
class Facts:
    nodes: Answer  # a list of api.NodeFacts
    pods: Answer  # a list of Pod
    slices: Answer  # a list of documents with specs in the shape of v1
    classes: Answer  # a list of documents
    kubelet_gates: Mapping[str, Answer] = field(default_factory=dict)  # by node
    driver: str


def judge(facts: Facts) -> list[Finding]:
    found = [*_pods(facts), *_endpoints(facts), *_slices(facts), _classes(facts)]
    for node in facts.nodes.value or ():
        found += _on(node.name, _of_node(facts, node))
    return found


def _on(node: str, findings: Sequence[Finding]) -> list[Finding]:
    return [dataclasses.replace(named(finding, node), node=node) for finding in findings]


def _pods(facts: Facts) -> list[Finding]:
    pods: list[Pod] | None = facts.pods.value
    if pods is None:
        return [PODS.unseen(facts.pods.trouble, facts.pods.how)]
    if not pods:
        return [
            PODS.failed(
                f"the cluster has no pod with the label {access.SELECTOR}",
                remedy="install claimd: kubectl apply -k deploy/base (docs/install.md)",
            )
        ]
    found = []
    for pod in pods:
        if pod.ready:
            continue
        seen = f"pod {pod.namespace}/{pod.name} is not ready"
        if pod.trouble:
            seen = f"{seen}: {pod.trouble}"
        remedy = PODS.remedy.replace("NAMESPACE", pod.namespace).replace("POD", pod.name)
        found += _on(pod.node, [PODS.failed(seen, remedy=remedy)])
    return found or [PODS.well(f"{len(pods)} pods are ready")]


def _endpoints(facts: Facts) -> list[Finding]:
    found = []
    for pod in facts.pods.value or ():
        how = f"kubectl -n {pod.namespace} exec {pod.name} -- claimd probe ready"
        if not pod.port:
            finding = ENDPOINTS.unseen("its endpoint is nothing that can be asked from here", how)
        elif pod.answer is None:
            finding = ENDPOINTS.unseen("it could not be asked from here", how)
        elif pod.answer[0]:
            finding = ENDPOINTS.well("it is ready")
        elif not pod.ready and pod.trouble:
            # That it does not run is told already.
            finding = ENDPOINTS.unseen("its pod does not run", f"mend {PODS.name} first")
        else:
            remedy = f"kubectl -n {pod.namespace} exec {pod.name} -- claimd doctor"
            finding = ENDPOINTS.failed(pod.answer[1], remedy=remedy)
        found += _on(pod.node, [finding])
    return found


def _slices(facts: Facts) -> list[Finding]:
    if facts.slices.value is None or facts.pods.value is None:
        lacking = facts.slices if facts.slices.value is None else facts.pods
        return [NODE_SLICES.unseen(lacking.trouble, lacking.how)]

    by_node: dict[str, list[Document]] = {}
    for spec in _specs(facts):
        if spec.get("driver") == facts.driver:
            by_node.setdefault(spec.get("nodeName") or "", []).append(spec)
    pods = {pod.node: pod for pod in facts.pods.value}

    found = []
    for node, pod in sorted(pods.items()):
        if pod.ready and node not in by_node:
            remedy = f"kubectl -n {pod.namespace} exec {pod.name} -- claimd doctor"
            finding = NODE_SLICES.failed(f"there is no slice of {facts.driver}", remedy=remedy)
            found += _on(node, [finding])
    for node, specs in sorted(by_node.items()):
        lack = _lack(specs)
        if lack:
            found += _on(node, [NODE_SLICES.failed(lack)])
        if node not in pods:
            left_over = NODE_SLICES.failed(
                "its GPUs are published, and no claimd pod is there to prepare them",
                level=Level.WARNING,
                remedy="if claimd was removed from the node: kubectl delete resourceslices "
                f"--field-selector spec.driver={facts.driver},spec.nodeName={node}",
            )
            found += _on(node, [left_over])
    return found or [NODE_SLICES.well(f"slices of {len(by_node)} nodes")]


def _lack(specs: Sequence[Document]) -> str:
    """What the newest generation of a pool lacks; empty if it is whole."""
    generation = max(spec["pool"].get("generation", 0) for spec in specs)
    newest = [spec for spec in specs if spec["pool"].get("generation", 0) == generation]
    count = max(spec["pool"].get("resourceSliceCount", 0) for spec in newest)
    if len(newest) >= count:
        return ""
    return f"the pool has {len(newest)} of {count} slices: no scheduler takes a device of it"


def _classes(facts: Facts) -> Finding:
    if facts.classes.value is None:
        return CLASSES.unseen(facts.classes.trouble, facts.classes.how)
    names = [
        item["metadata"]["name"]
        for item in facts.classes.value
        if facts.driver in str((item.get("spec") or {}).get("selectors"))
    ]
    if names:
        return CLASSES.well(", ".join(sorted(names)))
    return CLASSES.failed(f"no DeviceClass has a selector that names {facts.driver}")


def _of_node(facts: Facts, node: api.NodeFacts) -> list[Finding]:
    """What the node's own doctor says as well, of a node that has claimd."""
    if node.name not in {pod.node for pod in facts.pods.value or ()}:
        return []
    of_kubelet = kubelet.Facts(folder="", version=node.kubelet_version)
    of_runtime = runtime.Facts(version=node.runtime_version)
    inventory = _inventory(facts, node.name)
    of_api = api.Facts(
        node=Answer(value=node),
        slices=facts.slices,
        conflicts=api.conflicts_of(inventory, _slices_of(facts, node.name), facts.driver),
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


def _slices_of(facts: Facts, node: str) -> list[Document]:
    return [slice_ for slice_ in facts.slices.value or () if slice_["spec"].get("nodeName") == node]


def _inventory(facts: Facts, node: str) -> Inventory:
    """The GPUs of a node as far as its slices tell of them: name, address and vendor."""
    gpus = {}
    for spec in (slice_["spec"] for slice_ in _slices_of(facts, node)):
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
    return Inventory.of(gpus.values())


# ---------------------------------------------------------------- looking


async def look(server: client.Client, settings: Config) -> Facts:
    """Reads what there is; what may not be read is left out, with the reason."""
    pods = await ask.get(server, "/api/v1/pods", labelSelector=access.SELECTOR)
    nodes = await ask.get(server, "/api/v1/nodes")
    listed: list[Pod] | None = None
    if pods.value is not None:
        listed = await _asked(server, [_pod(item) for item in pods.value.get("items") or ()])

    node_facts: list[api.NodeFacts] | None = None
    kubelet_gates: dict[str, Answer] = {}
    if nodes.value is not None:
        node_facts = [api.node_facts(item) for item in nodes.value.get("items") or ()]
        with_claimd = sorted(
            {pod.node for pod in listed or ()} & {node.name for node in node_facts}
        )
        answers = await _at_once([gates.of_kubelet(server, name) for name in with_claimd])
        kubelet_gates = dict(zip(with_claimd, answers, strict=True))

    return Facts(
        nodes=dataclasses.replace(nodes, value=node_facts),
        pods=dataclasses.replace(pods, value=listed),
        slices=await _listed(server, "resourceslices"),
        classes=await _listed(server, "deviceclasses"),
        kubelet_gates=kubelet_gates,
        driver=settings.driver_name,
    )


async def _at_once(questions: list[Any]) -> list[Any]:
    """All answers, in their order; a few are asked at a time."""
    turns = asyncio.Semaphore(_MOST_AT_ONCE)

    async def one(question: Any) -> Any:
        async with turns:
            return await question

    return await asyncio.gather(*map(one, questions))


async def _listed(server: client.Client, kind: str) -> Answer:
    """Objects of the resource API, in the best version that is served; specs of slices as v1 has them."""
    answer = Answer()
    for version in PREFERRED:
        answer = await ask.get(server, f"/apis/{GROUP}/{version}/{kind}")
        if answer.value is not None:
            items = answer.value.get("items") or []
            if kind == "resourceslices":
                items = [item | {"spec": spec_from_wire(item["spec"], version)} for item in items]
            return Answer(value=items)
    return answer


def _pod(item: Document) -> Pod:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    conditions = status.get("conditions") or ()
    ready = any(c.get("type") == _READY and c.get("status") == "True" for c in conditions)
    return Pod(
        namespace=item["metadata"]["namespace"],
        name=item["metadata"]["name"],
        node=spec.get("nodeName") or "",
        account=spec.get("serviceAccountName") or "default",
        address=status.get("podIP") or "",
        port=_port(spec),
        ready=ready,
        trouble=_trouble(status),
    )


def _port(spec: Document) -> str:
    """Of the endpoint, as the container's variable or its ports tell it."""
    for container in spec.get("containers") or ():
        for variable in container.get("env") or ():
            if variable.get("name") == "CLAIMD_ENDPOINT":
                host, _, port = str(variable.get("value")).rpartition(":")
                return port if port.isdecimal() and host not in ("127.0.0.1", "unix") else ""
        for port in container.get("ports") or ():
            if port.get("name") == "endpoint":
                return str(port.get("containerPort"))
    return ""


def _trouble(status: Document) -> str:
    """What a container waits for or ended with, or why no node takes the pod."""
    for container in status.get("containerStatuses") or ():
        state = container.get("state") or {}
        for kind in ("waiting", "terminated"):
            told = state.get(kind)
            if told:
                return ": ".join(filter(None, (told.get("reason"), told.get("message"))))
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("message") or condition.get("reason") or "")
    return ""


async def _asked(server: client.Client, pods: list[Pod]) -> list[Pod]:
    answers = await _at_once([_ask(server, pod) for pod in pods])
    return [
        dataclasses.replace(pod, answer=answer) for pod, answer in zip(pods, answers, strict=True)
    ]


async def _ask(server: client.Client, pod: Pod) -> tuple[bool, str] | None:
    """What the endpoint says: through the API server, or at the pod's address."""
    if not pod.port or not pod.node:
        return None
    path = (
        f"/api/v1/namespaces/{quote(pod.namespace, safe='')}"
        f"/pods/{quote(pod.name, safe='')}:{pod.port}/proxy/readyz"
    )
    try:
        await server.request("GET", path, timeout=_SECONDS)
    except errors.ServerError as error:
        # A Status is the API server's, which did not get through; anything else is claimd's word.
        if not error.reason:
            return False, error.message.partition("error: ")[2] or error.message
    except errors.ApiError:
        pass
    else:
        return True, "ok"

    if not pod.address:
        return None
    host = f"[{pod.address}]" if ":" in pod.address else pod.address
    is_ready, words = await asyncio.to_thread(probe.ask, f"{host}:{pod.port}", "/readyz", _SECONDS)
    if words.startswith("no answer at"):
        return None
    return is_ready, words
