"""lightkube."""

from lightkube import Client
from lightkube.core.exceptions import ApiError
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap
from lightkube.types import CascadeType, PatchType
from steps import MAPS, dependent, done, map_, wait_until

client = Client(namespace="default", field_manager="me")

for name in MAPS:
    client.create(ConfigMap.from_dict(map_(name)))
done("create")

names = [item.metadata.name for item in client.list(ConfigMap, chunk_size=2)]
assert names == MAPS, names
done("list")

seen = []
for _ in range(2):
    for number, (_, event) in enumerate(client.watch(ConfigMap, server_timeout=1), start=1):
        seen.append(event.metadata.name)
        if number == len(MAPS):
            break
assert seen == MAPS * 2, seen
done("watch")

added = [{"op": "add", "path": "/data", "value": {"json": "1"}}]
client.patch(ConfigMap, "a", added, patch_type=PatchType.JSON)
client.patch(ConfigMap, "a", {"data": {"merge": "1"}}, patch_type=PatchType.MERGE)
client.patch(ConfigMap, "a", {"data": {"strategic": "1"}}, patch_type=PatchType.STRATEGIC)
applied = ConfigMap(metadata=ObjectMeta(name="a", namespace="default"), data={"apply": "1"})
client.apply(applied)
assert set(client.get(ConfigMap, "a").data) == {"json", "merge", "strategic", "apply"}
done("patch")


def make_dependent(name, owner):
    uid = client.get(ConfigMap, owner).metadata.uid
    client.create(ConfigMap.from_dict(dependent(name, owner, uid)))


def is_gone(name):
    try:
        client.get(ConfigMap, name)
    except ApiError as error:
        return error.status.code == 404
    return False


make_dependent("kept", "a")
client.delete(ConfigMap, "a", cascade=CascadeType.ORPHAN)
wait_until(lambda: not client.get(ConfigMap, "kept").metadata.ownerReferences)
make_dependent("gone", "b")
client.delete(ConfigMap, "b", cascade=CascadeType.FOREGROUND)
wait_until(lambda: is_gone("gone") and is_gone("b"))
done("delete")
