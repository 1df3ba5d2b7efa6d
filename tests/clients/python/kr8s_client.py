"""kr8s, with its synchronous names."""

import kr8s
from kr8s.objects import ConfigMap
from steps import MAPS, dependent, done, map_, wait_until

PAGE = 100
api = kr8s.api()

for name in MAPS:
    ConfigMap(map_(name), api=api).create()
done("create")

# It asks for pages by itself, and knows no size of them but its own.
many = [f"page-{number:03}" for number in range(PAGE + 1)]
for name in many:
    ConfigMap(map_(name), api=api).create()
names = [item.name for item in api.get("configmaps", namespace="default")]
assert names == MAPS + many, names
for name in many:
    ConfigMap(map_(name), api=api).delete()
done("list")

seen = []
for _ in range(2):
    events = api.watch("configmaps", namespace="default")
    for _ in MAPS:
        seen.append(next(events)[1].name)
    events.close()
assert seen == MAPS * 2, seen
done("watch")

changed = ConfigMap.get("a", namespace="default", api=api)
changed.patch([{"op": "add", "path": "/data", "value": {"json": "1"}}], type="json")
changed.patch({"data": {"merge": "1"}})
assert set(changed.raw["data"]) == {"json", "merge"}
done("patch")

changed.refresh()
ConfigMap(dependent("kept", "a", changed.metadata["uid"]), api=api).create()
changed.delete(propagation_policy="Orphan")
kept = ConfigMap.get("kept", namespace="default", api=api)


def is_free():
    kept.refresh()
    return "ownerReferences" not in kept.raw["metadata"]


wait_until(is_free)
owner = ConfigMap.get("b", namespace="default", api=api)
gone = ConfigMap(dependent("gone", "b", owner.metadata["uid"]), api=api)
gone.create()
owner.delete(propagation_policy="Foreground")
wait_until(lambda: not gone.exists())
done("delete")
