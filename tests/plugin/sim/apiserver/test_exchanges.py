"""Compares this server with recorded answers of real ones.

Status, reason, causes, objects and events must be the same. differences.json lists each allowed
difference with its reason, and docs/sim.md describes them.
"""

import asyncio
import contextlib
import json
import threading
from pathlib import Path

import pytest

from claimd.sim.apiserver import server
from tests.support import exchanges, samples

CASES = Path(__file__).parents[3] / "cases/sim/exchanges"
RECORDINGS = {f"{path.parent.name}/{path.stem}": path for path in sorted(CASES.glob("*/*.json"))}
DIFFERENCES = json.loads((CASES / "differences.json").read_text())


@contextlib.contextmanager
def running(release):
    """Runs a server of that release in a thread, without background work."""
    loop, ready = asyncio.new_event_loop(), threading.Event()
    servers = {}

    async def main():
        servers["stop"] = asyncio.Event()
        async with server.serve(server.Options(profile=release, housekeeping=False)) as api:
            servers["api"] = api
            ready.set()
            await servers["stop"].wait()

    thread = threading.Thread(target=loop.run_until_complete, args=[main()])
    thread.start()
    assert ready.wait(60)
    api = servers["api"]

    def compact():
        done = threading.Event()
        loop.call_soon_threadsafe(lambda: (api.registry.store.compact(), done.set()))
        assert done.wait(60)

    try:
        yield exchanges.Server(api.address, token=api.token, compact=compact)
    finally:
        loop.call_soon_threadsafe(servers["stop"].set)
        thread.join()
        loop.close()


@pytest.mark.parametrize("name", samples.parameters([[name] for name in RECORDINGS]))
def test_recorded(name):
    recording = json.loads(RECORDINGS[name].read_text())
    with running(recording["release"]) as asked:
        differences = exchanges.replay(asked, recording)
    differ = {
        recording["exchanges"][number]["request"]["what"]: pair
        for number, pair in differences.items()
    }
    listed = {what for whats in DIFFERENCES.get(name, {}).values() for what in whats}
    for what in sorted(set(differ) - listed):
        expected, got = differ[what]
        print(f"{what}:\n  expected {json.dumps(expected)}\n  got      {json.dumps(got)}")
    assert sorted(differ) == sorted(listed), (
        "differs and is not listed, or is listed and does not differ any more"
    )


def test_enough_is_recorded_and_told_of():
    asked = {
        name: sum("answer" in exchange for exchange in json.loads(path.read_text())["exchanges"])
        for name, path in RECORDINGS.items()
    }
    newest = sum(count for name, count in asked.items() if name.startswith("1.37/"))
    old = sum(count for name, count in asked.items() if name.startswith(("1.30/", "1.31/")))
    differ = sum(len(whats) for reasons in DIFFERENCES.values() for whats in reasons.values())
    assert newest >= 190
    assert old >= 60
    assert set(DIFFERENCES) <= set(RECORDINGS)
    page = " ".join((CASES.parents[3] / "docs/sim.md").read_text().split())
    assert f"({sum(asked.values()):,} of them, {old} of v1alpha2 and v1alpha3" in page
    assert f"{differ} still differ" in page
