"""Tests of the meaning of a method and a path."""

import pytest

from claimd.common.http_server import HttpRequest
from claimd.sim.apiserver.wire import request_info

DRA = "/apis/resource.k8s.io/v1"


def info_of(method, path, **query):
    return request_info.parse(HttpRequest(method, path, {n: [v] for n, v in query.items()}, {}))


PATHS = {
    "GET /healthz": ("get", "", "", "", "", "", ""),
    "POST /": ("post", "", "", "", "", "", ""),
    "GET /api": ("get", "", "", "", "", "", ""),
    "GET /api/v1": ("get", "", "v1", "", "", "", ""),
    "GET /apis/apps": ("get", "", "", "", "", "", ""),
    "GET /apis/apps/v1": ("get", "apps", "v1", "", "", "", ""),
    "GET /api/v1/pods": ("list", "", "v1", "pods", "", "", ""),
    "HEAD /api/v1/nodes/n": ("get", "", "v1", "nodes", "", "", "n"),
    "GET /api/v1/namespaces": ("list", "", "v1", "namespaces", "", "", ""),
    "GET /api/v1/namespaces/a": ("get", "", "v1", "namespaces", "", "", "a"),
    "PUT /api/v1/namespaces/a/finalize": ("update", "", "v1", "namespaces", "finalize", "", "a"),
    "PATCH /api/v1/namespaces/a/status": ("patch", "", "v1", "namespaces", "status", "", "a"),
    "POST /api/v1/namespaces/a/pods": ("create", "", "v1", "pods", "", "a", ""),
    "DELETE /api/v1/namespaces/a/pods": ("deletecollection", "", "v1", "pods", "", "a", ""),
    "DELETE /api/v1/namespaces/a/pods/p": ("delete", "", "v1", "pods", "", "a", "p"),
    "GET /api/v1/namespaces/a/pods/p/log": ("get", "", "v1", "pods", "log", "a", "p"),
    "GET /api/v1/namespaces/a/pods/p/x/y": ("get", "", "v1", "pods", "x/y", "a", "p"),
    "GET /api/v1/nodes/a%2Fb": ("get", "", "v1", "nodes", "", "", "a/b"),
    "GET /apis/apps/v1/watch/deployments": ("watch", "apps", "v1", "deployments", "", "", ""),
    "GET /api/v1/watch": ("list", "", "v1", "watch", "", "", ""),
    "OPTIONS /api/v1/pods": ("options", "", "v1", "pods", "", "", ""),
}


@pytest.mark.parametrize("case", PATHS)
def test_paths(case):
    method, path = case.split(" ")
    info = info_of(method, path)
    parts = (info.group, info.version, info.resource, info.subresource, info.namespace, info.name)
    assert (info.verb, *parts) == PATHS[case]
    assert info.deprecated_watch == ("/watch/" in path)


def test_a_watch_by_its_parameter():
    assert info_of("GET", "/api/v1/pods", watch="1").verb == "watch"
    assert info_of("GET", "/api/v1/pods", watch="").verb == "watch"
    assert info_of("GET", "/api/v1/pods", watch="0").verb == "list"
    assert info_of("GET", "/api/v1/pods", watch="False").verb == "list"
    assert info_of("GET", "/api/v1/nodes/n", watch="1").verb == "get"


def test_api_versions():
    assert info_of("GET", f"{DRA}/deviceclasses").api_version == "resource.k8s.io/v1"
    assert info_of("GET", "/api/v1/pods").api_version == "v1"
