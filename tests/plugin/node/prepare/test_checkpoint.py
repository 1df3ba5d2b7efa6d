import asyncio
import hashlib
import json
import multiprocessing
import os
import re
import resource
import stat

import pytest

from claimd.common import errors, metrics
from claimd.node.prepare import checkpoint, plan
from tests.support import apiserver
from tests.support.worlds import DRIVER, NODE, claim, gpu, inventory, result


def plan_claim(name="c", device=0):
    return plan.plan(
        claim(name, result(gpu(device).name)),
        driver=DRIVER,
        pool=NODE,
        inventory=inventory(),
        neighbours=(),
        now="2026-01-01T00:00:00Z",
    )


def checkpoint_of(claim_):
    return checkpoint.Checkpoint(version=checkpoint.VERSION, boot_id="boot-1", claim=claim_)


def folder(tmp_path):
    return checkpoint.CheckpointFolder(tmp_path, "boot-1")


async def store(checkpoints, *claims_):
    async with checkpoints.lock():
        for claim_ in claims_:
            await checkpoints.store(claim_)


async def read_claims(tmp_path):
    fresh = folder(tmp_path)
    async with fresh.lock():
        return fresh.claims


async def test_what_is_put_is_read_by_another_process(tmp_path):
    await store(folder(tmp_path), plan_claim("a"), plan_claim("b", 1))
    assert await read_claims(tmp_path) == {"uid-a": plan_claim("a"), "uid-b": plan_claim("b", 1)}


async def test_a_person_can_read_it(tmp_path):
    await store(folder(tmp_path), plan_claim())
    text = (tmp_path / "claims" / "uid-c.json").read_text()
    document = json.loads(text)
    assert (document["version"], document["bootID"], document["claim"]["name"]) == (
        1,
        "boot-1",
        "c",
    )
    assert text.count("\n") > 10
    assert not re.search(r"\b226\b", text), "device numbers are not identity"


async def test_it_is_for_us_alone(tmp_path):
    await store(folder(tmp_path), plan_claim())
    assert stat.S_IMODE((tmp_path / "claims" / "uid-c.json").stat().st_mode) == 0o600


async def test_a_checkpoint_whose_folder_could_not_be_synced_is_not_kept(tmp_path):
    checkpoints = folder(tmp_path)
    await store(checkpoints, plan_claim("a"))
    files, limits = checkpoints._files, resource.getrlimit(resource.RLIMIT_NOFILE)
    async with checkpoints.lock():
        files._syncing.acquire()
        storing = asyncio.create_task(checkpoints.store(plan_claim("b", 1)))
        await apiserver.until((tmp_path / "claims" / "uid-b.json").exists)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))  # the folder cannot be opened
        try:
            files._syncing.release()
            with pytest.raises(OSError, match="Too many open files"):
                await storing
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert list(checkpoints.claims) == ["uid-a"]
    assert os.listdir(tmp_path / "claims") == ["uid-a.json"]
    assert list(await read_claims(tmp_path)) == ["uid-a"]


async def test_a_commit_that_is_given_up_keeps_the_lock_until_it_has_ended(tmp_path):
    checkpoints = folder(tmp_path)
    await store(checkpoints, plan_claim("a"))
    pipe = tmp_path / "claims" / ".uid-b.json.new"

    async def commits():
        async with checkpoints.lock():
            os.mkfifo(pipe)  # the write waits until somebody reads
            os.link(pipe, tmp_path / "pipe")  # another may tidy the first name away
            await checkpoints.store(plan_claim("b"))

    commit = asyncio.create_task(commits())
    async with asyncio.timeout(30):
        while not (tmp_path / "pipe").exists():
            await asyncio.sleep(0.01)
    commit.cancel()
    other = folder(tmp_path)
    other._lock.patience = 0.2
    try:
        with pytest.raises(errors.ClaimError, match="another instance"):
            await store(other, plan_claim("d"))
    finally:
        reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
        await asyncio.wait([commit])
        os.close(reader)
    assert commit.cancelled()
    await store(other, plan_claim("d"))


async def test_removed_is_removed_for_everyone(tmp_path):
    checkpoints = folder(tmp_path)
    await store(checkpoints, plan_claim())
    async with checkpoints.lock():
        await checkpoints.remove("uid-c", uncleared=False)
        await checkpoints.remove("uid-c", uncleared=False)
    assert await read_claims(tmp_path) == {}


def sign(document):
    """A checkpoint as another version might write it: its checksum is right."""
    body = json.dumps(document, indent=1).removesuffix("\n}").encode()
    checksum = hashlib.sha256(body).hexdigest().encode()
    return body + b',\n "checksum": "sha256:' + checksum + b'"\n}\n'


