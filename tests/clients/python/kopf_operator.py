"""An operator on kopf: what it sees of others' changes, and what it writes back."""

import asyncio
import logging
import threading

import kopf
from kubernetes import client, config
from steps import MAPS, done, map_, wait_until

SEEN = {"created": set(), "updated": set(), "deleted": set()}


@kopf.on.startup()
def shorter(settings, **_):
    settings.watching.server_timeout = 1  # so that a watch ends several times meanwhile
    settings.posting.level = logging.INFO


@kopf.on.create("configmaps", labels={"for": "steps"})
def created(name, body, patch, **_):
    patch.metadata.annotations["seen"] = "yes"
    kopf.info(body, reason="Seen", message=f"{name} is there")
    SEEN["created"].add(name)


@kopf.on.update("configmaps", labels={"for": "steps"}, field="data")
def updated(name, **_):
    SEEN["updated"].add(name)


@kopf.on.delete("configmaps", labels={"for": "steps"})
def deleted(name, **_):
    SEEN["deleted"].add(name)


config.load_kube_config()
api = client.CoreV1Api()
stop = threading.Event()
operator = threading.Thread(
    target=lambda: asyncio.run(
        kopf.operator(namespaces=["default"], standalone=True, stop_flag=stop)
    )
)
operator.start()
try:
    for name in MAPS:
        api.create_namespaced_config_map("default", map_(name))
    wait_until(lambda: SEEN["created"] == set(MAPS))

    def annotated():
        maps = api.list_namespaced_config_map("default", label_selector="for=steps").items
        return all("seen" in (item.metadata.annotations or {}) for item in maps)

    wait_until(annotated)
    done("create")
    done("patch")  # the annotation is one, and so is the finalizer

    def told():
        events = api.list_namespaced_event("default").items
        return {event.message for event in events if event.reason == "Seen"}

    wait_until(lambda: told() == {f"{name} is there" for name in MAPS})
    done("events")

    # Its watches end each second: what comes between two of them is not lost.
    for number in range(4):
        api.patch_namespaced_config_map("a", "default", {"data": {"n": str(number)}})
        wait_until(lambda: "a" in SEEN["updated"])
        SEEN["updated"].clear()
        threading.Event().wait(0.5)
    done("watch")

    for name in MAPS:
        api.delete_namespaced_config_map(name, "default")
    wait_until(lambda: SEEN["deleted"] == set(MAPS))
    wait_until(
        lambda: not api.list_namespaced_config_map("default", label_selector="for=steps").items
    )
    done("delete")
finally:
    stop.set()
    operator.join(20)
