"""Tests of random requests: no request may cause an internal error."""

import asyncio
import http.client
import json
import random

import pytest

from claimd.sim.apiserver.server import Options, serve

VALUES = (
    None,
    "",
    0,
    -1,
    1.5,
    True,
    [],
    {},
    "a",
    [{}],
    ["a"],
    {"a": "b"},
    {"a": None},
    [None],
    10**30,
    "2024-01-01T00:00:00Z",
)
NAMES = (
    *(
        "metadata",
        "spec",
        "status",
        "name",
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
        "uid",
    ),
    *(
        "managedFields",
        "fieldsV1",
        "generateName",
        "resourceVersion",
        "deletionTimestamp",
        "apiVersion",
        "kind",
    ),
    *(
        "devices",
        "requests",
        "exactly",
        "driver",
        "pool",
        "nodeName",
        "allocation",
        "results",
        "conditions",
        "items",
    ),
    *(
        "subjects",
        "roleRef",
        "rules",
        "verbs",
        "validations",
        "variables",
        "expression",
        "policyName",
        "matchConstraints",
    ),
    *(
        "resourceRules",
        "containers",
        "template",
        "selector",
        "replicas",
        "target",
        "user",
        "groups",
        "extra",
        "data",
    ),
    *(
        "preconditions",
        "propagationPolicy",
        "gracePeriodSeconds",
        "dryRun",
        "$patch",
        "op",
        "path",
        "value",
    ),
)
PARTS = ("spec", "status", "rules", "subjects", "roleRef", "data")
BELOW = ("status", "scale", "binding", "eviction", "token", "log", "finalize", "nothing")
PATCHES = ("json-patch+json", "merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml")
PARAMETERS = (
    *(
        "dryRun",
        "fieldManager",
        "fieldValidation",
        "force",
        "limit",
        "continue",
        "resourceVersion",
        "pretty",
    ),
    *(
        "resourceVersionMatch",
        "labelSelector",
        "fieldSelector",
        "propagationPolicy",
        "gracePeriodSeconds",
    ),
    *("orphanDependents", "sendInitialEvents", "includeObject", "tailLines", "container"),
)
SAID = (
    "",
    "a",
    "1",
    "-1",
    "0",
    "All",
    "true",
    "Strict",
    "Orphan",
    "metadata.name=a",
    "a in (b,c)",
    "!a",
    "Exact",
)
ACCEPTED = (
    None,
    None,
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/yaml",
    "*/*",
    "text/html",
)


class Asking:
    def __init__(self, seed, editions):
        self.random = random.Random(seed)
        self.editions = editions

    def document(self, depth):
        kind = self.random.random()
        if depth <= 0 or kind < 0.25:
            return self.random.choice(VALUES)
        if kind < 0.4:
            return [self.document(depth - 1) for _ in range(self.random.randint(0, 2))]
        return {
            self.random.choice(NAMES): self.document(depth - 1)
            for _ in range(self.random.randint(0, 4))
        }

    def likely(self):
        """Returns a value that the server may accept."""
        metadata = {"name": self.random.choice("abc")}
        if self.random.random() < 0.5:
            metadata[self.random.choice(NAMES)] = self.document(2)
        return {"metadata": metadata} | {
            part: self.document(4) for part in PARTS if self.random.random() < 0.4
        }

    def request(self):
        chance = self.random.random
        served = self.random.choice(self.editions)
        path = f"/apis/{served.api_version}" if served.group else "/api/v1"
        path += "/namespaces/default" if served.kind.namespaced and chance() < 0.9 else ""
        path += f"/{served.kind.resource.plural}"
        path += f"/{self.random.choice('abc')}" if chance() < 0.6 else ""
        path += f"/{self.random.choice(BELOW)}" if chance() < 0.3 else ""
        query = [
            f"{name}={self.random.choice(SAID)}".replace(" ", "%20")
            for name in PARAMETERS
            if chance() < 0.08
        ]
        method = self.random.choice(("GET", "POST", "POST", "PUT", "PATCH", "PATCH", "DELETE"))
        headers = {
            "Content-Type": f"application/{self.random.choice(PATCHES) if method == 'PATCH' else 'json'}"
        }
        accepted = self.random.choice(ACCEPTED)
        headers |= {"Accept": accepted} if accepted else {}
        body = self.likely() if chance() < 0.7 else self.document(5)
        if (
            method == "PATCH"
            and headers["Content-Type"].endswith("json-patch+json")
            and chance() < 0.8
        ):
            way = "/".join(self.random.choice(NAMES) for _ in range(self.random.randint(0, 3)))
            op = self.random.choice(("add", "remove", "replace", "move", "copy", "test"))
            body = [
                {"op": op, "path": f"/{way}", "from": "/metadata/labels", "value": self.document(3)}
            ]
        return (
            method,
            f"{path}?{'&'.join(query)}",
            None if method == "GET" else json.dumps(body).encode(),
            headers,
        )


def ask_all(address, asking, count):
    """Sends requests over one connection. Returns those that caused an internal error."""
    connection = http.client.HTTPConnection(
        address.removeprefix("http://").partition("/")[0], timeout=60
    )
    prefix = f"/{address.removeprefix('http://').partition('/')[2]}"
    problems = []
    for _ in range(count):
        method, path, body, headers = asking.request()
        connection.request(method, prefix + path, body, headers)
        answer = connection.getresponse()
        if b"Internal error occurred" in answer.read():
            problems.append((method, path, body, headers))
    connection.close()
    return problems


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
async def test_nothing_ends_in_an_error_of_the_server(seed):
    async with serve(Options(end_namespaces=True)) as api:
        versions = [
            (group, version) for group, known in api.catalog.versions.items() for version in known
        ]
        asking = Asking(
            seed, [served for place in versions for served in api.catalog.served_versions(*place)]
        )
        assert await asyncio.to_thread(ask_all, api.url, asking, 600) == []