def test_unknown_fields_of_a_later_version_are_no_damage():
    document = json.loads(checkpoint.encode(checkpoint_of(plan_claim())))
    del document["checksum"]
    text = sign(document | {"version": 2, "added": {"later": True}})
    assert checkpoint.decode(text).claim == plan_claim()


async def test_a_whole_file_that_is_not_understood_is_damaged(tmp_path, caplog):
    document = json.loads(checkpoint.encode(checkpoint_of(plan_claim())))
    del document["checksum"]
    await store(folder(tmp_path), plan_claim("a"))
    (tmp_path / "claims" / "uid-c.json").write_bytes(sign(document | {"claim": "c"}))
    assert list(await read_claims(tmp_path)) == ["uid-a"]
    assert "uid-c.json is damaged: it is whole but not understood: Expected" in caplog.text


def test_what_is_nested_too_deep_is_damaged():
    body = b'{"version":1,"x":' + b"[" * 100_000 + b"]" * 100_000
    text = body + checkpoint._CHECKSUM + hashlib.sha256(body).hexdigest().encode() + b'"\n}\n'
    with pytest.raises(ValueError, match="whole but not understood"):
        checkpoint.decode(text)


@pytest.mark.parametrize("cut", [0, 1, 50, -1, -2, -80])
def test_cut_short_is_noticed(cut):
    with pytest.raises(ValueError, match="checksum"):
        checkpoint.decode(checkpoint.encode(checkpoint_of(plan_claim()))[:cut])


def test_every_changed_byte_is_noticed():
    text = checkpoint.encode(checkpoint_of(plan_claim()))
    for position in range(len(text)):
        changed = bytearray(text)
        changed[position] ^= 1
        with pytest.raises(ValueError):
            checkpoint.decode(bytes(changed))


async def test_damaged_is_quarantine_and_the_rest_goes_on(tmp_path, caplog):
    await store(folder(tmp_path), plan_claim("a"), plan_claim("b", 1))
    (tmp_path / "claims" / "uid-a.json").write_text("{")
    assert list(await read_claims(tmp_path)) == ["uid-b"]
    assert "uid-a.json is damaged" in caplog.text
    assert [n for n in os.listdir(tmp_path / "claims") if n.startswith("uid-a.json.damaged-")]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"x" * (1024 * 1024 + 1), "it has 1,048,577 bytes, and 1,048,576 bytes is the most"),
        (b"x" * (1024 * 1024), "it has no checksum"),
    ],
    ids=["one byte above", "at the edge"],
)
async def test_a_file_that_is_too_large_is_kept_apart_unread(tmp_path, caplog, content, reason):
    """What an older version let a claim write must not keep the plugin from coming up."""
    await store(folder(tmp_path), plan_claim("a"), plan_claim("b", 1))
    (tmp_path / "claims" / "uid-a.json").write_bytes(content)
    assert list(await read_claims(tmp_path)) == ["uid-b"]
    assert reason in caplog.text


async def test_what_is_damaged_is_told_and_counted(tmp_path):
    await store(folder(tmp_path), plan_claim("a"), plan_claim("b", 1))
    (tmp_path / "claims" / "uid-a.json").write_text("{")
    told = []
    before = metrics.CHECKPOINTS_DAMAGED.values[()]
    checkpoints = checkpoint.CheckpointFolder(tmp_path, "boot-1", told.append)
    async with checkpoints.lock():
        pass
    async with checkpoints.lock():
        pass
    assert metrics.CHECKPOINTS_DAMAGED.values[()] == before + 1
    assert metrics.CHECKPOINTS.values[()] == 1
    (words,) = told
    assert "uid-a.json was damaged: it has no checksum" in words
    assert "uid-a.json.damaged-" in words


async def test_a_checkpoint_under_another_claims_name_is_damaged(tmp_path):
    await store(folder(tmp_path), plan_claim("a"))
    (tmp_path / "claims" / "uid-a.json").rename(tmp_path / "claims" / "uid-x.json")
    assert await read_claims(tmp_path) == {}


async def test_a_write_that_never_came_to_its_rename_is_no_checkpoint(tmp_path):
    await store(folder(tmp_path), plan_claim("a"))
    (tmp_path / "claims" / ".uid-b.json.new").write_bytes(
        checkpoint.encode(checkpoint_of(plan_claim("b")))
    )
    assert list(await read_claims(tmp_path)) == ["uid-a"]
    assert os.listdir(tmp_path / "claims") == ["uid-a.json"]


async def test_other_files_in_the_folder_are_left_alone(tmp_path):
    await store(folder(tmp_path), plan_claim("a"))
    others = {".keep", "notes.new", "uid-a.json.damaged-1"}
    for name in others:
        (tmp_path / "claims" / name).write_text("x")
    assert list(await read_claims(tmp_path)) == ["uid-a"]
    assert set(os.listdir(tmp_path / "claims")) == {"uid-a.json", *others}


