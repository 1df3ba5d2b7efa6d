"""A copy of a cluster that watches keep current: each relevant change is signalled once."""

import asyncio
import contextlib
import json

import pytest

from claimd.kubernetes.kube import auth, client, errors
from claimd.tools.explain import live, pending, sources
from tests.support import apiserver, kubeconfigs
from tests.support.cluster_objects import claim, class_, gpus, name, node, pod, slice_


@pytest.fixture
async def api():
    async with apiserver.serve() as server:
        for document in (class_(), node("node-1"), slice_(gpus(2)), claim(count=2)):
            server.put_document(document)
        yield server


@contextlib.asynccontextmanager
async def watching(api, folder):
    """Yields a function that waits for the next change and returns the beginning of the answer."""
    config = kubeconfigs.write(folder / "kubeconfig", {"server": api.url}, {})
    connection = client.Client(auth.client_config(str(config), folder), agent="test")
    async with live.watch_cluster(connection, sources.Scope(name="claim/train")) as copy:
        first = iter([True])

        async def line():
            if not next(first, False):
                async with asyncio.timeout(30):
                    await copy.wait_for_change()
            objects = copy.objects()
            subject = pending.find_subject(objects, "claim/train", "default")
            return pending.report(objects, subject).line.partition(" nodes ")[0]

        yield line
    await connection.close()


YES, NO = "claim default/train: 1 of 1", "claim default/train: 0 of 1"


async def follow(api):
    """Waits until all collections are watched, so that no list reports a change."""
    await apiserver.until(lambda: len(api.watches) == 10)


async def test_what_changes_is_told(api, tmp_path):
    async with watching(api, tmp_path) as line:
        assert await line() == YES
        api.put_document(claim("other", held=[name(0)]))
        assert await line() == NO
        api.delete("resourceclaims", "other", "default")
        assert await line() == YES


async def test_what_is_not_read_is_no_change(api, tmp_path):
    async with watching(api, tmp_path) as line:
        assert await line() == YES
        beat = node("node-1")
        beat["status"]["nodeInfo"] = {"kernelVersion": "6.9"}
        api.put_document(beat)
        api.put_document(claim("other", held=[name(0)]))
        assert await line() == NO


@pytest.mark.parametrize("forgotten", [False, True])
async def test_a_watch_that_ends_is_taken_up_again(api, tmp_path, forgotten):
    async with watching(api, tmp_path) as line:
        assert await line() == YES
        waiting = asyncio.ensure_future(line())
        await follow(api)
        if forgotten:
            api.expire()
        api.end_watches()
        api.put_document(claim("other", held=[name(0)]))
        assert await waiting == NO


class Cut:
    """A connection whose first watch of pods breaks off after two changes of the pod."""

    def __init__(self):
        self.watched_from = []

    async def request(self, method, path, query=None, timeout=None):
        if path == "/apis/resource.k8s.io":
            return b'{"versions": [{"version": "v1"}]}'
        kind = "PodList" if path == "/api/v1/pods" else "DeviceClassList"
        items = [self.pod(5)] if kind == "PodList" else []
        metadata = {"resourceVersion": "5"}
        return json.dumps(
            {"kind": kind, "apiVersion": "v1", "metadata": metadata, "items": items}
        ).encode()

    async def lines(self, path, query, *, idle):
        if path == "/api/v1/pods":
            self.watched_from.append(query["resourceVersion"])
            if len(self.watched_from) == 1:
                for version, on in ((6, ""), (9, "node-1")):
                    event = {"type": "MODIFIED", "object": self.pod(version, on)}
                    yield json.dumps(event).encode()
                raise errors.Unreachable("cut")
        await asyncio.Event().wait()

    def pod(self, version, on=""):
        pod_ = pod("web", nodeName=on)
        pod_["metadata"]["resourceVersion"] = str(version)
        return pod_


async def test_a_watch_that_breaks_off_does_not_go_back_in_time():
    connection = Cut()
    async with live.watch_cluster(connection, sources.Scope(name="pod/web")) as copy:
        await apiserver.until(lambda: len(connection.watched_from) == 2)
        assert connection.watched_from == ["5", "9"]
        assert [pod_.spec.node_name for pod_ in copy.objects().pods] == ["node-1"]


class Forgetful(Cut):
    """A connection whose first watch of pods starts too late; every other one ends at once."""

    async def lines(self, path, query, *, idle):
        if path != "/api/v1/pods":
            await asyncio.Event().wait()
        self.watched_from.append(query["resourceVersion"])
        if len(self.watched_from) == 1:
            raise errors.Gone("expired")
        for line in ():
            yield line


async def test_a_new_list_is_watched_from_its_own_version():
    connection = Forgetful()
    async with live.watch_cluster(connection, sources.Scope(name="pod/web")):
        await apiserver.until(lambda: len(connection.watched_from) == 2)
        assert connection.watched_from == ["5", "5"]

        # A server that ends each watch at once is not asked in a tight loop.
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(connection.watched_from) < 10


class Damaged(Cut):
    """A connection whose pod cannot be read, in one way and then in another."""

    def __init__(self):
        super().__init__()
        self.next_change = asyncio.Event()

    async def lines(self, path, query, *, idle):
        if path != "/api/v1/pods":
            await asyncio.Event().wait()
        for damage in (1, 2):
            await self.next_change.wait()
            self.next_change.clear()
            broken = self.pod(6) | {"spec": damage}
            yield json.dumps({"type": "MODIFIED", "object": broken}).encode()
        await asyncio.Event().wait()


async def test_another_damage_is_a_change():
    connection = Damaged()
    async with live.watch_cluster(connection, sources.Scope(name="pod/web")) as copy:
        for _ in range(2):
            connection.next_change.set()
            async with asyncio.timeout(30):
                await copy.wait_for_change()
