"""Containers are real processes: their environment, their end, and that none is left."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from claimd.sim.runtime import bundle, cdi_cache, cdi_spec, container, executed, runtime
from tests.support.apiserver import until

SPEC = {
    "cdiVersion": "0.5.0",
    "kind": "example.com/gpu",
    "devices": [
        {
            "name": "one",
            "containerEdits": {
                "env": ["GPU=one"],
                "deviceNodes": [
                    {"path": "/dev/example/gpu1", "type": "c", "major": 195, "minor": 7}
                ],
            },
        }
    ],
}


def order(*command, name="main", **more):
    return bundle.ContainerConfig(name=name, command=command, **more)


def spec(tmp_path, **more):
    (tmp_path / "cdi").mkdir(exist_ok=True)
    (tmp_path / "cdi" / "example.json").write_text(json.dumps(SPEC | more))


def rt(tmp_path, **settings):
    return runtime.Runtime(tmp_path / "run", [tmp_path / "cdi"], **settings)


def alive(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return False


async def test_a_command_its_log_and_its_code(tmp_path):
    async with rt(tmp_path) as runtime_:
        sandbox = runtime_.create("u", "pod")
        ends = []
        sandbox.on_exit = lambda: ends.append(1)
        command = order(
            "sh",
            "-c",
            "echo out; echo err >&2; echo $A $HOSTNAME; exit 3",
            env={"A": "b"},
            hostname="pod",
        )
        container_ = await runtime_.start(sandbox, command)
        await until(lambda: ends)
        assert container_.exit_code == 3
        assert runtime_.logs("u", "main").split("\n") == ["out", "err", "b pod", ""]


async def test_the_guard_is_told_of_a_process_group_until_all_of_it_is_gone(tmp_path):
    """A process group number may be reused later, and must not be killed then."""
    told = []
    files = bundle.Bundle(
        order("true"), cdi_cache.InjectedEdits(), tmp_path / "one", namespace=False
    )
    container_ = container.Container(files)
    await container_.start(lambda sign, group: told.append((sign, group)))
    await container_.ended.wait()
    assert told == [("+", container_.pid), ("-", container_.pid)]


async def test_a_runtime_finds_out_whether_containers_can_have_mounts_of_their_own(tmp_path):
    probe = await asyncio.create_subprocess_exec(
        *executed.PYTHON, executed.LAUNCH, "probe", stderr=asyncio.subprocess.DEVNULL
    )
    possible = await probe.wait() == 0
    async with rt(tmp_path) as runtime_:
        assert runtime_.namespace is possible
    async with rt(tmp_path, namespace=False) as runtime_:
        assert runtime_.namespace is False


async def test_a_container_has_what_cdi_gives_it(tmp_path):
    spec(tmp_path)
    async with rt(tmp_path) as runtime_:
        sandbox = runtime_.create("u", "pod")
        look = "echo $GPU; test -c /dev/example/gpu1 && stat -c %t:%T /dev/example/gpu1; echo x > /dev/null && ls /dev"
        container_ = await runtime_.start(
            sandbox, order("sh", "-c", look, cdi_devices=("example.com/gpu=one",) * 2)
        )
        await container_.ended.wait()
        seen = container_.output().split()
        assert seen[0] == "one"
        assert container_.devices == ("/dev/example/gpu1",)
        if runtime_.namespace:
            assert seen[1] == "c3:7"
            assert (
                {"null", "example", "fd"} <= set(seen) and "sda" not in seen and "mem" not in seen
            )
        assert not Path("/dev/example").exists()


async def test_without_root_there_is_a_picture(tmp_path):
    spec(tmp_path)
    async with rt(tmp_path, namespace=False) as runtime_:
        sandbox = runtime_.create("u", "pod")
        container_ = await runtime_.start(
            sandbox,
            order("sh", "-c", "cat rootfs/dev/example/gpu1", cdi_devices=("example.com/gpu=one",)),
        )
        await container_.ended.wait()
        assert container_.output() == "c 195:7 rwm\n"


async def test_mounts_are_there_and_only_there(tmp_path):
    (tmp_path / "lib.so").write_text("of the host")
    edits = {
        "mounts": [
            {
                "hostPath": f"{tmp_path}/lib.so",
                "containerPath": "/usr/lib/nothing/here/lib.so",
                "options": ["ro", "bind"],
            }
        ]
    }
    spec(tmp_path, containerEdits=edits)
    async with rt(tmp_path) as runtime_:
        if not runtime_.namespace:
            pytest.skip("no mounts of our own without root")
        sandbox = runtime_.create("u", "pod")
        command = "cat /usr/lib/nothing/here/lib.so; echo x > /usr/lib/nothing/here/lib.so"
        container_ = await runtime_.start(
            sandbox, order("sh", "-c", command, cdi_devices=("example.com/gpu=one",))
        )
        await container_.ended.wait()
        assert container_.output().startswith("of the host") and "Read-only" in container_.output()
        assert not Path("/usr/lib/nothing").exists()


async def test_what_a_runtime_says_of_devices_that_are_not_there(tmp_path):
    async with rt(tmp_path) as runtime_:
        sandbox = runtime_.create("u", "pod")
        with pytest.raises(
            cdi_spec.InvalidSpec,
            match=r"unresolvable CDI devices example.com/gpu=two \(no spec file has them\)",
        ):
            await runtime_.start(sandbox, order("true", cdi_devices=("example.com/gpu=two",)))
        assert not sandbox.containers.get("main")


async def test_a_command_that_is_not_there(tmp_path):
    async with rt(tmp_path) as runtime_:
        sandbox = runtime_.create("u", "pod")
        with pytest.raises(container.StartError, match="No such file"):
            await runtime_.start(sandbox, order("no-such-command"))
        assert sandbox.latest("main").exit_code == 125


async def test_a_source_that_is_not_there_is_the_runtimes_error(tmp_path):
    spec(tmp_path, containerEdits={"mounts": [{"hostPath": "/no/such", "containerPath": "/mnt/x"}]})
    async with rt(tmp_path) as runtime_:
        if not runtime_.namespace:
            pytest.skip("no mounts of our own without root")
        with pytest.raises(container.StartError, match="/no/such does not exist"):
            await runtime_.start(
                runtime_.create("u", "pod"), order("true", cdi_devices=("example.com/gpu=one",))
            )


async def test_stop_is_a_term_and_then_a_kill(tmp_path):
    async with rt(tmp_path) as runtime_:
        sandbox = runtime_.create("u", "pod")
        polite = await runtime_.start(sandbox, order("sleep", "infinity", name="polite"))
        rude = await runtime_.start(
            sandbox, order("sh", "-c", "trap '' TERM; sleep 100 & wait; wait", name="rude")
        )
        await until(
            lambda: (
                "sleep" in Path(f"/proc/{rude.pid}/task/{rude.pid}/children").read_text()
                or _children(rude)
            )
        )
        children = _children(rude)
        await runtime_.stop(sandbox, 0.3)
        assert (polite.exit_code, rude.exit_code) == (143, 137)
        await until(lambda: not any(alive(pid) for pid in children))


def _children(container_):
    return [
        int(pid)
        for pid in Path(f"/proc/{container_.pid}/task/{container_.pid}/children")
        .read_text()
        .split()
    ]


KILLED = """
import asyncio, sys
from pathlib import Path
from claimd.sim.runtime import bundle, runtime
async def main():
    async with runtime.Runtime(Path(sys.argv[1]), []) as r:
        command = ("sh", "-c", "sleep 1000 & echo $! $$; wait")
        one = await r.start(r.create("u", "pod"), bundle.ContainerConfig(name="main", command=command))
        print(one.bundle.log, flush=True)
        await asyncio.sleep(1000)
asyncio.run(main())
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_none_is_left_behind_however_we_end(tmp_path, how):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED, tmp_path / "run", stdout=asyncio.subprocess.PIPE
    )
    log = Path((await process.stdout.readline()).decode().strip())
    await until(lambda: len(log.read_text().split()) == 2)
    pids = [int(pid) for pid in log.read_text().split()]
    assert all(alive(pid) for pid in pids)
    process.send_signal(how)
    await process.wait()
    await until(lambda: not any(alive(pid) for pid in pids))
