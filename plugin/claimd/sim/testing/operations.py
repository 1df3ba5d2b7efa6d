"""The operations of a test on its cluster: objects, waiting for facts, failing parts.

Answers are plain data. An impossible operation raises Refused, with a message for the test's
author.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from claimd.kubernetes.api import text
from claimd.kubernetes.api.document import Document
from claimd.kubernetes.kube import errors as kube_errors
from claimd_devices import faults

from .. import cluster, daemon, dynamic_client
from ..demo import facts
from ..demo.views import Views
from ..dynamic_client import UnknownKindError
from . import account

READY_WITHIN = 60.0  # seconds until a new cluster must be ready
PHASES = ("Pending", "Running", "Succeeded", "Failed")
_ENDED = ("Succeeded", "Failed")
_SUFFIXES = (".yaml", ".yml", ".json")

CLAIMD, KUBELET, API_SERVER = "claimd", "kubelet", "apiserver"


class Refused(Exception):
    """The operation is impossible or has timed out. The message may have several lines."""


async def wait_until_ready(up: cluster.Cluster) -> None:
    """Waits until every node is ready and every claimd has published. Raises Refused if it takes
    too long.
    """
    async with asyncio.TaskGroup() as group:
        views = Views(up, group)
        try:
            async with views.changes() as changed, asyncio.timeout(READY_WITHIN):
                while waiting := await _not_ready(up, views):
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            lines = [f"not ready after {READY_WITHIN:g} s: {', '.join(waiting)}"]
            lines += account.logs_of_claimd(up)
            raise Refused("\n".join(lines)) from None
        finally:
            views.close()


async def _not_ready(up: cluster.Cluster, views: Views) -> list[str]:
    waiting = set(up.kubelets)
    for node in await views.list("node"):
        conditions = facts.find(node, "status.conditions[type=Ready].status")
        if conditions == ["True"]:
            waiting.discard(node["metadata"]["name"])

    publish = {name for name in up.nodes if _has_gpus(up.nodes[name])}
    for piece in await views.list("resourceslice"):
        publish.discard(piece["spec"].get("nodeName", ""))
    return sorted(waiting | publish)


def _has_gpus(node: cluster.Node) -> bool:
    return any((node.tree / "sys" / "bus" / "pci" / "devices").glob("*"))


class Operations:
    """The operations on a running cluster; `views` are its live copies."""

    def __init__(self, up: cluster.Cluster, views: Views) -> None:
        self._up, self._views, self._kinds = up, views, views.kinds

    async def answer(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Returns the result of an operation. Raises Refused if it is impossible."""
        operation = getattr(self, f"answer_{name}")
        try:
            return await operation(**arguments)
        except (kube_errors.ApiError, UnknownKindError, ValueError, OSError) as error:
            raise Refused(str(error)) from error

    # ---------------------------------------------------------------- objects

    async def answer_apply(
        self, *, namespace: str, path: str = "", content: str = "", objects: Sequence[Any] = ()
    ) -> list[Document]:
        """Applies objects of a file or folder, of YAML text, or as given; namespaces come first."""
        documents = list(objects)
        if path:
            documents += _from_path(Path(path))
        if content:
            documents += _documents(content.encode(), "the text")
        for document in documents:
            if not isinstance(document, dict) or "kind" not in document:
                raise Refused(f"no object of Kubernetes: {facts.format_value(document)}")

        items: list[Document] = []
        for document in documents:
            items += _items(document)
        items.sort(key=lambda item: bool(item["kind"] != "Namespace"))
        return [await self._kinds.apply(item, namespace) for item in items]

    async def answer_get(self, *, what: str, namespace: str) -> Document:
        word, name = _kind_and_name(what)
        kind = await self._kinds.kind_named(word)
        return await self._kinds.get(kind, namespace, name)

    async def answer_list(self, *, kind: str, namespace: str) -> list[Document]:
        return await self._kinds.list(await self._kinds.kind_named(kind), namespace)

    async def answer_delete(self, *, what: str, namespace: str) -> None:
        word, name = _kind_and_name(what)
        await self._kinds.delete(await self._kinds.kind_named(word), namespace, name)

    async def answer_logs(self, *, pod: str, namespace: str, container: str) -> str:
        pods = await self._kinds.kind_named("pod")
        query = {"container": container} if container else {}
        answer = await self._up.client.request(
            "GET", f"{pods.path(namespace, pod)}/log", query=query
        )
        return answer.decode(errors="replace")

    async def answer_exec(
        self, *, pod: str, command: Sequence[str], namespace: str, container: str, timeout: float
    ) -> dict[str, Any]:
        """Returns the output and exit code of a command in a container."""
        if not container:
            obj = await self.answer_get(what=f"pod/{pod}", namespace=namespace)
            container = obj["spec"]["containers"][0]["name"]
        executed = await self._up.execute(namespace, pod, container, command, False, False)
        if executed is None:
            raise Refused(f"container {container} of pod {namespace}/{pod} does not run")
        try:
            async with asyncio.timeout(timeout):
                printed, complained = await asyncio.gather(
                    _all(executed.output()), _all(executed.errors())
                )
                code = await executed.wait()
        except TimeoutError:
            raise Refused(f"{command[0]!r} has not ended within {timeout:g} s") from None
        finally:
            executed.kill()
        return {"code": code, "out": printed, "err": complained}

    # ---------------------------------------------------------------- facts

    async def answer_wait(
        self, *, what: str, until: str | Mapping[str, Any] | None, namespace: str, timeout: float
    ) -> Document | None:
        """Returns the object once it satisfies the expectation, or None once it is gone."""
        word, name = _kind_and_name(what)
        kind = await self._kinds.kind_named(word)
        expected = _parse_expectation(kind.resource == "pods", until)
        found: list[Document] = []
        await self._views.open(word)
        try:
            async with self._views.changes() as changed, asyncio.timeout(timeout):
                while True:
                    changed.clear()
                    # Ask the API server: a live copy may be older than the test's last write.
                    found = await self._find(kind, namespace, name)
                    if not found and until == "gone":
                        return None
                    if found and until != "gone" and _holds(found[0], expected):
                        return found[0]
                    if found and _is_over(found[0], expected):
                        break
                    await changed.wait()
        except TimeoutError:
            pass

        seen = "is still there"
        if until != "gone":
            seen = "; ".join(_failures(found, expected))
        waited = f"waited {timeout:g} s for {what} in vain"
        if found and _is_over(found[0], expected):
            waited = f"{what} has ended"
        lines = [
            f"{waited}: {seen}",
            *await account.describe_objects(self._up, self._views, word, found),
        ]
        raise Refused("\n".join(lines))

    async def _find(self, kind: dynamic_client.Kind, namespace: str, name: str) -> list[Document]:
        """Returns a list with the object, or an empty list."""
        try:
            return [await self._kinds.get(kind, namespace, name)]
        except kube_errors.NotFound:
            return []

    async def answer_describe(self) -> str:
        """Describes unhealthy pods; empty if all are healthy."""
        return "\n".join(await account.describe_unhealthy_pods(self._up, self._views))

    async def answer_explain(self, *, pod: str, namespace: str) -> str:
        return await account.explain(self._up, pod, namespace)

    # ---------------------------------------------------------------- parts that fail

    async def answer_fault(self, *, node: str, fault: str, device: str, value: str) -> None:
        faults.inject(self._claimd_node(node).tree, fault, device, value)

    async def answer_kill(self, *, node: str) -> int:
        """Kills a node's claimd once it runs, and returns its process id."""
        daemon_ = self._claimd_node(node).daemon
        if daemon_.state != daemon.STOPPED:
            await self._wait_until_running(daemon_)
        pid = daemon_.pid
        daemon_.kill()
        return pid

    async def answer_stop(self, *, part: str, node: str) -> None:
        if part == CLAIMD:
            await self._claimd_node(node).daemon.stop()
        elif part == API_SERVER:
            await self._up.api.listener.close()
        else:
            await self._part(part, node).stop()

    async def answer_start(self, *, part: str, node: str) -> None:
        if part == CLAIMD:
            daemon_ = self._claimd_node(node).daemon
            daemon_.start()
            await self._wait_until_running(daemon_)
        elif part == API_SERVER:
            await self._up.api.listener.open()
        else:
            self._part(part, node).start()

    async def _wait_until_running(self, daemon_: daemon.Daemon) -> None:
        try:
            async with self._views.changes() as changed, asyncio.timeout(READY_WITHIN):
                while daemon_.state != daemon.RUNNING:
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            raise Refused(f"claimd does not start again: {daemon_.tail(1)}") from None

    def _claimd_node(self, name: str) -> cluster.Node:
        if name in self._up.nodes:
            return self._up.nodes[name]
        there = ", ".join(self._up.nodes) or "none"
        raise Refused(f"no node {name!r} has claimd; those that have it: {there}")

    def _part(self, part: str, node: str) -> cluster.Part:
        name = f"{part} {node}".strip()
        if name in self._up.parts:
            return self._up.parts[name]
        there = sorted(
            (*self._up.parts, API_SERVER, *(f"{CLAIMD} {name_}" for name_ in self._up.nodes))
        )
        raise Refused(f"no part {name!r}; there are {', '.join(there)}")


