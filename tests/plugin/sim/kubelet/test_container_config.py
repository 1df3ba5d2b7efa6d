"""The configuration of a container from the pod's spec."""

import re

import pytest

from claimd.sim.kubelet import container_config
from claimd.sim.kubelet.calls import ClaimRef, PreparedDevice
from claimd.sim.kubelet.claim_info import DeviceUse

POD = {
    "metadata": {
        "name": "p",
        "namespace": "team",
        "uid": "u-1",
        "labels": {"app": "train"},
        "annotations": {"note": "a b"},
    },
    "spec": {"nodeName": "node-1", "serviceAccountName": "robot"},
}


def generate(pod=POD, cdi_ids=(), **container):
    container = {"name": "main"} | container
    return container_config.generate(pod, container, cdi_ids, "10.0.0.7", "127.0.0.1")


def test_a_container_that_says_nothing_sleeps():
    config = generate()
    assert config.name == "main"
    assert config.command == container_config.IDLE == ("sleep", "infinity")
    assert (config.env, config.working_dir, config.hostname) == ({}, "", "p")
    assert config.cdi_devices == ()


def test_command_then_arguments_with_their_references():
    config = generate(
        command=["sh", "$(A)"],
        args=["$(A)$(B)", "$$(A)", "$(NONE)", "$A"],
        env=[{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)2"}],
    )
    assert config.command == ("sh", "1", "112", "$(A)", "$(NONE)", "$A")
    assert config.env == {"A": "1", "B": "12"}
    assert generate(args=["alone"]).command == ("alone",)


def test_a_variable_sees_those_before_it():
    env = [{"name": "A", "value": "$(B)"}, {"name": "B", "value": "b"}, {"name": "C"}]
    assert generate(env=env).env == {"A": "$(B)", "B": "b", "C": ""}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "p"),
        ("metadata.namespace", "team"),
        ("metadata.uid", "u-1"),
        ("metadata.labels['app']", "train"),
        ("metadata.annotations['note']", "a b"),
        ("spec.nodeName", "node-1"),
        ("spec.serviceAccountName", "robot"),
        ("status.podIP", "10.0.0.7"),
        ("status.hostIP", "127.0.0.1"),
        ("metadata.labels['other']", ""),
    ],
)
def test_fields_of_the_pod(path, value):
    env = [{"name": "F", "valueFrom": {"fieldRef": {"fieldPath": path}}}]
    assert generate(env=env).env == {"F": value}


def test_fields_that_the_pod_does_not_have_are_empty():
    pod = {"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {}}
    for path in ("spec.nodeName", "spec.serviceAccountName"):
        env = [{"name": "F", "valueFrom": {"fieldRef": {"fieldPath": path}}}]
        assert generate(pod, env=env).env == {"F": ""}


CONFIG = {("configmaps", "c"): {"a": "1", "b": "2"}, ("secrets", "s"): {"k": "hush"}}


def from_sources(values=CONFIG, **container):
    container = {"name": "main"} | container
    return container_config.generate(POD, container, (), "", "", values).env


def test_variables_from_a_config_map_and_a_secret():
    env = [
        {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "a"}}},
        {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        {"name": "both", "value": "$(A)$(S)"},
    ]
    assert from_sources(env=env) == {"A": "1", "S": "hush", "both": "1hush"}
    assert container_config.sources({"env": env}) == CONFIG.keys()


def test_all_of_a_source_before_what_a_container_says_itself():
    whole = [{"prefix": "X_", "configMapRef": {"name": "c"}}, {"secretRef": {"name": "s"}}]
    env = [{"name": "k", "value": "said"}]
    assert from_sources(envFrom=whole, env=env) == {"X_a": "1", "X_b": "2", "k": "said"}
    assert container_config.sources({"envFrom": whole}) == CONFIG.keys()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"configMapKeyRef": {"name": "c", "key": "z"}}, "couldn't find key z in ConfigMap team/c"),
        ({"secretKeyRef": {"name": "no", "key": "k"}}, 'secret "no" not found'),
    ],
)
def test_what_is_not_there_has_to_be_there_unless_it_is_optional(source, message):
    env = [{"name": "A", "valueFrom": source}]
    with pytest.raises(container_config.MissingSource, match=re.escape(message)):
        from_sources(CONFIG | {("secrets", "no"): None}, env=env)
    (reference,) = source.values()
    reference["optional"] = True
    assert from_sources(CONFIG | {("secrets", "no"): None}, env=env) == {}


def test_folder_and_host_name():
    named = POD | {"spec": {"hostname": "h"}}
    config = generate(named, workingDir="/srv", cdi_ids=("a/b=c",))
    assert (config.working_dir, config.hostname, config.cdi_devices) == ("/srv", "h", ("a/b=c",))


def test_every_cdi_id_of_every_use_in_order():
    def use(*ids):
        prepared = PreparedDevice(requests=[], pool="p", device="d", cdi=list(ids))
        claim = ClaimRef(namespace="n", name="c", uid="u")
        return DeviceUse(title="", claim=claim, driver="d", prepared=prepared)

    assert container_config.cdi_devices([use("b", "a"), use(), use("a")]) == ("b", "a", "a")
