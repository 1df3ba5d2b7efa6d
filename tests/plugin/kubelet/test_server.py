import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap

import grpc
import pytest

from plugin import errors, names
from plugin.kubelet import server
from plugin.kubelet.wire.pluginregistration.v1 import api_pb2, api_pb2_grpc


class Registration(api_pb2_grpc.RegistrationServicer):
    async def GetInfo(self, request, context):
        return api_pb2.PluginInfo(name="me")


def add(grpc_server):
    api_pb2_grpc.add_RegistrationServicer_to_server(Registration(), grpc_server)


async def ask(path):
    async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
        return (
            await api_pb2_grpc.RegistrationStub(channel).GetInfo(api_pb2.InfoRequest(), timeout=5)
        ).name


def stale(path):
    """A socket whose owner died without a word."""
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    assert path.is_socket()


async def test_serves_and_goes_without_a_trace(tmp_path):
    path = tmp_path / "a" / "x.sock"
    async with server.Socket(path, add, 0):
        assert await ask(path) == "me"
        assert path.stat().st_mode & 0o777 == 0o600, "root's alone"
    assert os.listdir(path.parent) == []


async def test_a_socket_that_is_seen_can_be_dialled(tmp_path):
    """A kubelet dials at the event of its creation; another instance sweeps what refuses."""
    script = """
        import errno, socket, sys
        for path in sys.argv[1:]:
            result = errno.ENOENT
            while result == errno.ENOENT:
                with socket.socket(socket.AF_UNIX) as caller:
                    result = caller.connect_ex(path)
            print(result, flush=True)
    """
    paths = [tmp_path / f"{index}.sock" for index in range(50)]
    impatient = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(script), *map(str, paths), stdout=subprocess.PIPE
    )
    try:
        for path in paths:
            async with server.Socket(path, add, 0):
                assert await impatient.stdout.readline() == b"0\n", "somebody listens"
    finally:
        impatient.kill()
        await impatient.wait()


async def test_a_stale_socket_is_replaced(tmp_path):
    path = tmp_path / "x.sock"
    stale(path)
    async with server.Socket(path, add, 0):
        assert await ask(path) == "me"


async def test_a_file_in_its_place_makes_room(tmp_path):
    path = tmp_path / "x.sock"
    path.write_text("somebody copied a folder")
    async with server.Socket(path, add, 0):
        assert await ask(path) == "me"


async def test_what_a_death_left_before_it_was_seen_makes_room(tmp_path):
    path = tmp_path / "x.sock"
    stale(tmp_path / ".x")
    async with server.Socket(path, add, 0):
        assert os.listdir(tmp_path) == ["x.sock"]
        assert await ask(path) == "me"


async def test_a_start_that_fails_leaves_nothing(tmp_path):
    path = tmp_path / "x.sock"
    path.mkdir()
    with pytest.raises(errors.Fatal, match="cannot listen on .*x.sock.*directory"):
        async with server.Socket(path, add, 0):
            pass
    assert os.listdir(tmp_path) == ["x.sock"]


async def test_what_somebody_else_serves_by_then_stays_at_the_end(tmp_path):
    path = tmp_path / "x.sock"
    async with server.Socket(path, add, 0):
        path.unlink()
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(path))
    assert path.is_socket()


async def test_at_its_end_it_is_not_made_anew(tmp_path):
    path = tmp_path / "x.sock"
    async with server.Socket(path, add, 0.1) as kept:
        pass
    await kept.mend()
    assert not path.exists()


async def test_a_live_one_is_never_stolen(tmp_path):
    path = tmp_path / "x.sock"
    async with server.Socket(path, add, 0):
        with pytest.raises(errors.Fatal, match="somebody serves .*x.sock already"):
            async with server.Socket(path, add, 0):
                pass
        assert await ask(path) == "me"


