"""Each bug of the checkpoints that the crash campaign found. Disks fail seldom, so strace makes a real
process meet it.
"""

import json
import os
import random
import resource
import shutil
import subprocess
import sys
import textwrap

import pytest

from claimd.node.prepare import checkpoint, plan
from tests.faults import disk, recording, strace
from tests.support.worlds import DRIVER, NODE, claim, gpu, inventory, result

traced = pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")


def plan_claim(name="c", device=0):
    return plan.plan(
        claim(name, result(gpu(device).name)),
        driver=DRIVER,
        pool=NODE,
        inventory=inventory(),
        neighbours=(),
        now="2026-01-01T00:00:00Z",
    )


def folder(tmp_path):
    return checkpoint.CheckpointFolder(tmp_path / "plugins" / DRIVER, "boot-1")


async def store(checkpoints, *claims_):
    async with checkpoints.lock():
        for claim_ in claims_:
            await checkpoints.store(claim_)


async def read_uids(checkpoints):
    async with checkpoints.lock():
        return set(checkpoints.claims)


def on_disk(tmp_path):
    names = os.listdir(tmp_path / "plugins" / DRIVER / "claims")
    return {name.removesuffix(".json") for name in names if name.endswith(".json")}


def run(tmp_path, script, *inject, paths=(), trace=strace.STORING):
    """Runs the script in a process of its own, under strace; `checkpoints`, `put`, `seen` and two
    claims are at hand.
    """
    (tmp_path / "plugins").mkdir(exist_ok=True)
    for name in ("c", "d"):
        text = checkpoint.encode(
            checkpoint.Checkpoint(version=1, boot_id="boot-1", claim=plan_claim(name))
        )
        (tmp_path / f"{name}.json").write_bytes(text)
    log = tmp_path / "strace"
    options = [
        "-f",
        "-y",
        "-ttt",
        "-s",
        "100000",
        "-o",
        str(log),
        "-e",
        f"trace={trace}",
        "--seccomp-bpf",
    ]
    options += [word for path in paths for word in ("-P", str(path))]
    options += [word for fault in inject for word in ("-e", f"inject={fault}")]
    prelude = f"""
        import asyncio, json, os
        from concurrent.futures import ThreadPoolExecutor
        from pathlib import Path
        from claimd.node.prepare import checkpoint
        place = Path({str(tmp_path)!r})
        checkpoints = checkpoint.CheckpointFolder(place / "plugins" / {DRIVER!r}, "boot-1")
        c, d = (checkpoint.decode((place / f"{{n}}.json").read_bytes()).claim for n in "cd")
        async def put(*claims):
            async with checkpoints.lock():
                for claim in claims:
                    await checkpoints.store(claim)
        async def seen():
            async with checkpoints.lock():
                return sorted(checkpoints.claims)
    """
    text = textwrap.dedent(prelude) + textwrap.dedent(script)
    command = ["strace", *options, sys.executable, "-c", text]
    out = subprocess.run(command, capture_output=True, text=True, check=False, timeout=150)
    assert out.returncode == 0, out.stderr
    return out.stdout, log


def after_power_loss(log, root):
    """The uids recorded on a disk that holds what was synced and nothing else. The root itself is
    durable.
    """
    recorded = recording.Recording(name="", root=str(root), states=[], claims={}, steps=[])
    recorded.steps = list(recording.steps(strace.read(log), 1, str(root)))
    chooser = disk.Chooser(entries=0.0, data=0.0, random=random.Random(1))
    tree = recorded.disk_at(len(recorded.steps)).remains(chooser)
    for name in (DRIVER, "claims"):
        tree = tree.get(name, {})
    return sorted(name.removesuffix(".json") for name in tree if name.endswith(".json"))


# ---------------------------------------------------------------- two instances


