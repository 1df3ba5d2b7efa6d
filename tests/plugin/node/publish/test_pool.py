"""What must be written, from what stands: generations, names, owners, and that nobody ever sees
half of a change.
"""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimd.kubernetes.api.meta import ObjectMeta
from claimd.kubernetes.api.resource import (
    Device,
    DeviceAttribute,
    DeviceCapacity,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from claimd.node.publish import pool
from tests.support import samples

Raw = dict[str, Any]


def wish(*contents: str) -> list[ResourceSlice]:
    """One slice for each, with one device that has it as an attribute."""
    unowned = [
        ResourceSlice(
            metadata=ObjectMeta(name=f"{index:05x}-d-n"),
            spec=ResourceSliceSpec(
                driver="d",
                node_name="n",
                pool=ResourcePool(name="n", generation=1, resource_slice_count=len(contents)),
                devices=[
                    Device(
                        name=f"gpu-{index}", attributes={"content": DeviceAttribute(string=content)}
                    )
                ],
            ),
        )
        for index, content in enumerate(contents)
    ]
    return pool.add_owner(unowned, "n", "node-uid")


def as_stored(*contents: str, generation: int = 3, **more: Any) -> dict[str, Raw]:
    """The same as the API server has them."""
    slices: dict[str, Raw] = msgspec.to_builtins(
        {slice_.metadata.name: slice_ for slice_ in wish(*contents)}
    )
    for number, slice_ in enumerate(slices.values()):
        slice_["metadata"] |= {"uid": f"uid-{number}", "resourceVersion": f"{100 + number}"} | more
        slice_["spec"]["pool"]["generation"] = generation
    return slices


def as_published(generation: int, *contents: str) -> pool.Published:
    bodies = {slice_.metadata.name: pool.body(slice_.spec) for slice_ in wish(*contents)}
    return pool.Published(generation=generation, bodies=bodies)


def summarize(changes: pool.Changes) -> tuple[int, list[str], list[str], list[str]]:
    """Generation, and the numbers of the slices to delete, update and create."""
    return (
        changes.target.generation,
        [slice_["metadata"]["name"][4:5] for slice_ in changes.delete],
        [slice_.metadata.name[4:5] for slice_ in changes.update],
        [slice_.metadata.name[4:5] for slice_ in changes.create],
    )


@pytest.mark.parametrize(
    ("wanted", "existing", "last", "expected"),
    [
        # the wish, what stands, what we published last; then: generation, delete, update, create
        pytest.param(wish("a"), {}, None, (1, [], [], ["0"]), id="nothing is there"),
        pytest.param(
            wish("a", "b"), as_stored("a", "b"), None, (3, [], [], []), id="nothing to change"
        ),
        pytest.param(
            wish("a", "B"), as_stored("a", "b"), None, (3, [], ["1"], []), id="one slice changes"
        ),
        pytest.param(
            wish("A", "B"), as_stored("a", "b"), None, (4, [], ["0", "1"], []), id="two change"
        ),
        pytest.param(
            wish("A", "B", "c"),
            as_stored("a", "b", "c"),
            None,
            (4, [], ["0", "1", "2"], []),
            id="all take part",
        ),
        pytest.param(
            wish("a", "b", "c"),
            as_stored("a", "b"),
            None,
            (4, [], ["0", "1"], ["2"]),
            id="one more",
        ),
        pytest.param(wish("a"), as_stored("a", "b"), None, (4, ["1"], ["0"], []), id="one less"),
        pytest.param(
            wish("a", "b"),
            {"00000-d-n": as_stored("a", "b")["00000-d-n"]},
            None,
            (3, [], [], ["1"]),
            id="one is missing",
        ),
        pytest.param(
            wish("A", "b"),
            {"00000-d-n": as_stored("a", "b")["00000-d-n"]},
            None,
            (3, [], ["0"], ["1"]),
            id="and one changes",
        ),
        pytest.param(
            wish("a", "b"),
            as_stored("a", "b") | {"x": as_stored("a")["00000-d-n"]},
            None,
            (3, ["0"], [], []),
            id="foreign name",
        ),
        pytest.param(
            wish("a", "B", "c"),
            as_stored("a", "b", "c", generation=3)
            | {"00001-d-n": as_stored("a", "b", "c", generation=4)["00001-d-n"]},
            None,
            (4, [], ["1", "0", "2"], []),
            id="what was left behind comes last",
        ),
        pytest.param(
            wish("a", "b"), {}, as_published(5, "a", "b"), (5, [], [], ["0", "1"]), id="wiped"
        ),
        pytest.param(
            wish("a", "c"),
            {},
            as_published(5, "a", "b"),
            (6, [], [], ["0", "1"]),
            id="wiped and changed",
        ),
        pytest.param(
            wish("a"),
            as_stored("a"),
            as_published(5, "a"),
            (5, [], ["0"], []),
            id="put back to an older generation",
        ),
        pytest.param(
            wish("b"),
            as_stored("a"),
            as_published(5, "a"),
            (6, [], ["0"], []),
            id="put back and changed",
        ),
        pytest.param(
            wish("b"),
            as_stored("a", generation=9),
            as_published(5, "a"),
            (9, [], ["0"], []),
            id="generation edited",
        ),
        pytest.param(
            wish("A", "B"),
            as_stored("a", "b", generation=2**63 - 1),
            None,
            (2**63 - 1, [], ["0", "1"], []),
            id="no higher generation",
        ),
        pytest.param(
            wish("a"),
            as_stored("a", "b", deletionTimestamp="2026-01-01T00:00:00Z"),
            None,
            (4, [], ["0"], []),
            id="a slice that waits for a finalizer is not deleted again",
        ),
    ],
)
def test_what_must_be_written(wanted, existing, last, expected):
    assert summarize(pool.compare(wanted, existing, last, {})) == expected


def test_a_slice_in_another_pool_is_made_anew():
    existing = as_stored("a")
    existing["00000-d-n"]["spec"]["pool"]["name"] = "other"
    changes = pool.compare(wish("a"), existing, None, {})
    assert [slice_["metadata"]["name"] for slice_ in changes.delete] == ["00000-d-n"]
    assert not changes.update
    assert not changes.create  # before it is gone, the name is taken


@pytest.mark.parametrize(
    ("field", "value"),
    [("resourceSliceCount", 7), ("generation", 2)],
)
def test_an_edited_pool_is_put_right(field: str, value: int):
    existing = as_stored("a", "b")
    existing["00001-d-n"]["spec"]["pool"][field] = value
    changes = pool.compare(wish("a", "b"), existing, None, {})
    assert "1" in summarize(changes)[2]
    assert {slice_.spec.pool.resource_slice_count for slice_ in changes.update} == {2}


@pytest.mark.parametrize(
    "owners", [[], None, [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "old"}]]
)
def test_a_wrong_owner_is_put_right_in_the_same_generation(owners):
    changes = pool.compare(wish("a", "b"), as_stored("a", "b", ownerReferences=owners), None, {})
    assert summarize(changes) == (3, [], ["0", "1"], [])
    assert changes.update[0].metadata.owner_references[0].uid == "node-uid"


