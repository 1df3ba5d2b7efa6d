"""The registration of plugins: accepted, refused, retried and forgotten ones."""

import asyncio
import contextlib
import tempfile
from pathlib import Path

import pytest

from claimd.node.kubelet import registration
from claimd.sim.kubelet.plugins import PluginRegistry
from tests.support import sockets
from tests.support.sim_node import QUICK, until

V1, BETA, HEALTH = "v1.DRAPlugin", "v1beta1.DRAPlugin", "v1alpha1.DRAResourceHealth"


class World:
    def __init__(self, folder):
        self.folder, self.lost, self.watched = folder, [], []
        self.plugins = PluginRegistry(
            folder / "plugins_registry", QUICK, wipe=self._lost, watch_health=self._watch
        )

    async def _lost(self, driver):
        self.lost.append(driver)

    async def _watch(self, instance):
        self.watched.append(instance.health)
        await asyncio.Event().wait()

    @contextlib.asynccontextmanager
    async def offer(
        self, name="d-reg.sock", driver="d.example.com", services=(V1, BETA), endpoint=None
    ):
        """Serves a registration socket; without a named endpoint, the same socket is the endpoint."""
        path = self.folder / "plugins_registry" / name
        servicer = registration.Registration(
            driver, endpoint or path, tuple(services), lambda: None
        )
        async with sockets.serving(path, lambda server: registration.add_to(server, servicer)):
            yield servicer

    def known(self, driver="d.example.com"):
        return [each.version for each in self.plugins.plugins.get(driver, ())]


@pytest.fixture
async def world():
    with tempfile.TemporaryDirectory(prefix="r-") as folder:
        new_world = World(Path(folder))
        running = asyncio.create_task(new_world.plugins.run())
        yield new_world
        # A cancellation that meets the end of a call can be lost in gRPC.
        while not running.done():
            running.cancel()
            await asyncio.wait([running], timeout=1)


@pytest.mark.parametrize(
    ("services", "version", "health"),
    [
        ((V1, BETA, HEALTH), V1, HEALTH),
        ((BETA, V1), BETA, None),
        ((BETA,), BETA, None),
        (("v2.DRAPlugin", V1, HEALTH, "v1.DRAResourceHealth"), V1, "v1.DRAResourceHealth"),
    ],
)
async def test_the_first_version_that_both_know(world, services, version, health):
    async with world.offer(services=services) as offered:
        await until(lambda: not offered.last_seen)
        assert world.known() == [version]
        assert world.watched == ([health] if health else [])


@pytest.mark.parametrize(
    ("offer", "reason"),
    [
        ({"services": ("1.0.0",)}, "none of the services 1.0.0 is known here"),
        ({"services": ()}, "(no service at all)"),
        ({"driver": "Not_A.Name"}, "'Not_A.Name' is no driver name"),
        ({"driver": "d" * 64}, "is no driver name"),
        ({"endpoint": "relative.sock"}, "the endpoint 'relative.sock' is no absolute path"),
    ],
)
async def test_what_is_refused_and_told_so(world, offer, reason):
    async with world.offer(**offer) as offered:
        await until(lambda: "refused us" in offered.last_seen)
        assert reason in offered.last_seen
        assert not any(world.plugins.plugins.values())


async def test_a_second_plugin_with_the_endpoint_of_the_first(world):
    async with world.offer("a.sock", endpoint="/tmp/e") as first:
        await until(lambda: not first.last_seen)
        async with world.offer("b.sock", endpoint="/tmp/e") as two:
            await until(lambda: "endpoint /tmp/e is already registered" in two.last_seen)
            assert len(world.known()) == 1
        async with world.offer("c.sock", endpoint="/tmp/f") as three:
            await until(lambda: not three.last_seen)
            assert world.plugins.get("d.example.com").endpoint == "/tmp/f"


async def test_the_connected_one_is_called_although_it_is_older(world):
    async with world.offer("a.sock") as first:
        await until(lambda: world.known() and world.plugins.get("d.example.com").connected)
        async with world.offer("b.sock", endpoint="/tmp/nobody-listens-here.sock") as two:
            await until(lambda: not two.last_seen)
            assert world.plugins.get("d.example.com").socket.name == "a.sock"
        assert not first.last_seen


async def test_a_socket_made_anew_is_another_plugin(world):
    async with world.offer(services=(V1,)) as first:
        await until(lambda: not first.last_seen)
    async with world.offer(services=(BETA,)) as two:
        await until(lambda: not two.last_seen)
        await until(lambda: world.known() == [BETA])
    assert not world.lost


async def test_a_driver_that_is_away_for_the_grace_is_lost(world):
    async with world.offer() as offered:
        await until(lambda: not offered.last_seen)
        assert world.plugins.get("d.example.com")
    await until(lambda: world.lost == ["d.example.com"])
    with pytest.raises(LookupError, match="DRA driver d.example.com is not registered"):
        world.plugins.get("d.example.com")


async def test_hidden_sockets_and_files_are_none_and_folders_are_looked_into(world):
    (world.folder / "plugins_registry" / "sub").mkdir(parents=True)
    (world.folder / "plugins_registry" / "a-file.sock").write_text("")
    async with world.offer(".hidden.sock") as hidden, world.offer("sub/seen.sock") as seen:
        await until(lambda: not seen.last_seen)
        assert hidden.last_seen == "the kubelet has not asked yet"


async def test_a_plugin_that_does_not_answer_at_first(world):
    """Its socket exists before its server listens."""
    path = world.folder / "plugins_registry" / "d-reg.sock"
    path.parent.mkdir(parents=True, exist_ok=True)
    server = await asyncio.start_unix_server(lambda r, w: w.close(), path)
    async with server:
        await until(lambda: path in world.plugins._registrations)
        assert not world.known()
    path.unlink(missing_ok=True)
    async with world.offer() as offered:
        await until(lambda: not offered.last_seen)