async def _all(parts: AsyncIterator[bytes]) -> str:
    return b"".join([part async for part in parts]).decode(errors="replace")


# ---------------------------------------------------------------- objects and logs


def _from_path(path: Path) -> list[Any]:
    if not path.is_dir():
        return _documents(path.read_bytes(), str(path))
    if any((path / name).exists() for name in ("kustomization.yaml", "kustomization.yml")):
        raise Refused(
            f"{path} is a kustomization: run `kubectl apply -k {path}` with the cluster's KUBECONFIG"
        )
    files = sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES)
    if not files:
        raise Refused(f"{path}: no file in it ends with {' or '.join(_SUFFIXES)}")
    documents: list[Any] = []
    for file in files:
        documents += _documents(file.read_bytes(), str(file))
    return documents


def _documents(content: bytes, place: str) -> list[Any]:
    try:
        return text.load_all(content)
    except ValueError as error:
        raise Refused(f"{place} is neither JSON nor YAML: {error}") from error


def _items(document: Document) -> list[Document]:
    if document["kind"] != "List":
        return [document]
    items: list[Document] = document.get("items") or []
    return items


def _kind_and_name(what: str) -> tuple[str, str]:
    word, _, name = what.partition("/")
    if not name:
        raise Refused(f"{what!r}: expected a kind and a name, such as pod/{what}")
    return word, name