def test_an_update_names_what_it_replaces_and_keeps_what_others_set():
    existing = as_stored("a", labels={"x": "1"}, annotations={"y": "2"})
    [update] = pool.compare(wish("b"), existing, None, {}).update
    assert (update.metadata.uid, update.metadata.resource_version) == ("uid-0", "100")
    assert (update.metadata.labels, update.metadata.annotations) == ({"x": "1"}, {"y": "2"})


def test_the_form_in_which_the_server_keeps_a_slice_is_as_good():
    existing = as_stored("a")
    del existing["00000-d-n"]["spec"]["devices"][0]["attributes"]
    wanted = wish("a")
    kept = pool.body(wanted[0].spec), pool.body(existing["00000-d-n"]["spec"])
    assert summarize(pool.compare(wanted, existing, None, {})) == (3, [], ["0"], [])
    assert summarize(pool.compare(wanted, existing, None, {"00000-d-n": kept})) == (3, [], [], [])
    assert summarize(pool.compare(wish("b"), existing, None, {"00000-d-n": kept})) == (
        3,
        [],
        ["0"],
        [],
    )


def test_null_and_empty_are_nothing():
    spec = {
        "driver": "d",
        "nodeName": "n",
        "devices": [],
        "sharedCounters": None,
        "pool": {"name": "n"},
    }
    assert pool.body(spec) == {"driver": "d", "nodeName": "n"}
    zero = DeviceAttribute(int_=0)
    [slice_] = wish("a")
    devices = [Device(name="g", attributes={"numa": zero, "off": DeviceAttribute(bool_=False)})]
    sent = pool.body(msgspec.structs.replace(slice_.spec, devices=devices))
    assert sent["devices"] == [
        {"name": "g", "attributes": {"numa": {"int": 0}, "off": {"bool": False}}}
    ]


@pytest.mark.parametrize("text", ["null", "{}", "[]", "a [] of {}"])
def test_text_that_reads_like_nothing_is_something(text: str):
    [slice_] = wish(text)
    assert pool.body(slice_.spec)["devices"] == [
        {"name": "gpu-0", "attributes": {"content": {"string": text}}}
    ]


