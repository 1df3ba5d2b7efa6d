import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading

import grpc
import pytest

from claimd.common import errors, names
from claimd.kubernetes.kubelet_api.pluginregistration.v1 import api_pb2, api_pb2_grpc
from claimd.node.kubelet import server


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
    serving = await server.listen(path, add)
    assert await ask(path) == "me"
    assert path.stat().st_mode & 0o777 == 0o600, "root's alone"
    await serving.stop(0)
    assert os.listdir(path.parent) == []


async def test_a_stale_socket_is_replaced(tmp_path):
    path = tmp_path / "x.sock"
    stale(path)
    serving = await server.listen(path, add)
    assert await ask(path) == "me"
    await serving.stop(0)


async def test_a_file_in_its_place_makes_room(tmp_path):
    path = tmp_path / "x.sock"
    path.write_text("somebody copied a folder")
    serving = await server.listen(path, add)
    assert await ask(path) == "me"
    await serving.stop(0)


async def test_a_start_that_is_cancelled_leaves_nothing(tmp_path):
    starting = asyncio.create_task(server.listen(tmp_path / "x.sock", add))
    await asyncio.sleep(0)
    assert os.listdir(tmp_path) == ["x.sock"]
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert os.listdir(tmp_path) == []


async def test_at_its_end_it_is_not_made_anew(tmp_path):
    path = tmp_path / "x.sock"
    async with server.Socket(path, add, 0.1) as kept:
        pass
    await kept.mend()
    assert not path.exists()


async def test_an_end_waits_for_a_socket_that_is_being_made_anew(tmp_path):
    path = tmp_path / "x.sock"
    async with server.Socket(path, add, 0.1) as kept:
        path.unlink()
        mending = asyncio.create_task(kept.mend())
        await asyncio.sleep(0)
    await mending
    assert not await kept.mend()
    assert not path.exists()


async def test_a_live_one_is_never_stolen(tmp_path):
    path = tmp_path / "x.sock"
    serving = await server.listen(path, add)
    with pytest.raises(errors.Fatal, match="somebody serves .*x.sock already"):
        await server.listen(path, add)
    assert await ask(path) == "me"
    await serving.stop(0)


async def test_a_folder_that_cannot_be_says_so(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(errors.Fatal, match="cannot make room for the socket"):
        await server.listen(tmp_path / "file" / "x.sock", add)


# Serves at each path that it is told, until the next line, or says why not.
RIVAL = """
    import asyncio, sys
    from pathlib import Path
    from claimd.common import errors
    from claimd.node.kubelet import server
    async def main():
        print("ready", flush=True)
        for line in sys.stdin:
            try:
                async with server.Socket(Path(line.strip()), lambda made: None, 0):
                    print("serves", flush=True)
                    sys.stdin.readline()
            except errors.Fatal as fatal:
                print(fatal, flush=True)
                sys.stdin.readline()
    asyncio.run(main())
"""


@contextlib.contextmanager
def rival():
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(RIVAL)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            process.stdout.readline()
            yield process
        finally:
            process.kill()


async def test_what_another_instance_makes_just_now_is_not_swept(tmp_path, monkeypatch):
    """Between bind and listen it refuses, as a dead one does. Here that takes a while."""
    path = tmp_path / "x.sock"
    sweeping = threading.Thread(target=server.sweep, args=(tmp_path, lambda name: True))
    make, seen = grpc.aio.server, []

    def make_slow(**options):
        grpc_server = make(**options)
        listen = grpc_server.add_insecure_port

        def bind_and_listen(address):
            stale(path)
            sweeping.start()
            sweeping.join(0.1)
            seen.append(path.exists())
            path.unlink(missing_ok=True)
            return listen(address)

        grpc_server.add_insecure_port = bind_and_listen
        return grpc_server

    monkeypatch.setattr(grpc.aio, "server", make_slow)
    async with server.Socket(path, add, 0):
        await asyncio.to_thread(sweeping.join)
        assert seen == [True]
        assert await ask(path) == "me"


async def test_of_two_that_start_at_once_one_serves_and_the_other_says_why_not(tmp_path):
    with rival() as first, rival() as second:
        for index in range(100):
            path = tmp_path / f"{index}.sock"
            for each in (first, second):
                print(path, file=each.stdin, flush=True)
            said = {each.stdout.readline().split(" /")[0].strip() for each in (first, second)}
            assert said == {"serves", "somebody serves"}
            assert server.is_alive(path)
            for each in (first, second):
                print(file=each.stdin, flush=True)


async def test_one_that_stands_still_in_the_lock_holds_nobody_up(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "LOCK_PATIENCE", 0.05)
    with server._lock_folder(tmp_path):
        stale(tmp_path / "x.sock")
        server.sweep(tmp_path, lambda name: True)
        assert os.listdir(tmp_path) == []
        async with server.Socket(tmp_path / "x.sock", add, 0):
            assert await ask(tmp_path / "x.sock") == "me"


async def test_sweep_takes_only_dead_sockets_that_are_ours(tmp_path):
    live = tmp_path / "dra.sock"
    serving = await server.listen(live, add)
    dead = tmp_path / "dra-0b9b1c5e-6f0a-4d55-8e7f-0123456789ab.sock"
    theirs = tmp_path / "other.sock"
    stale(dead)
    stale(theirs)
    server.sweep(tmp_path, names.is_dra_socket)
    assert (live.exists(), dead.exists(), theirs.exists()) == (True, False, True)
    server.sweep(tmp_path / "none", names.is_dra_socket)
    await serving.stop(0)


def test_a_doubt_leaves_a_socket_alone(tmp_path):
    path = tmp_path / "full.sock"
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as bound:
        busy.bind(str(path))
        busy.listen(0)
        bound.connect(str(path))
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
        inode = path.stat().st_ino
        await kept.mend()
        assert path.stat().st_ino == inode, "what is there is left alone"
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


async def test_a_mistake_of_ours_is_not_taken_for_a_path_that_cannot_be_used(tmp_path):
    """To try it again would repeat it. The task of the socket ends with it, and so does claimd."""
    path, services = tmp_path / "x.sock", [add]

    def add_once(grpc_server):
        services.pop()(grpc_server)

    async with server.Socket(path, add_once, 0.1) as kept:
        path.unlink()
        with pytest.raises(IndexError):
            await kept.mend()


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
    serving = await server.listen(
        path,
        lambda grpc_server: api_pb2_grpc.add_RegistrationServicer_to_server(crowded, grpc_server),
    )
    # Channels of one pool would share the connection.
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with (
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
    await serving.stop(0)


def test_grpc_knows_the_experiment_that_we_turn_off():
    """An update of gRPC may drop it, and says so on standard error, in the middle of the log."""
    script = """
        import asyncio
        from claimd.node.kubelet import server
        async def main():
            serving = await server.listen(Path(sys.argv[1]), lambda grpc_server: None)
            await serving.stop(0)
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
