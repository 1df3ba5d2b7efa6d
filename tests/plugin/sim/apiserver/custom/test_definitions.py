"""Tests of definitions: the kind comes and goes with its definition and acts as other kinds do."""

import pytest

from claimd.kubernetes.kube import errors
from claimd.sim.apiserver.server import Options, serve

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/toys.example.com/v1/namespaces/default/widgets"
MERGE = "application/merge-patch+json"


def conditions(definition):
    return {each["type"]: each["status"] for each in definition["status"]["conditions"]}


async def test_what_is_defined_is_served(ask, toys):
    with pytest.raises(errors.NotFound):
        await ask("GET", WIDGETS)
    await ask("POST", DEFINITIONS, toys["definition"]())
    stored = await ask("GET", f"{DEFINITIONS}/widgets.toys.example.com")
    assert conditions(stored) == {"NamesAccepted": "True", "Established": "True"}
    assert stored["status"]["acceptedNames"] == {
        "plural": "widgets",
        "singular": "widget",
        "kind": "Widget",
        "listKind": "WidgetList",
    }
    created = await ask("POST", WIDGETS, toys["widget"]())
    assert created["spec"] == {"size": 1}
    assert (await ask("GET", WIDGETS))["kind"] == "WidgetList"


async def test_who_comes_second_does_not_get_the_name(ask, toys):
    await ask("POST", DEFINITIONS, toys["definition"]())
    await ask("POST", DEFINITIONS, toys["definition"]("gadgets", "Widget"))
    second = await ask("GET", f"{DEFINITIONS}/gadgets.toys.example.com")
    assert conditions(second) == {"NamesAccepted": "False", "Established": "False"}
    assert second["status"]["conditions"][0]["reason"] == "ListKindConflict"
    with pytest.raises(errors.NotFound):
        await ask("GET", WIDGETS.replace("widgets", "gadgets"))

    # The name may be used again.
    await ask("DELETE", f"{DEFINITIONS}/widgets.toys.example.com")
    second = await ask("GET", f"{DEFINITIONS}/gadgets.toys.example.com")
    assert conditions(second) == {"NamesAccepted": "True", "Established": "True"}


async def test_with_a_definition_its_objects_go(ask, toys):
    await ask("POST", DEFINITIONS, toys["definition"]())
    await ask("POST", WIDGETS, toys["widget"]())
    await ask("POST", WIDGETS, toys["widget"]("held", finalizers=["example.com/wait"]))
    await ask("DELETE", f"{DEFINITIONS}/widgets.toys.example.com")

    names = [each["metadata"]["name"] for each in (await ask("GET", WIDGETS))["items"]]
    assert names == ["held"]
    with pytest.raises(errors.Forbidden, match="while custom resource definition is terminating"):
        await ask("POST", WIDGETS, toys["widget"]("late"))
    ending = await ask("GET", f"{DEFINITIONS}/widgets.toys.example.com")
    assert conditions(ending)["Terminating"] == "True"

    await ask("PATCH", f"{WIDGETS}/held", {"metadata": {"finalizers": None}}, content_type=MERGE)
    for path in (WIDGETS, f"{DEFINITIONS}/widgets.toys.example.com"):
        with pytest.raises(errors.NotFound):
            await ask("GET", path)


async def test_kinds_and_objects_outlive_the_server(tmp_path, connect, toys):
    options = Options(db=tmp_path / "sim.db")
    async with serve(options) as api, connect(api) as ask:
        await ask("POST", DEFINITIONS, toys["definition"]())
        kept = await ask("POST", WIDGETS, toys["widget"]())
    async with serve(options) as api, connect(api) as ask:
        assert await ask("GET", f"{WIDGETS}/w") == kept