@pytest.mark.parametrize("nothing", [None, {}, []])
@pytest.mark.parametrize("depth", range(4))
def test_nothing_is_left_out_wherever_it_stands(nothing: object, depth: int):
    """A list item stays, since its place counts; what holds nothing else is nothing itself."""
    value = nothing
    for _ in range(depth):
        value = {"inner": value, "list": []}
    content = {"driver": "d", "devices": [{"name": "g", "other": value, "kept": [[], 0, ""]}]}
    assert pool.body(content) == {
        "driver": "d",
        "devices": [{"name": "g", "kept": [None, 0, ""]}],
    }


def test_paths_of_what_was_not_kept():
    [slice_] = wish("a")
    devices = [
        Device(name=f"g{n}", capacity={"memory": DeviceCapacity(value="1Gi")}) for n in range(2)
    ]
    sent = pool.body(msgspec.structs.replace(slice_.spec, devices=devices))
    kept = msgspec.json.decode(msgspec.json.encode(sent))
    assert pool.differences(sent, kept) == []
    for device in kept["devices"]:
        del device["capacity"]
    assert pool.differences(sent, kept) == ["spec.devices[*].capacity"]
    kept["devices"].pop()
    assert pool.differences(sent, kept) == ["spec.devices"]


class Cluster:
    """Slices as they stand, to which changes are applied one write at a time."""

    def __init__(self) -> None:
        self.slices: dict[str, Raw] = {}
        self.version = 0

    def write(self, changes: pool.Changes) -> bool:
        """The first write; False if there is none."""
        for slice_ in changes.delete:
            del self.slices[slice_["metadata"]["name"]]
            return True
        for slice_ in changes.update + changes.create:
            self.version += 1
            raw = msgspec.to_builtins(slice_)
            raw["metadata"] |= {"uid": "u", "resourceVersion": str(self.version)}
            self.slices[slice_.metadata.name] = raw
            return True
        return False

    def seen(self) -> tuple[str, ...] | None:
        """What the scheduler takes the pool for; None while it is incomplete."""
        pools = [slice_["spec"]["pool"] for slice_ in self.slices.values()]
        top = max((p["generation"] for p in pools), default=0)
        current = [
            slice_
            for _, slice_ in sorted(self.slices.items())
            if slice_["spec"]["pool"]["generation"] == top
        ]
        if not current or {slice_["spec"]["pool"]["resourceSliceCount"] for slice_ in current} != {
            len(current)
        }:
            return None
        return tuple(
            slice_["spec"]["devices"][0]["attributes"]["content"]["string"] for slice_ in current
        )


contents = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(tuple)
events = st.lists(
    st.tuples(st.just("wish"), contents)
    | st.tuples(st.just("write"), st.integers(1, 3))
    | st.tuples(st.just("lose"), st.integers(0, 3))
    | st.tuples(st.sampled_from(["wipe", "restart"]), st.none()),
    max_size=25,
)


@pytest.mark.sampled
@settings(max_examples=samples.share(400), deadline=None)
@given(contents, events)
def test_the_scheduler_never_sees_half_of_a_change(
    first: tuple[str, ...], steps: list[tuple[str, Any]]
):
    cluster, last, current, wishes = Cluster(), None, first, {first}

    def write() -> bool:
        nonlocal last
        changes = pool.compare(wish(*current), cluster.slices, last, {})
        if changes.delete or changes.update or changes.create:
            last = as_published(changes.target.generation, *current)
        return cluster.write(changes)

    for kind, value in [*steps, ("write", 20)]:
        if kind == "wish":
            current = value
            wishes.add(current)
        elif kind == "lose" and cluster.slices:
            del cluster.slices[sorted(cluster.slices)[value % len(cluster.slices)]]
        elif kind == "wipe":
            cluster.slices.clear()
        elif kind == "restart":
            last = None
        else:
            for _ in range(value if kind == "write" else 0):
                if not write():
                    break
                if (whole := cluster.seen()) is not None:
                    assert whole in wishes
    assert cluster.seen() == current
    assert not write()


def test_the_names_of_the_slices_to_write() -> None:
    changes = pool.compare(wish("A"), as_stored("a", "b"), None, {})
    updated, deleted = changes.update[0], changes.delete[0]
    assert pool.slice_name(updated) == updated.metadata.name
    assert pool.slice_name(deleted) == deleted["metadata"]["name"]
    assert [pool.slice_name(write)[4:5] for write in changes.writes()] == ["1", "0"]