async def test_an_announcement_that_failed_does_not_hide_what_others_commit(tmp_path):
    first, second = folder(tmp_path), folder(tmp_path)
    await store(first, plan_claim("a", 0))
    assert await read_uids(second) == {"uid-a"}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            await store(first, plan_claim("b", 1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    await store(second, plan_claim("c", 2))
    assert await read_uids(first) == {"uid-a", "uid-c"}


@traced
def test_the_lock_is_kept_until_a_write_that_outlives_its_call_has_ended(tmp_path):
    script = """
        async def main():
            writing = asyncio.ensure_future(put(c))
            while not any((place / "plugins").rglob("*.new")):
                await asyncio.sleep(0.001)
            await asyncio.sleep(0)  # the end of the process cancels it in the middle of the sync
        asyncio.run(main())
    """
    _, log = run(tmp_path, script, "fsync:delay_enter=700000")
    calls = [(call.name, call.arguments) for call in strace.read(log)]
    renamed = max(i for i, (name, _) in enumerate(calls) if name.startswith("rename"))
    released = max(
        i for i, (name, given) in enumerate(calls) if name == "close" and "claims.lock" in given
    )
    assert renamed < released


# ---------------------------------------------------------------- what was not synced


@traced
def test_the_first_checkpoint_of_a_node_survives_a_loss_of_power(tmp_path):
    _, log = run(tmp_path, "asyncio.run(put(c))")
    assert after_power_loss(log, tmp_path / "plugins") == ["uid-c"]


@traced
def test_a_checkpoint_that_a_dead_writer_did_not_sync_is_durable_before_it_is_used(tmp_path):
    script = """
        folder = place / "plugins" / %r / "claims"
        folder.mkdir(parents=True)
        with open(folder / ".uid-c.new", "wb", buffering=0) as file:
            file.write((place / "c.json").read_bytes())
            os.fsync(file.fileno())
        os.rename(folder / ".uid-c.new", folder / "uid-c.json")  # and here its writer died
        assert asyncio.run(seen()) == ["uid-c"]
    """
    _, log = run(tmp_path, script % DRIVER)
    assert after_power_loss(log, tmp_path / "plugins") == ["uid-c"]


@traced
def test_a_checkpoint_that_a_dead_writer_removed_does_not_come_back(tmp_path):
    script = """
        asyncio.run(put(c))
        for folder in ("plugins", "plugins/%s", "plugins/%s/claims"):
            os.fsync(os.open(place / folder, os.O_RDONLY))
        os.unlink(place / "plugins" / %r / "claims" / "uid-c.json")  # and here its writer died
        checkpoints = checkpoint.CheckpointFolder(place / "plugins" / %r, "boot-1")
        assert asyncio.run(seen()) == []
    """
    _, log = run(tmp_path, script % (DRIVER, DRIVER, DRIVER, DRIVER))
    assert after_power_loss(log, tmp_path / "plugins") == []


# ---------------------------------------------------------------- a sick disk


@traced
@pytest.mark.parametrize(("before", "fault"), [("d", ["unlink:error=EROFS"]), ("c", [])])
def test_what_could_not_be_taken_back_is_known(tmp_path, before, fault):
    """The sync of the folder fails, and so does the removal of what may not be durable; or what it
    replaced is gone.
    """
    script = """
        async def main():
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))  # strace counts for each thread
            for _ in range(2):
                await put(%s)
            try:
                await put(c)
            except OSError:
                pass
            else:
                raise AssertionError("the sync was to fail")
            try:
                print(json.dumps(await seen()))
            except OSError:  # the disk is still sick when what was lost is written again
                print(json.dumps(await seen()))
        asyncio.run(main())
    """
    place = tmp_path / "plugins" / DRIVER / "claims"
    out, _ = run(
        tmp_path,
        script % before,
        "fsync:error=EIO:when=3",
        *fault,
        paths=[place, place / "uid-c.json"],
    )
    assert set(json.loads(out)) == on_disk(tmp_path)


@traced
def test_a_file_system_that_cannot_sync_folders_has_everything_synced(tmp_path):
    place = tmp_path / "plugins" / DRIVER
    script = """
        asyncio.run(put(c))
        print(json.dumps(asyncio.run(seen())))
    """
    paths = [place, place / "claims", place.parent]
    out, log = run(tmp_path, script, "fsync:error=EINVAL", paths=paths, trace="fsync,sync")
    assert json.loads(out) == ["uid-c"]
    assert on_disk(tmp_path) == {"uid-c"}
    assert "EINVAL" in log.read_text()


@traced
@pytest.mark.parametrize("call", ["openat", "read", "fstat,newfstatat"])
def test_an_error_of_the_disk_costs_the_claim_of_its_file_alone(tmp_path, call):
    """After a start the claim is unreadable; a running process keeps it."""
    script = """
        import logging
        logging.basicConfig()
        async def main():
            folder = place / "plugins" / %r / "claims"
            folder.mkdir(parents=True)
            for name in "cd":
                os.rename(place / f"{name}.json", folder / f"uid-{name}.json")
            for _ in range(2):
                assert await seen() == ["uid-d"], await seen()
                assert "cannot be read: Input/output error" in checkpoints.trouble.unready_reason()
            checkpoints.claims["uid-c"] = c
            await put(d)
            checkpoints._doubtful.add("uid-c")
            assert await seen() == ["uid-c", "uid-d"]
        asyncio.run(main())
    """
    place = tmp_path / "plugins" / DRIVER / "claims"
    run(
        tmp_path,
        script % DRIVER,
        f"{call}:error=EIO",
        paths=[place / "uid-c.json"],
        trace=call,
    )


@pytest.mark.parametrize("gone", ["", "claims", "claims/uid-a.json", "claims.lock"])
async def test_what_is_deleted_under_us_is_written_again(tmp_path, gone):
    """Pods hold the claims, whatever somebody has done to the files; the lock alone tells nothing
    about them.
    """
    checkpoints, other = folder(tmp_path), folder(tmp_path)
    await store(checkpoints, plan_claim("a", 0))
    await read_uids(other)
    path = tmp_path / "plugins" / DRIVER / gone
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert checkpoints.is_stale()
    await store(checkpoints, plan_claim("b", 1))
    assert on_disk(tmp_path) == {"uid-a", "uid-b"}
    assert (
        await read_uids(folder(tmp_path))
        == await read_uids(other)
        == await read_uids(checkpoints)
        == {"uid-a", "uid-b"}
    )
    assert not checkpoints.is_stale()


async def test_another_folder_in_its_place_gets_our_checkpoints(tmp_path):
    checkpoints = folder(tmp_path)
    await store(checkpoints, plan_claim("a", 0))
    place = tmp_path / "plugins" / DRIVER / "claims"
    place.rename(place.with_name("old"))
    place.mkdir()
    assert checkpoints.is_stale()
    assert await read_uids(checkpoints) == {"uid-a"} == on_disk(tmp_path)


async def test_what_another_instance_removed_is_not_written_again(tmp_path):
    checkpoints, other = folder(tmp_path), folder(tmp_path)
    await store(checkpoints, plan_claim("a", 0), plan_claim("b", 1))
    await read_uids(other)
    async with other.lock():
        await other.remove("uid-a", uncleared=False)
    assert await read_uids(checkpoints) == {"uid-b"} == on_disk(tmp_path)


async def test_what_is_uncleared_is_known_to_the_next(tmp_path):
    checkpoints = folder(tmp_path)
    await store(checkpoints, plan_claim("a", 0), plan_claim("b", 1))
    async with checkpoints.lock():
        await checkpoints.remove("uid-a", uncleared=True)
        await checkpoints.remove("uid-b", uncleared=False)
    following = folder(tmp_path)
    assert await read_uids(following) == set()
    assert following.uncleared == {"uid-a": plan_claim("a", 0)}
    async with following.lock():
        following.mark_cleared("uid-a")
    assert os.listdir(tmp_path / "plugins" / DRIVER / "claims") == []


async def test_a_claim_that_is_prepared_again_has_nothing_to_clear_of_before(tmp_path):
    checkpoints = folder(tmp_path)
    await store(checkpoints, plan_claim("a", 0))
    place = tmp_path / "plugins" / DRIVER / "claims"
    async with checkpoints.lock():
        await checkpoints.remove("uid-a", uncleared=True)
    left = (place / "uid-a.gone").read_bytes()
    await store(checkpoints, plan_claim("a", 0))
    assert os.listdir(place) == ["uid-a.json"]
    (place / "uid-a.gone").write_bytes(left)  # what a loss of power may bring back
    following = folder(tmp_path)
    assert await read_uids(following) == {"uid-a"}
    assert following.uncleared == {}
    assert os.listdir(place) == ["uid-a.json"]


async def test_a_lock_without_a_folder_is_no_trouble(tmp_path):
    """After a loss of power one may be there without the other."""
    (tmp_path / "plugins" / DRIVER).mkdir(parents=True)
    (tmp_path / "plugins" / DRIVER / "claims.lock").write_bytes(b"\1")
    await store(folder(tmp_path), plan_claim("a", 0))
    assert on_disk(tmp_path) == {"uid-a"}


# ---------------------------------------------------------------- a slow disk


@traced
def test_32_claims_of_a_call_wait_for_a_slow_disk_hardly_longer_than_one(tmp_path):
    script = """
        import time
        import msgspec
        from claimd.node import event_loop
        async def timed(*claims):
            began = time.monotonic()
            async with checkpoints.lock():
                await asyncio.gather(*(checkpoints.store(claim) for claim in claims))
            return time.monotonic() - began
        one, many = [], []
        async def main():
            await timed(d)  # makes the folder
            def copies(turn, count):
                return (msgspec.structs.replace(c, uid=f"u{turn}-{count}-{n}") for n in range(count))
            while len(one) < 3 or (min(many) > 2 * min(one) and len(one) < 40):  # the best: others use the machine
                one.append(await timed(*copies(len(one), 1)))
                many.append(await timed(*copies(len(many), 32)))
            print(json.dumps([min(one), min(many), len(one)]))
        with asyncio.Runner(loop_factory=event_loop.Loop) as runner:
            runner.run(main())
    """
    out, log = run(tmp_path, script, "fsync:delay_exit=30000", trace="fsync")
    single, many, turns = json.loads(out)
    assert single >= 0.06, "two syncs, one after the other"
    assert many <= 2 * single, f"one {single * 1e3:.1f} ms, 32 {many * 1e3:.1f} ms"
    calls = [call.name for call in strace.read(log)]
    assert calls.count("fsync") <= 3 + 2 + turns * (2 + 32 + 6), (
        "the folder is synced for all that wait"
    )
