"""The meaning of fields that a server leaves out."""

import msgspec

from claimd.kubernetes.api import core
from claimd.kubernetes.api.meta import ObjectMeta


def decode(document, kind):
    return msgspec.json.decode(msgspec.json.encode(document), type=kind)


def test_a_port_that_opens_none_of_the_nodes():
    port = decode({"containerPort": 80}, core.ContainerPort)
    assert (port.host_port, port.protocol, port.host_ip) == (0, "TCP", "")


def test_an_object_whose_spec_was_never_changed():
    meta = decode({"name": "a"}, ObjectMeta)
    assert (meta.generation, meta.deletion_timestamp) == (0, None)
    assert (meta.labels, meta.annotations, meta.owner_references) == ({}, {}, [])
