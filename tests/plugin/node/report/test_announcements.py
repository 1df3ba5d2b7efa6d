"""Who is told what when the health of a GPU changes."""

from __future__ import annotations

from claimd.kubernetes.api.meta import Condition
from claimd.node.prepare import plan
from claimd.node.prepared import PreparedClaim
from claimd.node.report import announcements, events
from claimd_devices.gpu import Gpu, Inventory
from claimd_devices.health import FAILED, NOTE, Finding, HealthReport
from tests.support.worlds import DRIVER, NODE, claim, gpu, inventory, result

FIRST, SECOND = gpu(0).name, gpu(1).name
NODE_REF = events.node(NODE)


def plan_claim(name: str, *devices: str) -> PreparedClaim:
    return plan.plan(
        claim(name, *(result(device, request=f"r{n}") for n, device in enumerate(devices))),
        driver=DRIVER,
        pool=NODE,
        inventory=inventory(),
        neighbours=(),
        now="2026-01-01T00:00:00Z",
    )


def condition(type_: str, message: str = "") -> Condition:
    return Condition(
        type=type_,
        status="False",
        reason="Because",
        message=message,
        last_transition_time="2026-01-01T00:00:00Z",
    )


def sick(*names: str, retained: tuple[Gpu, ...] = (), severity: str = FAILED) -> HealthReport:
    finding = Finding(kind="wedged", severity=severity, sentence="it hangs", since=1)
    return HealthReport(findings=tuple((name, (finding,)) for name in names), retained=retained)


class World:
    """A node whose claims and inventory are what the test says."""

    def __init__(self, *claims: PreparedClaim, there: Inventory | None = None) -> None:
        self.there = there or inventory(2)
        self.conditions = announcements.DeviceConditions()
        self.reported: list[str] = []
        self.events: list[tuple[events.ObjectReference, str, str, bool]] = []
        self.announcements = announcements.Announcements(
            node=NODE,
            conditions=self.conditions,
            inventory=lambda: self.there,
            claims=lambda: claims,
            report=lambda plan_claim: self.reported.append(plan_claim.name),
            record_event=self.record,
        )

    def record(
        self, about: events.ObjectReference, reason: str, note: str, *, warning: bool = True
    ) -> None:
        self.events.append((about, reason, note, warning))

    def told(self) -> list[tuple[str, str]]:
        """Whom and of what since the last time."""
        told = [(about.kind, reason) for about, reason, _, _ in self.events]
        self.events.clear()
        return told


def test_a_gpu_that_falls_sick_is_told_to_its_holders_first_and_to_the_node():
    first, other = plan_claim("one", FIRST), plan_claim("other", SECOND)
    world = World(first, other)
    world.announcements.set_health(sick(FIRST))
    assert world.reported == ["one"], "a claim that holds another GPU has nothing new to say"
    note = f"{FIRST} on {NODE}: it hangs [sysfs]"
    assert world.events == [
        (events.claim("default", "one", "uid-one"), "DeviceUnhealthy", note, True),
        (NODE_REF, "DeviceUnhealthy", note, True),
    ]


def test_the_same_again_is_no_news():
    world = World(plan_claim("one", FIRST))
    world.announcements.set_health(sick(FIRST))
    world.told()
    world.announcements.set_health(sick(FIRST))
    assert (world.reported, world.told()) == (["one"], [])


def test_a_gpu_that_gets_well_is_told_without_a_warning():
    world = World(plan_claim("one", FIRST))
    world.announcements.set_health(sick(FIRST))
    world.told()
    world.announcements.set_health(HealthReport())
    assert world.reported == ["one", "one"]
    assert [(reason, note, warning) for _, reason, note, warning in world.events] == [
        ("DeviceHealthy", f"{FIRST} on {NODE} is well again", False)
    ] * 2
    assert world.conditions.of_devices(plan_claim("one", FIRST).devices) == {FIRST: []}


def test_a_gpu_that_was_given_up_did_not_get_well():
    world = World(plan_claim("one", FIRST), there=inventory(2))
    world.announcements.set_health(sick(FIRST, retained=(gpu(0),)))
    world.told()
    world.there = Inventory.from_unsorted([gpu(1)])
    world.announcements.set_health(HealthReport())
    assert world.told() == []
    assert world.reported == ["one", "one"], "the status says of itself that it is not available"


def test_a_note_is_nothing_to_announce():
    world = World(plan_claim("one", FIRST))
    world.announcements.set_health(sick(FIRST, severity=NOTE))
    assert (world.reported, world.told()) == ([], [])


def test_a_part_that_falls_sick_with_its_gpu_makes_no_event_of_the_node():
    part = gpu(1, name=f"{FIRST}-p0", parent=FIRST)
    for there, retained in (((gpu(0), part), ()), ((), (gpu(0), part))):
        world = World(there=Inventory.from_unsorted(there))
        world.announcements.set_health(sick(FIRST, part.name, retained=retained))
        assert [note for _, _, note, _ in world.events] == [f"{FIRST} on {NODE}: it hangs [sysfs]"]


def test_a_part_that_falls_sick_alone_does():
    part = gpu(1, name=f"{FIRST}-p0", parent=FIRST)
    world = World(there=Inventory.from_unsorted([gpu(0), part]))
    world.announcements.set_health(sick(part.name))
    assert world.told() == [("Node", "DeviceUnhealthy")]


def test_conditions_of_several_types_stand_side_by_side():
    first = plan_claim("one", FIRST, SECOND)
    world = World(first)
    healthy, exclusive = condition("Healthy"), condition("Exclusive")
    assert world.announcements.set_conditions("Healthy", {FIRST: healthy}) == {FIRST}
    assert world.announcements.set_conditions("Exclusive", {FIRST: exclusive}) == {FIRST}
    assert world.conditions.of_devices(first.devices) == {FIRST: [healthy, exclusive], SECOND: []}
    assert world.announcements.set_conditions("Healthy", {}) == {FIRST}
    assert world.conditions.of_devices(first.devices) == {FIRST: [exclusive], SECOND: []}


def test_a_condition_that_says_something_else_is_news_and_the_others_are_not():
    world = World(plan_claim("one", FIRST), plan_claim("other", SECOND))
    before = {FIRST: condition("Exclusive", "a"), SECOND: condition("Exclusive", "b")}
    assert world.announcements.set_conditions("Exclusive", before) == {FIRST, SECOND}
    world.reported.clear()
    after = before | {SECOND: condition("Exclusive", "c")}
    assert world.announcements.set_conditions("Exclusive", after) == {SECOND}
    assert world.reported == ["other"]
