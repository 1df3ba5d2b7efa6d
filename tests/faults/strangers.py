"""Random hostile claims and answers of the API server, against a `claimd run` with real sockets.

Every claim that the kubelet asks for is spoilt somewhere, or its answer is; slices of the node are
written by others meanwhile. A second plugin on the same machine is left alone: what a neighbour of
the attacked one waits for is compared with what the same call takes there.

    python -m tests.faults.strangers --count 10000
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import json
import math
import random
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz import inputs
from tests.support import progress
from tests.support.apiserver import Fault
from tests.support.kubelet import Caller, calling
from tests.support.worlds import DRIVER, NODE, claim_object, gpu_config, opaque, result

from . import hostile

AT_ONCE = 16  # claims in a call
# Seconds that the kubelet gives a call: what may pass is waited for until two before.
PATIENCE = 3.0
STALL = 0.05  # seconds that a neighbour may wait for longer than where nobody attacks
GROWTH = 8 << 20  # bytes of memory, from the first quarter on

# What stands in a claim in the place of what should.
ODD = (
    *(
        None,
        True,
        -1,
        1 << 70,
        1e300,
        "",
        " ",
        "\x00",
        "\x1b]0;x\x07",
        "\u2028",
        "\ud800",
        "../..",
        "x" * 5000,
    ),
    *([], {}, [None], {"": ""}, ["x"] * 2000, {"LD_PRELOAD": "/x"}, {"A": "\x85\n[ERROR] forged"}),
)

# Answers that end a prepare; those that promise better times are waited out.
STATUSES = (200, 301, 400, 403, 404, 405, 409, 410, 422, 429, 503)

Object = dict[str, Any]


@dataclass
class _Neighbour:
    """Asks for a claim that is prepared, again and again, as pods of it start."""

    waits: list[float] = field(default_factory=list)

    async def ask(self, caller: Caller, claim: Object) -> None:
        while True:
            began = time.monotonic()
            answer = await caller.prepare(claim, timeout=30)
            self.waits.append(time.monotonic() - began)
            assert not answer[claim["metadata"]["uid"]].error
            await asyncio.sleep(0.02)

    def at(self, share: float) -> float:
        """What this share of the asks took at most."""
        return sorted(self.waits)[max(0, math.ceil(len(self.waits) * share) - 1)]


def _bodies(names: list[str]) -> list[bytes]:
    """Of claims as the API server has them: usual ones, and large ones."""
    large = {f"V{number}": "x" * 90 for number in range(60)}
    configs = [opaque(gpu_config(environment={"A": "b"}, permissions="rw"))]
    many = [opaque(gpu_config(environment=large)) for _ in range(32)]
    deep: Object = opaque(gpu_config())
    deep["opaque"]["parameters"]["environment"] = json.loads("[" * 400 + "]" * 400)
    objects = [
        claim_object("c", result(names[0]), config=configs),
        claim_object("c", *(result(name, f"r{name}") for name in names), config=many),
        claim_object("c", result(names[1]), config=[deep]),
        claim_object("c"),
    ]
    return [json.dumps(obj).encode() for obj in objects]


def _spoil(dice: random.Random, bodies: list[bytes], uid: str) -> bytes:
    """A body for this uid, so that it is not refused for being of another claim; then changes."""
    data = dice.choice(bodies).replace(b'"uid-c"', json.dumps(uid).encode())
    if dice.random() < 0.2:
        return data
    if dice.random() < 0.6:
        document = json.loads(data)
        for _ in range(dice.choice((1, 1, 2, 3))):
            _replace_one(dice, document)
        return json.dumps(document).encode()

    words = [b'"opaque"', b'"environment"', b'"device"', b"LD_PRELOAD", b'"status"']
    words += [*inputs.NASTY, *inputs.DEEP]
    for _ in range(dice.choice((0, 1, 1, 2, 4))):
        begin = dice.randrange(len(data) + 1)
        end = min(len(data), begin + dice.choice((0, 0, 1, 2, 8, 64)))
        data = data[:begin] + dice.choice(words) + data[end:]
    return data


def _replace_one(dice: random.Random, document: Any) -> None:
    """Something odd in the place of a value, at any depth."""
    while True:
        keys = list(document) if isinstance(document, dict) else list(range(len(document)))
        if not keys:
            return
        key = dice.choice(keys)
        below = document[key]
        if dice.random() < 0.25 or not isinstance(below, dict | list) or not below:
            document[key] = copy.deepcopy(dice.choice(ODD))
            return
        document = below


def _hostile_claim(dice: random.Random, world: hostile.World, number: int) -> Object:
    """What the kubelet asks for, and the answer that waits for it at the API server."""
    name = f"stranger-{number:06}"
    uid = f"uid-{name}"
    names = [gpu.name for gpu in world.gpus[:3]]
    status = 200 if dice.random() < 0.8 else dice.choice(STATUSES)
    headers = {}
    if status in (429, 503):
        headers["Retry-After"] = dice.choice(("60", "9" * 30, "²", "-1", "\x7f", "1e9", "4000"))
    fault = Fault(
        path=f"resourceclaims/{name}",
        times=1 if status == 200 else 3,
        status=status,
        headers=headers,
        body=_spoil(dice, _bodies(names), uid),
    )
    if dice.random() < 0.05:
        fault.passes, fault.closes = dice.choice(("nothing", "head", "half")), True
    world.api.faults.append(fault)
    return {"metadata": {"namespace": "default", "name": name, "uid": uid}}


def _hostile_slice(dice: random.Random, world: hostile.World) -> None:
    """One of the node's slices as somebody else writes it, or one more."""
    spec: Object = {
        "driver": DRIVER,
        "nodeName": NODE,
        "pool": {
            "name": dice.choice((NODE, "other")),
            "generation": dice.choice((0, 1, 1 << 62)),
            "resourceSliceCount": dice.choice((1, 128)),
        },
        "devices": [{"name": dice.choice(("gpu-0", "x" * 60)), "attributes": {}}],
    }
    if dice.random() < 0.3:
        del spec[dice.choice(tuple(spec))]
    world.api.put("resourceslices", {"metadata": {"name": f"s-{dice.randrange(4)}"}, "spec": spec})


