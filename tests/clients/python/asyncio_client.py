"""kubernetes_asyncio."""

import asyncio
import contextlib

from kubernetes_asyncio import client, config, watch
from kubernetes_asyncio.leaderelection import electionconfig, leaderelection
from kubernetes_asyncio.leaderelection.resourcelock.leaselock import LeaseLock
from steps import MAPS, dependent, done, eventually, map_


async def main():
    await config.load_kube_config()
    async with client.ApiClient() as connection:
        api = client.CoreV1Api(connection)

        for name in MAPS:
            await api.create_namespaced_config_map("default", map_(name))
        done("create")

        names, proceed = [], None
        while proceed != "":
            more = {"_continue": proceed} if proceed else {}
            page = await api.list_namespaced_config_map("default", limit=2, **more)
            names += [item.metadata.name for item in page.items]
            proceed = page.metadata._continue or ""
        assert names == MAPS, names
        done("list")

        seen = []
        for _ in range(3):
            async with watch.Watch().stream(
                api.list_namespaced_config_map, "default", timeout_seconds=1
            ) as events:
                async for event in events:
                    seen.append(event["object"].metadata.name)
        assert seen == MAPS * 3, seen
        done("watch")

        patches = {
            "application/json-patch+json": [{"op": "add", "path": "/data", "value": {"json": "1"}}],
            "application/merge-patch+json": {"data": {"merge": "1"}},
            "application/strategic-merge-patch+json": {"data": {"strategic": "1"}},
        }
        for content_type, body in patches.items():
            await api.patch_namespaced_config_map("a", "default", body, _content_type=content_type)
        await api.patch_namespaced_config_map(
            "a",
            "default",
            map_("a", apply="1"),
            field_manager="me",
            _content_type="application/apply-patch+yaml",
        )
        changed = await api.read_namespaced_config_map("a", "default")
        assert set(changed.data) == {"json", "merge", "strategic", "apply"}, changed.data
        done("patch")

        owner = await api.read_namespaced_config_map("a", "default")
        await api.create_namespaced_config_map(
            "default", dependent("kept", "a", owner.metadata.uid)
        )
        await api.delete_namespaced_config_map("a", "default", propagation_policy="Orphan")

        async def kept():
            config_map = await api.read_namespaced_config_map("kept", "default")
            return not config_map.metadata.owner_references

        await eventually(kept)
        owner = await api.read_namespaced_config_map("b", "default")
        await api.create_namespaced_config_map(
            "default", dependent("gone", "b", owner.metadata.uid)
        )
        await api.delete_namespaced_config_map("b", "default", propagation_policy="Foreground")

        async def gone():
            page = await api.list_namespaced_config_map("default")
            return not {"b", "gone"} & {item.metadata.name for item in page.items}

        await eventually(gone)
        done("delete")

        await lead(connection)


async def lead(connection):
    leads = asyncio.Event()

    async def begin():
        leads.set()

    chosen = electionconfig.Config(
        LeaseLock("lease", "default", "me", connection),
        lease_duration=3,
        renew_deadline=2,
        retry_period=1,
        onstarted_leading=begin,
        onstopped_leading=None,
    )
    election = asyncio.create_task(leaderelection.LeaderElection(chosen).run())
    await asyncio.wait_for(leads.wait(), 20)
    leases = client.CoordinationV1Api(connection)
    first = (await leases.read_namespaced_lease("lease", "default")).spec.renew_time

    async def renewed():
        lease = await leases.read_namespaced_lease("lease", "default")
        return lease.spec.renew_time > first

    await eventually(renewed)
    election.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await election
    done("election")


asyncio.run(main())
