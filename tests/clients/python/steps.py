"""What each client does, and how it says that it did: a line for each step, once it is checked."""

import asyncio
import time

MAPS = ["a", "b", "c", "d", "e"]
SECONDS = 20


def done(step):
    print(step, flush=True)


def map_(name, **data):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default", "labels": {"for": "steps"}},
        "data": data,
    }


def dependent(name, owner, uid):
    """A config map that goes with another one."""
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": owner,
        "uid": uid,
        "blockOwnerDeletion": True,
    }
    document = map_(name)
    return document | {"metadata": document["metadata"] | {"ownerReferences": [reference]}}


def wait_until(holds):
    end = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < end, "it does not come true"
        time.sleep(0.01)


async def eventually(holds):
    """The same for a coroutine function."""
    async with asyncio.timeout(SECONDS):
        while not await holds():
            await asyncio.sleep(0.01)
