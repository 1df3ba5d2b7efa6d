"""Each bug of the reports that the crash campaign found."""

import asyncio
import json

import pytest

from claimd.kubernetes.kube import auth, client, resources
from claimd.node.prepare import plan
from claimd.node.report import device_status, status
from tests.plugin.node.report.test_status import Says
from tests.support import apiserver
from tests.support.worlds import DRIVER, NODE, claim, claim_object, gpu, inventory, result


@pytest.fixture
async def api():
    async with apiserver.serve() as served:
        yield served


@pytest.fixture
async def reporter(api, tmp_path):
    cluster = {
        "current-context": "t",
        "contexts": [{"name": "t", "context": {"cluster": "t", "user": "t"}}],
        "clusters": [{"name": "t", "cluster": {"server": api.url}}],
        "users": [{"name": "t", "user": {}}],
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(cluster))
    client_ = client.Client(
        auth.client_config(str(tmp_path / "kubeconfig"), tmp_path), agent="test"
    )
    new_reporter = status.StatusReporter(resources.Resources(client_, DRIVER, NODE), DRIVER)
    running = asyncio.create_task(new_reporter.run())
    yield new_reporter
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await client_.close()


async def test_what_was_sent_is_cleared_although_a_newer_report_was_not_sent(api, reporter):
    """Prepared, unprepared, prepared, unprepared, faster than the reports go out: the first of them
    was sent.
    """
    device = gpu(0).name
    prepared = plan.plan(
        claim("c", result(device)),
        driver=DRIVER,
        pool=NODE,
        inventory=inventory(),
        neighbours=(),
        now="2026-01-01T00:00:00Z",
    )
    api.put("resourceclaims", claim_object("c", result(device)))

    def devices():
        return api.objects["resourceclaims", "default", "c"].get("status", {}).get("devices", [])

    def report():
        says = Says(device_status.entries(prepared, DRIVER, inventory()))
        reporter.report(prepared, says, first=True)

    async def done(_):
        pass

    report()
    await apiserver.until(devices)
    for again in (True, False):
        assert not reporter.drop_unsent(prepared)
        reporter.clear(prepared, Says([]), done)
        if again:
            report()
    await apiserver.until(lambda: not devices())
