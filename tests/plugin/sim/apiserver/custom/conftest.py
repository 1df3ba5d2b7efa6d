"""The definition of a small kind."""

import copy

import pytest

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/toys.example.com/v1/namespaces/default/widgets"


def definition(plural="widgets", kind="Widget", scope="Namespaced", **properties):
    spec = {"type": "object", "properties": {"size": {"type": "integer", "default": 1}}}
    spec["properties"] |= properties
    schema = {"type": "object", "properties": {"spec": spec, "status": {"type": "object"}}}
    version = {"name": "v1", "served": True, "storage": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.toys.example.com"},
        "spec": {
            "group": "toys.example.com",
            "scope": scope,
            "names": {"plural": plural, "kind": kind},
            "versions": [version | {"schema": {"openAPIV3Schema": schema}}],
        },
    }


def widget(name="w", spec=None, **metadata):
    return {
        "apiVersion": "toys.example.com/v1",
        "kind": "Widget",
        "metadata": {"name": name} | metadata,
        "spec": copy.deepcopy(spec or {}),
    }


@pytest.fixture
def toys():
    return {"definition": definition, "widget": widget}