async def attack(count: int, seed: int) -> str:
    """Returns the figures; AssertionError tells the broken promise."""
    dice = random.Random(seed)
    trouble = hostile.Trouble()
    keys = Path(tempfile.gettempdir())
    async with hostile._world(keys, trouble) as attacked, hostile._world(keys, trouble) as idle:
        neighbours = []
        async with (
            calling(await attacked.start()) as caller,
            calling(await idle.start()) as idle_caller,
            asyncio.TaskGroup() as group,
        ):
            asking = []
            for world, client in ((attacked, caller), (idle, idle_caller)):
                kept = world.claim("kept", 3)
                await hostile._prepared(client, kept)
                neighbours.append(_Neighbour())
                asking.append(group.create_task(neighbours[-1].ask(client, kept)))

            began = time.monotonic()
            memory = 0
            answered = {"prepared": 0, "refused": 0}
            for first in range(0, count, AT_ONCE):
                batch = range(first, min(count, first + AT_ONCE))
                claims = [_hostile_claim(dice, attacked, number) for number in batch]
                _hostile_slice(dice, attacked)
                await _ask(caller, claims, answered)
                attacked.api.faults.clear()
                progress.moved()
                if not memory and first * 4 >= count:
                    memory = attacked.usage()[0]
            for task in asking:
                task.cancel()
        seconds = time.monotonic() - began

        # What was broken is right again, and nothing of a stranger is left.
        right = sorted(gpu.name for gpu in attacked.gpus)
        await hostile.apiserver.until(lambda: _published(attacked) == right, 60)
        growth = attacked.usage()[0] - memory
        log = (attacked.folder / "log").read_text()
    assert "Traceback" not in log, log[log.index("Traceback") - 2000 :][:6000]
    assert "unexpected trouble" not in log
    return _figures(neighbours, answered, growth, count, seconds)


def _published(world: hostile.World) -> list[str]:
    """The devices in slices that are for our driver on our node, whoever wrote them."""
    names = []
    for (kind, _, _), obj in world.api.objects.items():
        spec = obj.get("spec", {})
        if kind == "resourceslices" and (spec.get("driver"), spec.get("nodeName")) == (
            DRIVER,
            NODE,
        ):
            names += [device["name"] for device in spec.get("devices") or ()]
    return sorted(names)


async def _ask(caller: Caller, claims: list[Object], answered: dict[str, int]) -> None:
    answers = await caller.prepare(*claims, timeout=PATIENCE)
    for claim in claims:
        answer = answers[claim["metadata"]["uid"]]
        answered["refused" if answer.error else "prepared"] += 1
        assert "Traceback" not in answer.error
    for answer in (await caller.unprepare(*claims, timeout=30)).values():
        assert not answer.error, answer.error


def _figures(
    neighbours: list[_Neighbour], answered: dict[str, int], growth: int, count: int, seconds: float
) -> str:
    attacked, idle = neighbours
    figures = (
        f"{count} claims in {seconds:.0f} s: {answered['prepared']} prepared, "
        f"{answered['refused']} refused; a neighbour waits "
        f"{attacked.at(0.5) * 1e3:.1f}, {attacked.at(0.95) * 1e3:.1f}, {attacked.at(1) * 1e3:.0f} ms "
        f"(median, 95 %, most), beside an idle plugin "
        f"{idle.at(0.5) * 1e3:.1f}, {idle.at(0.95) * 1e3:.1f}, {idle.at(1) * 1e3:.0f} ms; "
        f"{growth >> 10} KiB more"
    )
    assert answered["prepared"], f"none was good: {figures}"
    assert answered["refused"], f"none was bad: {figures}"
    assert attacked.at(0.95) <= idle.at(0.95) + STALL, figures
    assert growth < GROWTH, figures
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.strangers")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    print(asyncio.run(attack(arguments.count, arguments.seed)))


if __name__ == "__main__":
    main()
