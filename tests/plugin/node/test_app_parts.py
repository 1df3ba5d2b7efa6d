"""How the parts of the program end when something fails in them."""

import asyncio
import json

import pytest

from claimd.common import errors
from claimd.kubernetes.kube import auth
from claimd.node import app, config, endpoint_setup
from claimd_devices import fake, sysfs


async def test_a_part_that_fails_when_it_is_told_to_end_is_not_started_again(caplog):
    began = 0
    is_running = asyncio.Event()

    async def work():
        nonlocal began
        began += 1
        is_running.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError(116, "Stale file handle")

    part = asyncio.create_task(app._keep_running("a part", work))
    await is_running.wait()
    part.cancel()
    await asyncio.wait_for(part, app.RESTART / 2)
    assert began == 1
    assert "a part ended with an error: OSError(116, 'Stale file handle')" in caplog.text


class _Failing(app.App):
    async def _start_and_serve(self, *_):
        raise OSError(5, "Input/output error", "/a/folder")


async def test_an_error_of_the_node_ends_the_program_with_a_sentence():
    with pytest.raises(errors.Fatal, match="cannot go on after an error: .*'/a/folder'"):
        await object.__new__(_Failing).run_until(asyncio.Event())


@pytest.mark.parametrize("nvml", [False, True])
def test_the_scans_of_a_node_share_what_seldom_changes(tmp_path, nvml):
    fake.write(tmp_path, fake.parse(["amd:mi300x"]))
    settings = config.Config(node_name="n", root=str(tmp_path), nvml=nvml)
    look = app._scan(settings)
    caps = []
    for _ in range(2):
        with sysfs.recording() as accesses:
            look(settings.roots, settings.rules)
        caps.append(sum(path.endswith("/power1_cap") for path, _ in accesses))
    assert caps == [1, 0]


async def test_the_questions_about_scrapes_end_with_the_endpoints(tmp_path):
    asked = asyncio.Event()

    async def never_answer(reader, writer):
        await reader.readline()
        asked.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(never_answer, "127.0.0.1", 0) as api:
        host, port = api.sockets[0].getsockname()
        cluster = {
            "current-context": "t",
            "contexts": [{"name": "t", "context": {"cluster": "t", "user": "t"}}],
            "clusters": [{"name": "t", "cluster": {"server": f"http://{host}:{port}"}}],
            "users": [{"name": "t", "user": {}}],
        }
        (tmp_path / "kubeconfig").write_text(json.dumps(cluster))
        settings = config.Config(
            node_name="n", metrics_tls=str(tmp_path), metrics_authorization=True
        )
        endpoints = endpoint_setup.EndpointSetup(
            config=settings,
            client_config=auth.client_config(str(tmp_path / "kubeconfig"), tmp_path),
            resources=None,
            watch=None,
            monitor=None,
            checkpoints=None,
        )
        endpoints.build(str, str)
        endpoints._scrape_access.may_scrape("Bearer token", "127.0.0.1", lambda _: None)
        async with asyncio.timeout(20):
            await asked.wait()
            await endpoints.close()
        assert not endpoints._scrape_access._tasks