async def test_namespaces_and_owners_take_them_along(connect, toys, until):
    async with serve(Options(end_namespaces=True)) as api, connect(api) as ask:
        await ask("POST", DEFINITIONS, toys["definition"]())
        await ask("POST", "/api/v1/namespaces", {"metadata": {"name": "team"}})
        await ask("POST", WIDGETS.replace("default", "team"), toys["widget"]())
        await ask("DELETE", "/api/v1/namespaces/team")
        kind = api.catalog.kind("widgets", "toys.example.com").resource
        await until(lambda: not api.registry.store.page(kind).items)

        owner = await ask("POST", WIDGETS, toys["widget"]("owner"))
        reference = {"apiVersion": "toys.example.com/v1", "kind": "Widget", "name": "owner"}
        reference["uid"] = owner["metadata"]["uid"]
        await ask("POST", WIDGETS, toys["widget"]("owned", ownerReferences=[reference]))
        await ask("DELETE", f"{WIDGETS}/owner")
        await until(lambda: not api.registry.store.page(kind).items)


async def test_rights_are_those_of_roles(api, ask, connect, toys):
    await ask("POST", DEFINITIONS, toys["definition"]())
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    rule = {"apiGroups": ["toys.example.com"], "resources": ["widgets"], "verbs": ["list"]}
    await ask("POST", f"{rbac}/clusterroles", {"metadata": {"name": "r"}, "rules": [rule]})
    binding = {
        "metadata": {"name": "r"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"},
        "subjects": [{"kind": "User", "name": "child"}],
    }
    await ask("POST", f"{rbac}/clusterrolebindings", binding)
    async with connect(api, api.token_of("child")) as child:
        assert (await child("GET", WIDGETS))["items"] == []
        with pytest.raises(errors.Forbidden, match="toys.example.com"):
            await child("POST", WIDGETS, toys["widget"]())


async def test_a_schema_that_grows_is_seen_in_what_is_there(ask, toys):
    await ask("POST", DEFINITIONS, toys["definition"]())
    await ask("POST", WIDGETS, toys["widget"]())
    grown = toys["definition"](color={"type": "string", "default": "red"})
    await ask(
        "PATCH",
        f"{DEFINITIONS}/widgets.toys.example.com",
        {"spec": grown["spec"]},
        content_type=MERGE,
    )
    assert (await ask("GET", f"{WIDGETS}/w"))["spec"] == {"size": 1, "color": "red"}


async def test_a_webhook_is_told_to_be_missing(raw, toys):
    client = {"service": {"namespace": "default", "name": "hook"}}
    webhook = {"clientConfig": client, "conversionReviewVersions": ["v1"]}
    definition = toys["definition"]()
    definition["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    answer = await raw("POST", DEFINITIONS, definition)
    assert answer.status == 201
    assert "not simulated: spec.conversion" in answer.headers["warning"]


async def test_open_api_describes_its_fields(ask, toys):
    schema = {"type": "string", "description": "as it is painted"}
    await ask("POST", DEFINITIONS, toys["definition"](color=schema))
    document = await ask("GET", "/openapi/v3/apis/toys.example.com/v1")
    described = document["components"]["schemas"]["com.example.toys.v1.Widget"]
    assert described["properties"]["spec"]["properties"]["color"] == schema
    await ask("DELETE", f"{DEFINITIONS}/widgets.toys.example.com")
    assert "apis/toys.example.com/v1" not in (await ask("GET", "/openapi/v3"))["paths"]


@pytest.mark.parametrize(
    "spec",
    [
        {"versions": "v1"},
        {"versions": [5]},
        {"names": []},
        {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": {"properties": []}}}]},
        {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": {"anyOf": [1]}}}]},
        {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": {"maxLength": "5"}}}]},
        {"conversion": "None"},
        {"versions": [None]},
        {"names": None},
        {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": {"properties": {"a": None}}}}]},
        {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": {"anyOf": [None]}}}]},
        {"versions": [{"name": "v1", "selectableFields": [{}]}]},
    ],
)
async def test_another_type_is_refused(raw, toys, spec):
    definition = toys["definition"]()
    definition["spec"] |= spec
    answer = await raw("POST", DEFINITIONS, definition)
    assert answer.status in (400, 422), answer.body
