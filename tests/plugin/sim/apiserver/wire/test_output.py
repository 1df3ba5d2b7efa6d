"""Tests of the formats of objects and lists, and of lists in several pieces."""

import asyncio
import http.client
import json

import pytest
import yaml

from claimd.sim.apiserver.wire import output, tables
from tests.support import apiserver

MAPS = "/api/v1/namespaces/default/configmaps"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
FORMS = {
    "compact": {},
    "pretty": {"User-Agent": "curl/8"},
    "yaml": {"Accept": "application/yaml"},
    "table": {"Accept": TABLE},
    "pretty table": {"Accept": TABLE, "User-Agent": "curl/8"},
    "yaml table": {"Accept": TABLE.replace("json", "yaml")},
    "metadata": {"Accept": PARTIAL},
}


@pytest.fixture
async def maps(raw):
    for number in range(5):
        body = {"metadata": {"name": f"m{number}"}, "data": {"text": f'é\n"{number}', "empty": ""}}
        assert (await raw("POST", MAPS, body)).status == 201


@pytest.mark.parametrize("form", FORMS)
async def test_a_list_in_pieces_is_the_same_list(form, maps, raw, monkeypatch):
    headers = FORMS[form]
    monkeypatch.setattr(tables, "age", lambda since, now: "0s")  # a second may pass in between
    monkeypatch.setattr(output, "PIECE_TIME", 60.0)
    whole = await raw("GET", MAPS, headers=headers)
    assert "content-length" in whole.headers

    monkeypatch.setattr(output, "PIECE_SIZE", 1)
    pieces = await raw("GET", MAPS, headers=headers)
    assert pieces.headers["transfer-encoding"] == "chunked"
    assert pieces.body == whole.body
    assert pieces.headers["content-type"] == whole.headers["content-type"]


@pytest.mark.parametrize("form", FORMS)
async def test_a_list_is_written_as_one_document_is(form, maps, raw):
    """Compares the list, which is joined from parts, with the encoding of the whole document."""
    for path, count in ((MAPS, 5), (f"{MAPS}?labelSelector=none=here", 0)):
        reply = await raw("GET", path, headers=FORMS[form])
        if "yaml" in form:
            document = yaml.safe_load(reply.body)
            expected = yaml.safe_dump(document, sort_keys=True, allow_unicode=True).encode()
        elif "pretty" in form:
            document = json.loads(reply.body)
            expected = json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n"
        else:
            document = json.loads(reply.body)
            expected = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
        assert reply.body == expected
        assert len(document["rows" if "table" in form else "items"]) == count


async def test_the_head_of_a_list_in_pieces(maps, raw, monkeypatch):
    monkeypatch.setattr(output, "PIECE_SIZE", 1)
    reply = await raw("HEAD", MAPS)
    assert (reply.status, reply.body) == (200, b"")


async def test_a_watch_begins_with_what_is_there_in_pieces(maps, raw, monkeypatch):
    monkeypatch.setattr(output, "PIECE_SIZE", 1)
    reply = await raw("GET", f"{MAPS}?watch=1&timeoutSeconds=1")
    events = [json.loads(line) for line in reply.body.splitlines()]
    names = [event["object"]["metadata"]["name"] for event in events]
    assert names[-5:] == [f"m{number}" for number in range(5)]
    assert {event["object"]["kind"] for event in events} == {"ConfigMap"}


async def test_what_changes_while_a_list_is_written_is_not_in_it(api, maps, raw, connect):
    """Checks that a list shows one version, whatever is written meanwhile."""
    store = api.registry.store
    (kind,) = (kind for kind in api.catalog.kinds if kind.resource.plural == "configmaps")
    before = store.page(kind.resource, "default").items
    async with connect(api) as ask:
        await ask("DELETE", f"{MAPS}/m3")
        changed = {"metadata": {"name": "m4"}, "data": {"text": "changed"}}
        await ask("PUT", f"{MAPS}/m4", changed)
    served = api.catalog.served_version("", "v1", "configmaps")
    texts = [json.loads(served.encode(obj)).get("data", {}).get("text") for obj in before]
    assert texts[-2:] == ['é\n"3', 'é\n"4']


def test_pieces_are_of_a_size(monkeypatch):
    monkeypatch.setattr(output, "PIECE_SIZE", 5)
    monkeypatch.setattr(output, "PIECE_TIME", 60.0)
    assert list(output.in_pieces([b"abc", b"de", b"f", b"ghijklmn", b"o"])) == [
        b"abcde",
        b"fghijklmn",
        b"o",
    ]
    assert list(output.in_pieces([])) == []


def test_what_takes_long_is_a_piece_of_its_own(monkeypatch):
    monkeypatch.setattr(output, "PIECE_TIME", 0.0)
    assert list(output.in_pieces([b"a", b"b"])) == [b"a", b"b"]


async def test_the_proxy_of_faults_passes_a_list_in_pieces_on(monkeypatch):
    """Checks the proxy that other suites put in front of this server, as on a slow machine."""
    monkeypatch.setattr(output, "PIECE_SIZE", 1)
    async with apiserver.serve() as api:
        address = api.url.removeprefix("http://").split("/")[0]

        def ask():
            connection = http.client.HTTPConnection(address, timeout=60)
            connection.request("GET", "/api/v1/namespaces?limit=500")
            document = json.load(connection.getresponse())
            connection.close()
            return document

        assert len((await asyncio.to_thread(ask))["items"]) == 4
