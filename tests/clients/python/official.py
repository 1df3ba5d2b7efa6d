"""The official Python client."""

import os
import threading

from kubernetes import client, config, dynamic, informer, watch
from steps import MAPS, dependent, done, map_, wait_until

config.load_kube_config()
api = client.CoreV1Api()

for name in MAPS:
    api.create_namespaced_config_map("default", map_(name))
done("create")

names, proceed = [], None
while proceed != "":
    page = api.list_namespaced_config_map("default", limit=2, _continue=proceed or None)
    names += [item.metadata.name for item in page.items]
    proceed = page.metadata._continue or ""
assert names == MAPS, names
done("list")

seen = []
for _ in range(3):
    for event in watch.Watch().stream(api.list_namespaced_config_map, "default", timeout_seconds=1):
        seen.append(event["object"].metadata.name)
    # The connection of a watch that ended is not one that the next request dies on.
    for _ in range(5):
        api.list_namespaced_config_map("default", limit=1)
assert seen == MAPS * 3, seen
done("watch")

numbers = []
informed = informer.SharedInformer(
    api.list_namespaced_config_map,
    namespace="default",
    resync_period=1,  # and so long is each of its watches
)
informed.add_event_handler(
    informer.MODIFIED, lambda changed: numbers.append((changed.data or {}).get("number"))
)
informed.start()
wait_until(lambda: len(informed.cache.list()) == len(MAPS))
for number in ("1", "2"):
    api.patch_namespaced_config_map("e", "default", {"data": {"number": number}})
    wait_until(lambda number=number: number in numbers)
informed.stop()
done("informer")

maps = dynamic.DynamicClient(api.api_client).resources.get(api_version="v1", kind="ConfigMap")
patches = {
    "application/json-patch+json": [{"op": "add", "path": "/data", "value": {"json": "1"}}],
    "application/merge-patch+json": {"data": {"merge": "1"}},
    "application/strategic-merge-patch+json": {"data": {"strategic": "1"}},
}
for content_type, body in patches.items():
    maps.patch(name="a", namespace="default", body=body, content_type=content_type)
applied = map_("a") | {"data": {"apply": "1"}}
maps.server_side_apply(name="a", namespace="default", body=applied, field_manager="me")
assert set(maps.get(name="a", namespace="default").data.to_dict()) == {
    "json",
    "merge",
    "strategic",
    "apply",
}
done("patch")

owner = api.read_namespaced_config_map("a", "default")
api.create_namespaced_config_map("default", dependent("kept", "a", owner.metadata.uid))
api.delete_namespaced_config_map("a", "default", propagation_policy="Orphan")
wait_until(lambda: not api.read_namespaced_config_map("kept", "default").metadata.owner_references)
owner = api.read_namespaced_config_map("b", "default")
api.create_namespaced_config_map("default", dependent("gone", "b", owner.metadata.uid))
api.delete_namespaced_config_map("b", "default", propagation_policy="Foreground")


def left():
    return [item.metadata.name for item in api.list_namespaced_config_map("default").items]


wait_until(lambda: "gone" not in left() and "b" not in left())
done("delete")

from kubernetes.leaderelection import electionconfig, leaderelection  # noqa: E402
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock  # noqa: E402

leads = threading.Event()
lock = LeaseLock("lease", "default", "me")
chosen = electionconfig.Config(
    lock,
    lease_duration=3,
    renew_deadline=2,
    retry_period=1,
    onstarted_leading=leads.set,
    onstopped_leading=None,
)
threading.Thread(target=leaderelection.LeaderElection(chosen).run, daemon=True).start()
assert leads.wait(20)
leases = client.CoordinationV1Api()
first = leases.read_namespaced_lease("lease", "default").spec.renew_time
wait_until(lambda: leases.read_namespaced_lease("lease", "default").spec.renew_time > first)
done("election")
# The election's thread writes to the output, too: cut off within that, the interpreter would abort.
os._exit(0)
