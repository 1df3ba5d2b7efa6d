"""The model campaign: many claims, two instances that crash, freeze and overlap, reboots, hardware
that comes and goes, checkpoints that are damaged, lost or unreadable, an API server in trouble, a
kubelet that asks again, all in the order of hypothesis' dice.

What must hold is in `promises`; what a node is made of in `node`; time, disk and death in `turns`.
"""

# size: the rules of one machine share all of its state.

from __future__ import annotations

import asyncio
import collections
import gc
import random
import shutil
import sys
import tempfile
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import hypothesis
from hypothesis import stateful
from hypothesis import strategies as st

from claimd.node.prepare import checkpoint_trouble
from claimd.node.prepared import ClaimRef, PreparedClaim
from tests.faults import node, promises, turns
from tests.support import apiserver, drivers, progress, worlds

CALL = 45.0  # seconds that a kubelet waits
NAMES = 6
FOREIGN = {"driver": "nic.example", "pool": worlds.NODE, "device": "nic0"}
TROUBLES = [
    (500, "answer"),
    (503, "answer"),
    (429, "answer"),
    (401, "answer"),
    (200, "hangup"),
    (200, "truncate"),
]
TROUBLES += [(200, "silent"), (0, "away"), (0, "away")]

figures: collections.Counter[str] = collections.Counter()

Kind = Literal["prepare", "unprepare"]


@dataclass(eq=False)
class Call:
    kind: Kind
    instance: node.Instance
    refs: list[ClaimRef]
    crossed: set[
        str
    ]  # claims for which the opposite was asked at the same time: either may have come last
    delayed: bool = False  # an instance was frozen meanwhile, and perhaps held the lock
    lost: frozenset[str] = frozenset()  # claims whose checkpoint was harmed when the call began


ALLOCATION = st.lists(
    st.tuples(st.integers(0, node.GPUS - 1), st.sampled_from(["whole", "whole", "share", "admin"])),
    min_size=1,
    max_size=2,
    unique=True,
)
SLOW = st.sampled_from([0.0, 0.02, 2.0])
CALLS = st.tuples(
    st.sampled_from(["prepare", "prepare", "unprepare"]),
    st.integers(0, 1),
    st.lists(st.integers(0, 99), min_size=1, max_size=3),
)


