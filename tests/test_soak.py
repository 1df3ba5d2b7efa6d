"""The soak's judgement: each promise broken once in a history, and said."""

import json
import os

import pytest

from tests.soak import folders, plugin, promises
from tests.soak.folders import Glance, Held
from tests.soak.history import History

PUBLISHED = {"gpu-a": "0000:01:00.0", "gpu-b": "0000:02:00.0"}
A = Held(devices=frozenset({("gpu-a", "0000:01:00.0")}))
B = Held(devices=frozenset({("gpu-b", "0000:02:00.0")}))


def claim(history, device="gpu-a", at=1.0, kind="MODIFIED"):
    status = {
        "allocation": {"devices": {"results": [{"driver": "gpu.claimd.dev", "device": device}]}}
    }
    history.claim(kind, {"metadata": {"uid": "u1", "name": "c1"}, "status": status}, at)


def pod(history, at, kind="MODIFIED", **container):
    main = {"containerID": "x", "state": {"running": {}}} | container
    status = {"containerStatuses": [main], "conditions": [{"type": "Ready", "status": "True"}]}
    status["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "c1"}]
    document = {
        "metadata": {"uid": "p", "name": "p1"},
        "spec": {"resourceClaims": [{"name": "gpu"}]},
        "status": status,
    }
    history.pod(kind, document, at)


def story(*glances, said="given\nCLAIMD_GPU_A=0000:01:00.0\n"):
    """A pod that runs from 10 to 20; glances are pairs of what spec and record hold, from 9 on, one
    a second.
    """
    history = History()
    claim(history)
    for number in range(14):
        spec, record = glances[min(number, len(glances) - 1)]
        specs, records = ({"u1": spec} if spec else {}), ({"u1": record} if record else {})
        history.glance(Glance(at=9.0 + number, specs=specs, records=records))
        if number == 1:
            pod(history, 10.0)
    pod(history, 20.0, state={"terminated": {"message": said}})
    return promises.judge(history, PUBLISHED, 30.0)


def kinds(problems):
    return sorted({each.kind for each in problems})


def test_a_good_history_has_no_problem():
    assert story((A, A)) == []


@pytest.mark.parametrize(
    ("glances", "kind"),
    [
        (
            ((A, A), (A, A), (A, A), (None, A), (A, A)),
            "not kept",
        ),  # one glance without its CDI file
        (((A, A), (A, A), (A, A), (A, None), (A, A)), "not kept"),
        (((None, None),), "not kept"),
        (((B, A),), "not as allocated"),
        (((A, B),), "differs"),
        (((Held(devices=frozenset({("gpu-a", "0000:02:00.0")})), A),), "wrong address"),
    ],
)
def test_what_a_claim_had(glances, kind):
    assert kind in kinds(story(*glances))


@pytest.mark.parametrize("said", ["given\n", "given\nCLAIMD_GPU_B=0000:02:00.0\n"])
def test_what_a_container_was_given(said):
    assert kinds(story((A, A), said=said)) == ["given another"]


def test_words_of_a_container_that_never_ran_are_not_its_own():
    assert story((A, A), said="failed to start: CDI device not found, x=y") == []


@pytest.mark.parametrize(
    ("glance", "kind"),
    [
        (Glance(at=1, specs={"u1": A}), "no record"),
        (Glance(at=1, specs={"u1": A, "u2": A}, records={"u1": A, "u2": A}), "twice"),
        (Glance(at=1, records={"u1": Held(devices=frozenset(), damaged="cut short")}), "damaged"),
    ],
)
def test_a_glance(glance, kind):
    judge = promises.Judge()
    judge.glance(glance)
    judge.glance(glance)
    assert [each.kind for each in judge.problems.values()] == [kind]


def test_admin_access_may_look_at_a_device_in_use():
    judge = promises.Judge()
    admin = Held(devices=A.devices, admin=True)
    judge.glance(Glance(at=1, specs={"u1": A, "u2": A}, records={"u1": A, "u2": admin}))
    assert not judge.problems


def test_the_end():
    history = History()
    status = {"devices": [{"driver": "gpu.claimd.dev", "device": "gpu-a"}]}
    history.claim("MODIFIED", {"metadata": {"uid": "u1", "name": "c1"}, "status": status}, 1.0)
    pod(history, 1.0)
    history.pods["p1"].running = history.pods["p1"].created + promises.RUN_PATIENCE + 1
    assert kinds(promises.at_the_end(history, ["claims/u1.json"], ["2 DRA sockets"])) == [
        "late",
        "left in status",
        "left over",
        "stuck",
    ]


def write(folder, name, document):
    new = folder / f".{name}.new"
    new.write_text(document if isinstance(document, str) else json.dumps(document))
    os.rename(new, folder / name)


def test_the_eye_reads_what_is_there_and_sees_it_change(tmp_path):
    cdi, records = tmp_path / "cdi", tmp_path / "claims"
    cdi.mkdir()
    records.mkdir()
    eye = folders.Eye(cdi, records)
    assert eye.look(1).specs == {}
    variables = {
        "containerEdits": {"env": ["CLAIMD_GPU_A=0000:01:00.0", "NVIDIA_VISIBLE_DEVICES=void"]}
    }
    name = "claimd.dev-claim_gpu.claimd.dev_u1.json"
    write(cdi, name, {"devices": [{"name": "u1-gpu-a", **variables}]})
    write(
        records,
        "u1.json",
        {"claim": {"uid": "u1", "devices": [{"device": "gpu-a", "address": "0000:01:00.0"}]}},
    )
    assert (eye.look(2).specs, eye.look(2).records) == ({"u1": A}, {"u1": A})
    write(cdi, name, '{"devices": [')
    assert eye.look(3).specs["u1"].damaged
    os.unlink(cdi / name)
    os.unlink(records / "u1.json")
    assert (eye.look(4).specs, eye.look(4).records) == ({}, {})


@pytest.mark.parametrize(
    ("more", "word"), [((9, 0, 0), "files"), ((0, 70, 0), "threads"), ((0, 0, 9000), "memory")]
)
def test_growth(more, word):
    def life(files, threads, kib):
        return [
            plugin.Sample(
                at=at,
                files=20 + files * at // 100,
                threads=9 + threads * at // 100,
                kib=24000 + kib * at // 100,
            )
            for at in range(0, 100, 2)
        ]

    assert plugin.growth(life(0, 0, 0)).sentence == ""
    assert word in plugin.growth(life(*(3 * each for each in more))).sentence
    assert plugin.growth(life(0, 0, 0)[:12]) is None