# ---------------------------------------------------------------- expectations


def _parse_expectation(is_pod: bool, until: str | Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the expectation as facts. The default for a pod is that it is ready."""
    if isinstance(until, Mapping):
        facts.checks(until)
        return dict(until)
    if until == "gone" or (until is None and not is_pod):
        return {}
    if until is None or (is_pod and until == "Running"):
        return {"status.phase": "Running", "status.conditions[type=Ready].status": "True"}
    if is_pod and until in PHASES:
        return {"status.phase": until}
    expected = "facts such as {'status.phase': 'Running'}, or 'gone'"
    if is_pod:
        expected += f", or of a pod {', '.join(PHASES)}"
    raise Refused(f"until={until!r}: expected {expected}")


def _holds(obj: Document, expected: Mapping[str, Any]) -> bool:
    return all(check.holds(obj) for check in facts.checks(expected))


def _is_over(obj: Document, expected: Mapping[str, Any]) -> bool:
    """Returns True if the pod has ended in an unexpected phase, so that waiting is useless."""
    wanted = expected.get("status.phase")
    phase = (obj.get("status") or {}).get("phase")
    is_pod = obj.get("kind") == "Pod" or "containers" in (obj.get("spec") or {})
    return bool(is_pod and wanted and phase in _ENDED and phase != wanted)


def _failures(found: Sequence[Document], expected: Mapping[str, Any]) -> list[str]:
    if not found:
        return ["there is none"]
    failed = [check for check in facts.checks(expected) if not check.holds(found[0])]
    return [check.describe_failure(found[0]) for check in failed]