async def test_a_failed_put_leaves_the_claim_unprepared(tmp_path):
    checkpoints = folder(tmp_path)
    await store(checkpoints, plan_claim("a"))
    (tmp_path / "claims" / ".uid-b.json.new").mkdir()  # the write will fail
    async with checkpoints.lock():
        with pytest.raises(OSError):
            await checkpoints.store(plan_claim("b"))
        assert list(checkpoints.claims) == ["uid-a"]
    assert "uid-b.json" not in os.listdir(tmp_path / "claims")


async def test_a_disk_that_failed_and_writes_again_is_no_trouble(tmp_path):
    checkpoints = folder(tmp_path)
    blocked = tmp_path / "claims" / ".uid-b.json.new"
    blocked.mkdir(parents=True)
    with pytest.raises(OSError):
        await store(checkpoints, plan_claim("b"))
    assert "cannot be read or written" in checkpoints.trouble.unready_reason()

    # The next write that succeeds proves it. Nobody has to try for this sake.
    blocked.rmdir()
    await store(checkpoints, plan_claim("b"))
    assert checkpoints.trouble.unready_reason() == ""


async def test_counts_as_prepared_before_it_is_written(tmp_path):
    checkpoints = folder(tmp_path)
    async with checkpoints.lock():
        writing = asyncio.create_task(checkpoints.store(plan_claim("a")))
        await asyncio.sleep(0)
        assert "uid-a" in checkpoints.claims
        await writing


async def test_instances_see_each_others_commits(tmp_path):
    first, second = folder(tmp_path), folder(tmp_path)
    await store(first, plan_claim("a"))
    await store(second, plan_claim("b", 1))
    async with first.lock():
        assert set(first.claims) == {"uid-a", "uid-b"}
        await first.remove("uid-b", uncleared=False)
    async with second.lock():
        assert set(second.claims) == {"uid-a"}


async def test_instances_exclude_each_other(tmp_path):
    first, second = folder(tmp_path), folder(tmp_path)
    async with first.lock():
        waiting = asyncio.create_task(store(second, plan_claim("b")))
        done, _ = await asyncio.wait([waiting], timeout=0.05)
        assert not done
    await asyncio.wait_for(waiting, 30)


async def test_calls_of_one_instance_do_not(tmp_path):
    checkpoints = folder(tmp_path)
    async with checkpoints.lock(), asyncio.timeout(30), checkpoints.lock():
        assert checkpoints.claims == {}


async def test_a_frozen_instance_is_named(tmp_path):
    first, second = folder(tmp_path), folder(tmp_path)
    second._lock.patience = 0.05
    async with first.lock():
        with pytest.raises(errors.ClaimError, match=r"another instance .* held .*claims\.lock"):
            async with second.lock():
                pass


def _hold_and_die(path, ready):
    async def main():
        async with folder(path).lock():
            ready.set()
            os._exit(1)

    asyncio.run(main())


async def test_a_dead_instance_holds_nothing(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=_hold_and_die, args=(tmp_path, ready))
    process.start()
    process.join(50)
    assert ready.is_set()
    await asyncio.wait_for(store(folder(tmp_path), plan_claim()), 30)


async def test_who_only_looks_changes_nothing(tmp_path):
    assert checkpoint.read_claims(tmp_path) == ([], [])
    await store(folder(tmp_path), plan_claim("a"), plan_claim("b", 1))
    claims = tmp_path / "claims"
    (claims / "uid-x.json").write_text("{}")
    (claims / ".uid-y.json").write_text("half")
    (claims / "uid-z.gone").write_text("")
    before = sorted(os.listdir(claims))
    readable, [problem] = checkpoint.read_claims(tmp_path)
    assert readable == [plan_claim("a"), plan_claim("b", 1)]
    assert problem.startswith(f"{claims}/uid-x.json: it has no checksum")
    assert sorted(os.listdir(claims)) == before


def test_a_folder_that_cannot_be_listed_is_told(tmp_path):
    (tmp_path / "claims").write_text("")
    assert checkpoint.read_claims(tmp_path) == ([], [f"{tmp_path}/claims: Not a directory"])


async def test_a_claim_that_is_being_removed_is_left_alone_by_others(tmp_path):
    """They would write its CDI file again, which is removed before its checkpoint."""
    checkpoints = folder(tmp_path)
    await store(checkpoints, plan_claim())
    seen = []
    async with checkpoints.lock():
        await checkpoints.remove(
            "uid-c", uncleared=False, sync_first=lambda: seen.append(set(checkpoints.in_flight))
        )
    assert (seen, checkpoints.in_flight) == ([{"uid-c"}], set())