async def test_a_folder_that_cannot_be_says_so(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(errors.Fatal, match="cannot make room for the socket"):
        async with server.Socket(tmp_path / "file" / "x.sock", add, 0):
            pass


async def test_sweep_takes_only_dead_sockets_that_are_ours(tmp_path):
    live = tmp_path / "dra.sock"
    dead = tmp_path / "dra-0b9b1c5e-6f0a-4d55-8e7f-0123456789ab.sock"
    theirs = tmp_path / "other.sock"
    stale(dead)
    stale(theirs)
    async with server.Socket(live, add, 0):
        server.sweep(tmp_path, names.is_dra_socket)
        assert (live.exists(), dead.exists(), theirs.exists()) == (True, False, True)
    server.sweep(tmp_path / "none", names.is_dra_socket)


def test_a_doubt_leaves_a_socket_alone(tmp_path):
    path = tmp_path / "full.sock"
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as one:
        busy.bind(str(path))
        busy.listen(0)
        one.connect(str(path))
        assert server.is_alive(path), "its queue is full, but somebody is there"
    assert not server.is_alive(path)


@pytest.mark.parametrize("how", ["deleted", "deleted with its folder", "another in its place"])
async def test_a_socket_that_was_taken_away_is_made_anew(tmp_path, how):
    path = tmp_path / "folder" / "x.sock"
    async with server.Socket(path, add, 0.1) as kept:
        await kept.mend()
        if how == "deleted with its folder":
            shutil.rmtree(path.parent)
        else:
            path.unlink()
            if how == "another in its place":
                stale(path)
        await kept.mend()
        assert await ask(path) == "me"
        made = path.stat().st_ino
        await kept.mend()
        assert path.stat().st_ino == made, "what is there is left alone"
    assert not path.exists()


async def test_a_socket_that_cannot_be_made_anew_is_tried_again(tmp_path, caplog):
    path = tmp_path / "folder" / "x.sock"
    async with server.Socket(path, add, 0.1) as kept:
        shutil.rmtree(path.parent)
        path.parent.touch()
        await kept.mend()
        await kept.mend()
        assert caplog.text.count("cannot make room") == 1
        path.parent.unlink()
        await kept.mend()
        assert await ask(path) == "me"


class Crowded(api_pb2_grpc.RegistrationServicer):
    """Whoever says who it is, is answered at once; the others wait for the gate."""

    def __init__(self):
        self.gate = asyncio.Event()
        self.waiting = self.most = 0

    async def GetInfo(self, request, context):
        if ("who", "the kubelet") not in tuple(context.invocation_metadata()):
            self.waiting += 1
            self.most = max(self.most, self.waiting)
            await self.gate.wait()
            self.waiting -= 1
        return api_pb2.PluginInfo(name="me")


async def test_thousands_of_calls_on_one_connection_are_answered_and_stand_before_nobody(tmp_path):
    path = tmp_path / "x.sock"
    crowded = Crowded()
    # Channels of one pool would share the connection.
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with (
        server.Socket(
            path, lambda made: api_pb2_grpc.add_RegistrationServicer_to_server(crowded, made), 0
        ),
        grpc.aio.insecure_channel(f"unix:{path}", options=options) as flooding,
        grpc.aio.insecure_channel(f"unix:{path}", options=options) as other,
    ):
        request = api_pb2.InfoRequest()
        stub = api_pb2_grpc.RegistrationStub(flooding)
        calls = [stub.GetInfo(request, timeout=300) for _ in range(2000)]
        async with asyncio.timeout(60):
            while crowded.waiting < server.MOST_CALLS_A_CONNECTION:
                await asyncio.sleep(0.01)

        for _ in range(20):
            await api_pb2_grpc.RegistrationStub(other).GetInfo(
                request, timeout=30, metadata=[("who", "the kubelet")]
            )
        assert crowded.waiting == server.MOST_CALLS_A_CONNECTION, "the others wait at the client"

        crowded.gate.set()
        assert {info.name for info in await asyncio.gather(*calls)} == {"me"}
    assert crowded.most == server.MOST_CALLS_A_CONNECTION


def test_grpc_knows_the_experiment_that_we_turn_off():
    """An update of gRPC may drop it, and says so on standard error, in the middle of the log."""
    script = """
        import asyncio
        from plugin.kubelet import server
        async def main():
            async with server.Socket(Path(sys.argv[1]), lambda grpc_server: None, 0):
                pass
        asyncio.run(main())
    """
    imports = "import sys\nfrom pathlib import Path\n"
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", imports + textwrap.dedent(script), f"{folder}/x.sock"],
            capture_output=True,
            text=True,
            check=True,
        )
    assert (done.stdout, done.stderr) == ("", "")
    assert os.environ["GRPC_EXPERIMENTS"] == "-event_engine_listener"
