"""Tests of the options in a query."""

import pytest

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
MERGE = {"Content-Type": "application/merge-patch+json"}


REFUSED = {
    "dryRun": ("POST", "?dryRun=yes", {}, 422, 'dryRun: Unsupported value: ["yes"]'),
    "fieldValidation": (
        *("POST", "?fieldValidation=a", {}, 422),
        'fieldValidation: Unsupported value: "a"',
    ),
    "a long fieldManager": (
        *("POST", f"?fieldManager={'a' * 129}", {}, 422),
        "fieldManager: Too long: may not be more than 128 bytes",
    ),
    "a fieldManager with a newline": (
        *("POST", "?fieldManager=a%0Ab", {}, 422),
        'Invalid value: "a\\nb": invalid character U+000A (at position 1)',
    ),
    "a fieldManager that no one can print": (
        *("POST", "?fieldManager=a%01", {}, 422),
        'Invalid value: "a\\x01": invalid character U+0001 (at position 1)',
    ),
    "resourceVersion": ("GET", "?resourceVersion=a", None, 400, "invalid syntax"),
    "limit": ("GET", "?limit=a", None, 400, "invalid syntax"),
    "a match without a version": (
        *("GET", "?resourceVersionMatch=Exact", None, 422),
        "forbidden unless resourceVersion is",
    ),
    "an unknown match": (
        *("GET", "?resourceVersionMatch=a&resourceVersion=1", None, 422),
        'Unsupported value: "a"',
    ),
    "exactly version 0": (
        *("GET", "?resourceVersionMatch=Exact&resourceVersion=0", None, 422),
        'resourceVersion "0"',
    ),
    "a match with continue": (
        *("GET", "?resourceVersionMatch=Exact&continue=x", None, 422),
        "forbidden when continue is provided",
    ),
    "a version with continue": (
        *("GET", "?resourceVersion=1&continue=x", None, 400),
        "specifying resource version is not allowed when using continue",
    ),
    "sendInitialEvents of a list": (
        *("GET", "?sendInitialEvents=true", None, 422),
        "sendInitialEvents is forbidden for list",
    ),
    "sendInitialEvents with a match": (
        *("GET", "?sendInitialEvents=true&resourceVersionMatch=NotOlderThan", None, 422),
        "resourceVersionMatch is forbidden unless resourceVersion is provided",
    ),
    "continue": ("GET", "?continue=x", None, 400, "continue key is not valid"),
    "labelSelector": (
        *("GET", "?labelSelector=a=b=c", None, 400),
        "found '=', expected: ',' or 'end of string'",
    ),
    "propagationPolicy": (
        *("DELETE", "/c?propagationPolicy=a", None, 422),
        'propagationPolicy: Unsupported value: "a"',
    ),
    "two policies": (
        *("DELETE", "/c", {"propagationPolicy": "Orphan", "orphanDependents": True}, 422),
        'Invalid value: "Orphan": orphanDependents and deletionPropagation cannot be both set',
    ),
    "preconditions": ("DELETE", "/c", {"preconditions": "a"}, 400, "cannot unmarshal string"),
    "gracePeriodSeconds": ("DELETE", "/c", {"gracePeriodSeconds": "a"}, 400, "unmarshal string"),
    "options of another kind": ("DELETE", "/c", {"kind": "Pod"}, 400, "expected DeleteOptions"),
    "a dry deletion": ("DELETE", "/c", {"dryRun": ["no"]}, 422, 'Unsupported value: ["no"]'),
    "another object": (
        *("DELETE", "/c", {"preconditions": {"uid": "x"}}, 409),
        "the UID in the precondition (x)",
    ),
}
OPTIONS = {"POST": "CreateOptions", "GET": "ListOptions", "DELETE": "DeleteOptions"}


@pytest.mark.parametrize("case", REFUSED)
async def test_refusals(refusal, case):
    method, path, body, code, words = REFUSED[case]
    refused = await refusal(method, f"{CLAIMS}{path}", body)
    assert refused[0] == code
    assert words in refused[2]
    if code == 422:
        assert refused[2].startswith(f'{OPTIONS[method]}.meta.k8s.io "" is invalid: ')


async def test_options_are_named_by_their_method(refusal, raw):
    refused = await refusal("PUT", f"{CLAIMS}/c?fieldManager=%01", {})
    assert refused[2].startswith("UpdateOptions.meta.k8s.io")
    for query in ("fieldManager=%01", "fieldValidation=a", "dryRun=a"):
        reply = await raw("PATCH", f"{CLAIMS}/c?{query}", {}, MERGE)
        assert reply.json["message"].startswith("PatchOptions.meta.k8s.io")


async def test_the_manager_is_the_program_if_it_does_not_say(raw, builders):
    for name, agent, manager in (
        ("a", "claimd/1.2 (linux)", "claimd"),
        ("b", "", "unknown"),
        ("c", f"{'x' * 200}/1", "x" * 128),
    ):
        reply = await raw("POST", CLAIMS, builders["claim"](name), {"User-Agent": agent})
        assert reply.json["metadata"]["managedFields"][0]["manager"] == manager
    reply = await raw("POST", f"{CLAIMS}?fieldManager={'y' * 128}", builders["claim"]("d"))
    assert reply.json["metadata"]["managedFields"][0]["manager"] == "y" * 128


async def test_deletions_by_their_query(raw, builders):
    await raw("POST", CLAIMS, builders["claim"]("c", finalizers=["example.com/wait"]))
    reply = await raw("DELETE", f"{CLAIMS}/c?orphanDependents=true&dryRun=All")
    assert reply.json["metadata"]["finalizers"] == ["example.com/wait"]
    reply = await raw("DELETE", f"{CLAIMS}/c?propagationPolicy=Foreground")
    assert reply.json["metadata"]["finalizers"] == ["example.com/wait", "foregroundDeletion"]
    reply = await raw("DELETE", f"{CLAIMS}/c", {"propagationPolicy": "Background"})
    assert reply.json["metadata"]["finalizers"] == ["example.com/wait"]


async def test_dry_runs_change_nothing(raw, builders):
    assert (await raw("POST", f"{CLAIMS}?dryRun=All", builders["claim"]())).status == 201
    assert (await raw("GET", f"{CLAIMS}/c")).status == 404
    await raw("POST", CLAIMS, builders["claim"]())
    patch = {"metadata": {"labels": {"a": "b"}}}
    assert (await raw("PATCH", f"{CLAIMS}/c?dryRun=All", patch, MERGE)).json["metadata"][
        "labels"
    ] == {"a": "b"}
    assert (await raw("DELETE", f"{CLAIMS}/c?dryRun=All")).status == 200
    assert (await raw("DELETE", f"{CLAIMS}/c", {"dryRun": ["All"]})).status == 200
    assert "labels" not in (await raw("GET", f"{CLAIMS}/c")).json["metadata"]
