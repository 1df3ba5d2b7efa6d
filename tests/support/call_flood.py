"""A client that calls the plugin as the kubelet does, with thousands of calls at once.

`running` starts it as a separate process. Each channel is a connection. The client sends all calls
of a round before it waits for the first answer. When all have ended, the next round begins, until
the test ends the process.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc

from claimd.kubernetes.kubelet_api.dra.v1 import api_pb2 as v1
from claimd.kubernetes.kubelet_api.dra.v1 import api_pb2_grpc as v1_grpc

# Seconds for one call: how long a row of thousands takes is not what a test is about.
PATIENCE = 500.0


class Flood:
    """A flood of calls that is under way."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def end(self) -> dict[str, int]:
        """Waits for the calls under way; returns how many ended with each code or "answered"."""
        said, _ = self._process.communicate()
        assert self._process.returncode == 0
        counts: dict[str, int] = json.loads(said)
        return counts


@contextlib.contextmanager
def running(
    endpoint: str | Path, names: Sequence[str], *, calls: int, channels: int
) -> Iterator[Flood]:
    """Prepares, and unprepares as often, for claims of the names in the namespace default.

    `calls` is how many are made at once by each channel; a name of which there are fewer than calls
    is asked for again. When the block begins, the first calls of each channel were sent.
    """
    command = [
        sys.executable,
        "-m",
        "tests.support.call_flood",
        str(endpoint),
        str(calls),
        str(channels),
    ]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(list(names)) + "\n")
        process.stdin.flush()
        assert process.stdout.readline() == "up\n"
        try:
            yield Flood(process)
        finally:
            process.kill()


async def main(endpoint: str, calls: int, channels: int, names: list[str]) -> None:
    """Calls until the other end of the standard input is closed."""
    # Channels of one pool would share a connection.
    options = [("grpc.use_local_subchannel_pool", 1)]
    counts: collections.Counter[str] = collections.Counter()
    async with contextlib.AsyncExitStack() as stack:
        stubs = []
        for _ in range(channels):
            channel = grpc.aio.insecure_channel(f"unix:{endpoint}", options=options)
            stubs.append(v1_grpc.DRAPluginStub(await stack.enter_async_context(channel)))

        up = False
        while not select.select([sys.stdin], [], [], 0)[0]:
            under_way = []
            for stub in stubs:
                for number in range(calls):
                    under_way.append(_call(stub, names[number // 2 % len(names)], number % 2 == 0))
                    # Now and then it is sent, or the last would wait for the making of all.
                    if number % 100 == 0:
                        await asyncio.sleep(0)
            if not up:
                print("up", flush=True)
                up = True
            counts.update(await asyncio.gather(*map(_end, under_way)))
    print(json.dumps(counts))


def _call(stub: Any, name: str, prepares: bool) -> Any:
    claim = v1.Claim(namespace="default", name=name, uid=f"uid-{name}")
    if prepares:
        request = v1.NodePrepareResourcesRequest(claims=[claim])
        return stub.NodePrepareResources(request, timeout=PATIENCE)
    back = v1.NodeUnprepareResourcesRequest(claims=[claim])
    return stub.NodeUnprepareResources(back, timeout=PATIENCE)


async def _end(call: Any) -> str:
    """Returns how the call ended; an answer has an entry for the one claim."""
    try:
        response = await call
    except grpc.aio.AioRpcError as error:
        return error.code().name
    except asyncio.CancelledError:
        return "cancelled here"
    (answer,) = response.claims.values()
    if "ask again" in answer.error:
        return "busy"
    return "answered"


if __name__ == "__main__":
    asyncio.run(
        main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.stdin.readline()))
    )