class Model(stateful.RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="model-"))
        self.loop = turns.Loop()
        asyncio.set_event_loop(self.loop)
        self.disk = promises.Disk(self.folder)
        self.promises = promises.Promises(self.disk)
        self.loop.disk.look = self.promises.always

        # These are seconds of the real clock, which hardly moves here.
        checkpoint_trouble.RETRY_INTERVAL = 0.0
        self.kernel = node.Kernel()
        self.slots: list[node.Instance | None] = [None, None]
        self.dead: list[node.Instance] = []
        self.refs: list[ClaimRef] = []
        self.moved: set[str] = (
            set()
        )  # claims allocated anew: nobody has to report them before a prepare
        self.under_way: dict[asyncio.Task[None], Call] = {}

        # By claim whose checkpoint was harmed: the instances that may know it whole.
        self.remember: dict[str, set[node.Instance]] = {}
        self.api = apiserver.ApiServer()
        self.away = False
        self.do(self.api.start())
        figures["runs"] += 1

    def do(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    # ------------------------------------------------------------------ claims and their allocation

    @stateful.initialize(allocations=st.lists(ALLOCATION, min_size=NAMES, max_size=NAMES))
    def begin(self, allocations: list[Any]) -> None:
        for index, allocation in enumerate(allocations):
            self.put(index, allocation)
        self.start(0, 0)

    @stateful.rule(
        index=st.integers(0, NAMES - 1),
        how=st.sampled_from(
            ["delete", "create anew", "create anew", "allocate", "allocate", "deallocate"]
        ),
        allocation=ALLOCATION,
    )
    def change_claim(self, index: int, how: str, allocation: Any) -> None:
        """Perhaps while it is prepared. Created anew it has the same name and another uid."""
        old = self.claim(f"c{index}")
        if how == "create anew":
            self.put(index, allocation)
        elif old is not None and how == "delete":
            self.api.delete("resourceclaims", f"c{index}", "default")
        elif old is not None:
            self.moved.add(old["metadata"]["uid"])
            self.put(index, allocation if how == "allocate" else [], old["metadata"]["uid"])

    def put(self, index: int, allocation: list[tuple[int, str]], uid: str = "") -> None:
        name, uid = f"c{index}", uid or f"uid-{len(self.refs)}"
        results = []
        for gpu, how in allocation:
            kinds: dict[str, dict[str, Any]] = {
                "share": {
                    "shareID": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{uid} {gpu}")),
                    "consumedCapacity": {"memory": "1Gi"},
                },
                "admin": {"adminAccess": True},
            }
            more = kinds.get(how, {})
            results.append(worlds.result(worlds.gpu(gpu).name, f"{how}-{gpu}", **more))
        if results and index % 2:
            results.append({"request": "nic", **FOREIGN})
        obj = worlds.claim_object(name, *results, uid=uid)
        if results and index % 2:
            obj["status"]["devices"] = [{**FOREIGN, "data": {"ip": "192.0.2.1"}}]
        if (old := self.claim(name)) is not None and old["metadata"]["uid"] != uid:
            self.api.delete("resourceclaims", name, "default")
        self.api.put("resourceclaims", obj)
        # Whoever has allocated it anew has forgotten who had reported what.
        self.api.forget_managers("resourceclaims", name, "default")
        ref = ClaimRef("default", name, uid)
        if ref not in self.refs:
            self.refs.append(ref)

    def claim(self, name: str) -> dict[str, Any] | None:
        return self.api.get("resourceclaims", name, "default")

    def allocated(self, ref: ClaimRef) -> list[dict[str, Any]] | None:
        """Our results of this very claim, as the API server has it."""
        claim = self.claim(ref.name)
        if (
            claim is None
            or claim["metadata"]["uid"] != ref.uid
            or "allocation" not in claim["status"]
        ):
            return None
        results = claim["status"]["allocation"]["devices"]["results"]
        return [result for result in results if result["driver"] == worlds.DRIVER]

    # ------------------------------------------------------------------ instances

    @stateful.rule(slot=st.integers(0, 1), death=st.integers(0, 12))
    def start(self, slot: int, death: int) -> None:
        """Perhaps to die at once."""
        if self.slots[slot] is None:
            self.slots[slot] = instance = node.Instance(
                self.loop, self.folder, self.kernel, self.api, self.pods
            )
            if any(other and other.life.frozen for other in self.slots):
                instance.checkpoints._lock.patience = 0.02
            self.plan_death(instance, death)
            self.do(instance.start())
            self.after_death()

    @stateful.rule(what=st.sampled_from(["0", "1", "0", "1", "boot", "boot with /var/run wiped"]))
    def fall(self, what: str) -> None:
        """An instance is killed between two of its moments, or the machine is."""
        for slot, instance in enumerate(self.slots):
            if instance is not None and what in (str(slot), "boot", "boot with /var/run wiped"):
                instance.life.die()
        self.after_death()
        if what.startswith("boot"):
            self.kernel.reboot()
            figures["reboots"] += 1
        if what.endswith("wiped"):
            self.lose_all()
            shutil.rmtree(self.folder / "cdi", ignore_errors=True)

    @stateful.rule(slot=st.integers(0, 1))
    def freeze_or_thaw(self, slot: int) -> None:
        """SIGSTOP, perhaps with the lock in hand: the other one shall not wait for it in real time."""
        frozen = [instance for instance in self.slots if instance and instance.life.frozen]
        if not frozen and (instance := self.slots[slot]) is not None:
            figures["freezes"] += 1
            instance.life.freeze()
            for call in self.under_way.values():
                call.delayed = True
            for other in filter(None, self.slots):
                other.checkpoints._lock.patience = 0.02
        else:
            self.thaw()

    def thaw(self) -> None:
        for instance in filter(None, self.slots):
            instance.checkpoints._lock.patience = 20.0
            if instance.life.frozen:
                instance.life.thaw()

    def plan_death(self, instance: node.Instance, moments: int) -> None:
        if moments:
            instance.life.die_after(moments)

    def after_death(self) -> None:
        for slot, instance in enumerate(self.slots):
            if instance is not None:
                instance.life.spare()
            if instance is not None and not instance.life.alive:
                figures["deaths"] += 1
                self.dead.append(instance)
                self.slots[slot] = None

    # ------------------------------------------------------------------ the kubelet

    async def pods(self) -> dict[tuple[str, str], dict[str, frozenset[str]]]:
        """A pod for each claim that was answered."""
        names = {ref.uid: ref.name for ref in self.refs}
        given = self.promises.given.items()
        return {("default", f"pod-{uid}"): {names[uid]: told} for uid, told in given}

    @stateful.rule(
        calls=st.lists(CALLS, min_size=1, max_size=4),
        death=st.tuples(st.integers(0, 1), st.integers(0, 40)),
        lost=st.booleans(),
        slow=SLOW,
        dice=st.integers(0, 255),
    )
    def call(
        self, calls: list[Any], death: tuple[int, int], lost: bool, slow: float, dice: int
    ) -> None:
        """Calls at the same time. If the replies are lost the kubelet does not wait for them, and
        work goes on.
        """
        self.loop.disk.dice, self.loop.disk.slow = random.Random(dice), slow
        if (victim := self.slots[death[0]]) is not None:
            self.plan_death(victim, death[1])
        alone = len(calls) == 1 and not lost and not self.under_way and not (victim and death[1])
        started = []
        for kind, slot, indexes in calls:
            if (
                instance := self.slots[slot] or self.slots[1 - slot]
            ) is not None and instance.life.alive:
                refs = list({self.refs[-1 - index % len(self.refs)] for index in indexes})
                refs.sort(key=lambda ref: ref.uid)
                expected = (
                    self.must_work(refs[0])
                    if alone and len(refs) == 1 and not instance.life.frozen
                    else None
                )
                started.append(self.begin_call(Call(kind, instance, refs, set()), expected))
        self.do(
            asyncio.wait(started, timeout=0.01 if lost else CALL + 5.0)
            if started
            else asyncio.sleep(0.0)
        )
        self.gather()
        self.after_death()

    @stateful.rule(
        slot=st.integers(0, 1),
        kinds=st.text("pu", min_size=1, max_size=4),
        slow=SLOW,
        index=st.integers(0, 5),
    )
    def one_claim(self, slot: int, kinds: str, slow: float, index: int) -> None:
        """The kubelet asks this and that of one claim, call after call."""
        for kind in kinds:
            self.call(
                [("prepare" if kind == "p" else "unprepare", slot, [index])],
                (0, 0),
                False,
                slow,
                index,
            )

    def must_work(self, ref: ClaimRef) -> bool | None:
        """What a prepare has to come to while nothing else happens; None if it may come to either."""
        if any(
            instance and (instance.life.frozen or not instance.sees_all) for instance in self.slots
        ):
            return None
        if any(fault.is_silence for fault in self.api.faults):
            return None  # several silences in a row may last longer than a call
        wanted = self.allocated(ref)
        given = None if wanted is None else tuple(map(promises.of_result, wanted))
        return self.promises.expects(ref.uid, given, self.kernel.inventory(), self.away)

    def begin_call(self, call: Call, expected: bool | None) -> asyncio.Task[None]:
        call.delayed = any(instance and instance.life.frozen for instance in self.slots)
        call.lost = frozenset(self.promises.lost)
        for ref in call.refs:
            for other in self.under_way.values():
                if other.kind != call.kind and ref in other.refs:
                    other.crossed.add(ref.uid)
                    call.crossed.add(ref.uid)
            if call.kind == "prepare":
                self.promises.taken.discard(ref.uid)
                if (wanted := self.allocated(ref)) is not None and ref.uid in self.promises.given:
                    now = promises.ids(ref.uid, tuple(map(promises.of_result, wanted)))
                    if now != self.promises.given[ref.uid]:
                        del self.promises.given[
                            ref.uid
                        ]  # allocated to another device: that one may be given now
            else:
                self.promises.given.pop(ref.uid, None)
        task = self.loop.create_task(self.finish_call(call, expected))
        self.under_way[task] = call
        return task

    async def finish_call(self, call: Call, expected: bool | None) -> None:
        began = self.loop.time()
        if call.kind == "prepare":
            asked: Any = drivers.prepare(call.instance.driver, call.refs, began + CALL)
        else:
            asked = drivers.unprepare(call.instance.driver, call.refs)
        figures["calls"] += 1
        answers = await call.instance.done(call.instance.life.start(asked))
        if answers is None:
            return  # it died
        assert set(answers) == {ref.uid for ref in call.refs}
        if not call.delayed:
            assert self.loop.time() <= began + CALL, (
                f"{call.kind} took {self.loop.time() - began:.1f} s"
            )
        for uid, answer in answers.items():
            figures["refusals" if isinstance(answer, str) else f"{call.kind}d"] += 1
            assert not (isinstance(answer, str) and "unexpected trouble" in answer), answer
            if call.kind == "prepare" and expected is not None:
                assert expected == (not isinstance(answer, str)), (
                    f"{uid}: expected {expected}, got {answer}"
                )
            self.note(call, uid, answer)

    def note(self, call: Call, uid: str, answer: object) -> None:
        if uid in call.crossed:
            return
        if isinstance(answer, PreparedClaim):
            given = tuple(
                promises.Given(d.device, d.share_id, d.admin, d.uuid) for d in answer.devices
            )
            told = promises.ids(uid, given)
            before = self.promises.given.setdefault(uid, told)
            assert before == told, f"{uid} was given {before}, and now {told}"
        elif call.kind == "unprepare":
            if answer is None:
                self.promises.taken.add(uid)
                self.promises.lost.pop(uid, None)
                self.promises.forgotten.discard(uid)
            elif uid in call.lost and "cannot be read" in str(answer):
                figures["unreadable"] += 1
            else:
                assert "is it frozen?" in str(answer), answer

    def gather(self) -> None:
        """Lets the campaign fail by what a call met."""
        for task in [task for task in self.under_way if task.done()]:
            del self.under_way[task]
            task.result()

    # ------------------------------------------------------------------ trouble

    @stateful.rule(index=st.integers(0, node.GPUS - 1), how=st.sampled_from(["out", "in", "other"]))
    def plug(self, index: int, how: str) -> None:
        name = worlds.gpu(index).name
        lost = self.promises.lost.items()
        self.promises.heal()
        self.promises.find_rebuilt()
        self.promises.forget(uid for uid, given in lost if any(d.device == name for d in given))
        self.kernel.unplug(index)
        if how != "out":
            self.kernel.plug(index, card=self.kernel.boot if how == "other" else 0)

    @stateful.rule(trouble=st.sampled_from(TROUBLES), times=st.integers(1, 2))
    def trouble(self, trouble: tuple[int, Any], times: int) -> None:
        """Of the API server; 0 is that it goes away, or comes back."""
        figures["troubles"] += 1
        if trouble[0] == 0:
            self.do(self.api.start() if self.away else self.api.stop())
            self.away = not self.away
        else:
            headers = {"Retry-After": "1"} if trouble[0] == 429 else {}
            self.api.fail(trouble[0], kind=trouble[1], times=times, headers=headers)

    @stateful.rule(
        index=st.integers(0, 99), how=st.sampled_from(["gone", "empty", "edited", "all"])
    )
    def vandal(self, index: int, how: str) -> None:
        """Somebody else in the CDI folder, or at the metadata. A CDI file goes before what it
        names.
        """
        lost = self.promises.lost

        def untouched(paths: Iterable[Path]) -> list[Path]:
            return sorted(path for path in paths if not any(uid in path.name for uid in lost))

        metadata = untouched((self.folder / "plugin/metadata").glob("*.json"))
        specs = untouched((self.folder / "cdi").glob("claimd.dev-claim_*"))
        files = specs + metadata
        if how == "all":
            self.lose_all()
            shutil.rmtree(self.folder / "cdi", ignore_errors=True)
            shutil.rmtree(self.folder / "plugin/metadata", ignore_errors=True)
        elif specs and how == "gone":
            specs[index % len(specs)].unlink()
        elif files:
            files[index % len(files)].write_text("" if how == "empty" else '{"devices": []}')

    @stateful.rule(
        index=st.integers(0, 99),
        how=st.sampled_from(["cut", "empty", "removed", "unreadable", "unreadable"]),
    )
    def harm(self, index: int, how: str) -> None:
        """Harms the checkpoint of a claim that nobody works on, and whose files are right. One in a run
        is enough: the model has no rule for two that name the same device.
        """
        if self.disk.harmed:
            return
        busy = {ref.uid for call in self.under_way.values() for ref in call.refs}
        there = {(gpu.name, gpu.uuid) for gpu in self.kernel.inventory().gpus}
        whole = {
            uid
            for uid, given in self.disk.records().items()
            if given
            and there.issuperset((device.device, device.uuid) for device in given)
            and self.disk.has_right_files(uid, given)
        }
        if uids := sorted(whole - busy - self.promises.lost.keys()):
            figures["harmed"] += 1
            uid = uids[index % len(uids)]
            self.promises.harm(uid, how)
            self.remember[uid] = {instance for instance in self.slots if instance is not None}

    @stateful.rule()
    def heal(self) -> None:
        self.promises.heal()

    def lose_all(self) -> None:
        """Somebody removes all CDI files: what was lost before is lost for good."""
        self.promises.heal()
        self.promises.find_rebuilt()
        self.promises.forget(self.promises.lost)

    # ------------------------------------------------------------------ what must hold

    @stateful.invariant()
    def always(self) -> None:
        figures["steps"] += 1
        self.gather()
        self.promises.always()

    @stateful.rule()
    def settle(self) -> None:
        """A quiet minute."""
        self.thaw()
        if self.under_way:
            self.do(asyncio.wait(list(self.under_way), timeout=2 * CALL))
            self.gather()
            assert not self.under_way, "a call never ended"
        self.after_death()
        living = list(filter(None, self.slots))
        for _ in range(2):  # the second sees what the first of the other one has done
            for instance in living:
                self.do(instance.glance())
        if living:
            self.promises.settled(self.kernel.inventory())
            self.do(self.rebuilt(living))
            for instance in living:
                disturbed = instance.specs.is_disturbed() or instance.metadata.is_disturbed()
                assert not disturbed, "it will restore at every glance, for ever"
        if living and not self.away:
            self.api.faults.clear()
            self.do(self.reported())

    async def rebuilt(self, living: list[node.Instance]) -> None:
        """Waits until the lost checkpoints that can be rebuilt are rebuilt, for a minute at most. An
        API server that has just failed is asked again.
        """
        deadline = self.loop.time() + 60.0
        while waiting := [ref.uid for ref in self.refs if self.must_be_rebuilt(ref)]:
            assert self.loop.time() < deadline, f"{waiting} are lost, and are not rebuilt"
            await asyncio.sleep(5.0)
            for instance in living:
                await instance.glance()

    def must_be_rebuilt(self, ref: ClaimRef) -> bool:
        """Whether a lost checkpoint can be rebuilt: the claim is as it was, and so is its GPU."""
        given = self.promises.lost.get(ref.uid)
        if given is None or ref.uid in self.promises.leases or self.away or self.api.faults:
            return False
        if self.remember[ref.uid] & set(self.slots):
            return False  # it may not have noticed
        there = {gpu.name for gpu in self.kernel.inventory().gpus}
        wanted = self.allocated(ref)
        if wanted is None or any(device.device not in there for device in given):
            return False
        now = promises.ids(ref.uid, tuple(map(promises.of_result, wanted)))
        return now == promises.ids(ref.uid, given)

    async def reported(self) -> None:
        """Waits until every claim's status.devices says what is prepared, for three minutes at
        most.
        """
        deadline = self.loop.time() + 200.0
        for ref in self.refs:
            # Of a claim that is lost with all its files nobody knows that it has a status.
            wanted = None if ref.uid in self.disk.harmed else self.allocated(ref)
            while wanted is not None and not self.status_right(
                ref, {result["device"] for result in wanted}
            ):
                assert self.loop.time() < deadline, (
                    f"status.devices is not what is prepared: {self.claim(ref.name)}"
                )
                await asyncio.sleep(0.5)

    def status_right(self, ref: ClaimRef, allocated: set[str]) -> bool:
        entries = self.api.objects["resourceclaims", "default", ref.name]["status"].get(
            "devices", []
        )
        theirs = [entry for entry in entries if entry["driver"] != worlds.DRIVER]
        assert len(theirs) == int(ref.name[1:]) % 2, "the entry of another driver was touched"
        ours = {entry["device"] for entry in entries if entry["driver"] == worlds.DRIVER}
        wanted = {device.device for device in self.disk.records().get(ref.uid, ())} & allocated
        return ours <= wanted and (ours >= wanted or ref.uid in self.moved)

    def teardown(self) -> None:
        """At the end the kubelet takes everything back, and nothing is left."""
        progress.moved()
        try:
            if sys.exc_info()[0] is not None:
                return  # it has failed already
            if self.away:
                self.trouble((0, "away"), 1)
            self.promises.heal()
            self.start(0, 0)
            self.settle()
            self.call([("unprepare", 0, list(range(len(self.refs))))], (0, 0), False, 0.0, 0)
            assert self.disk.records() == {}
            assert self.disk.specs() == set()
            assert self.disk.metadata() == set()
            assert self.disk.quarantined() == set()
        finally:
            self.promises.heal()
            self.loop.disk.look = lambda: None
            self.do(self.end())
            self.loop.close()
            asyncio.set_event_loop(None)
            shutil.rmtree(self.folder, ignore_errors=True)

            # Objects of dead processes still hold descriptors. `select` takes no number above 1,023.
            gc.collect()

    async def end(self) -> None:
        for task in self.under_way:
            task.cancel()
        for instance in [*self.dead, *filter(None, self.slots)]:
            await instance.bury()
        await asyncio.gather(*self.under_way, return_exceptions=True)
        await self.api.close()


def run(seed: int, count: int, steps: int = 70, shrink: bool = True) -> None:
    """`count` runs of up to `steps` steps each; the same seed gives the same runs. A failure is
    made small first.
    """
    settings = hypothesis.settings(
        max_examples=count,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink)
        if shrink
        else (hypothesis.Phase.generate,),
    )
    stateful.run_state_machine_as_test(hypothesis.seed(seed)(Model), settings=settings)
