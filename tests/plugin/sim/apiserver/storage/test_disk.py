"""Tests of a server that continues from the file of an earlier one."""

import asyncio
import json
import sqlite3
import sys

import pytest

from claimd.kubernetes.kube import auth, client, errors
from claimd.sim.apiserver.server import Options, serve
from claimd.sim.apiserver.storage import disk

MAPS = "/api/v1/namespaces/default/configmaps"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


async def test_objects_versions_and_tokens_outlive_the_server(tmp_path, connect, builders):
    options = Options(db=tmp_path / "sim.db")
    async with serve(options) as api, connect(api) as ask:
        kept = await ask("POST", CLAIMS, builders["claim"]("kept"))
        await ask("POST", CLAIMS, builders["claim"]("gone"))
        await ask("DELETE", f"{CLAIMS}/gone")
        token, version = api.token, api.registry.store.resource_version
        part = api.token_of("system:kube-scheduler")
    async with serve(options) as api, connect(api) as ask, connect(api, part) as other:
        assert api.token == token
        assert await ask("GET", f"{CLAIMS}/kept") == kept
        assert [c["metadata"]["name"] for c in (await ask("GET", CLAIMS))["items"]] == ["kept"]
        assert (
            int(
                (await ask("POST", CLAIMS, builders["claim"]("new")))["metadata"]["resourceVersion"]
            )
            > version
        )
        with pytest.raises(errors.Forbidden, match="system:kube-scheduler"):
            await other("GET", f"{CLAIMS}/kept")


async def test_nobody_else_reads_the_tokens(tmp_path, connect, builders):
    async with serve(Options(db=tmp_path / "sim.db")) as api, connect(api) as ask:
        await ask("POST", CLAIMS, builders["claim"]())
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.glob("sim.db*")}
        assert modes == dict.fromkeys(["sim.db", "sim.db-wal", "sim.db-shm"], 0o600)


async def test_a_change_is_on_disk_a_moment_later(tmp_path, connect, builders, until):
    async with serve(Options(db=tmp_path / "sim.db")) as api, connect(api) as ask:
        await ask("POST", CLAIMS, builders["claim"]())
        reader = sqlite3.connect(tmp_path / "sim.db")
        query = "select count(*) from objects where name = 'c'"
        await until(lambda: reader.execute(query).fetchone() == (1,))
        reader.close()


async def test_files_that_cannot_be_used(tmp_path):
    (tmp_path / "text").write_text("no database at all, but long enough to be read as one" * 20)
    with pytest.raises(disk.Unusable, match="expected a file that `claimd sim` wrote"):
        async with serve(Options(db=tmp_path / "text")):
            pass
    async with serve(Options(db=tmp_path / "old", profile="1.30")):
        pass
    with pytest.raises(disk.Unusable, match=r"is of a server like 1\.30, not 1\.37"):
        async with serve(Options(db=tmp_path / "old")):
            pass


OBJECT = {"metadata": {"name": "c", "uid": "u", "resourceVersion": "7"}}


@pytest.mark.parametrize(
    ("facts", "document", "why"),
    [
        ({"version": "soon"}, OBJECT, "no version: 'soon'"),
        ({"version": "9"}, OBJECT, "'admin'"),
        ({"version": "9", "admin": "t", "key": "odd"}, OBJECT, "non-hexadecimal"),
        ({}, {"metadata": {}}, "missing required field `name`"),
        ({}, [], "Expected `object`, got `array`"),
    ],
)
async def test_a_file_with_something_else_in_it(tmp_path, facts, document, why):
    with sqlite3.connect(tmp_path / "sim.db") as file:
        file.executescript(disk.TABLES)
        file.executemany(disk.PUT_FACT, list(facts.items()))
        row = ("configmaps", "", "ConfigMap", "default", "c", json.dumps(document))
        file.execute(disk.PUT_OBJECT, row)
    file.close()

    for _ in range(2):  # nobody holds it afterwards
        with pytest.raises(disk.Unusable, match=f"expected a file that `claimd sim` wrote.*{why}"):
            async with serve(Options(db=tmp_path / "sim.db")):
                pass


async def test_one_server_a_file(tmp_path):
    options = Options(db=tmp_path / "sim.db")
    async with serve(options):
        with pytest.raises(disk.Unusable, match=r"sim\.db is in use by another server"):
            async with serve(options):
                pass
    async with serve(options):
        pass


async def start(path, tmp_path):
    """Starts a server as a process, which the test may kill. Returns it with its first line."""
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "claimd", "sim", "--db", str(path)),
        *("--kubeconfig", str(tmp_path / "kubeconfig")),
        stdout=asyncio.subprocess.PIPE,
    )
    await server.stdout.readline()
    return server


@pytest.mark.slow
async def test_what_was_answered_outlives_a_kill(tmp_path):
    """Kills the server in the middle of writes.

    Every write that was answered is stored, no version comes twice, and a watch from a version that
    the new server does not know must list again.
    """
    newest, names = 0, []
    for round_ in range(4):
        server = await start(tmp_path / "sim.db", tmp_path)
        api = client.Client(auth.client_config(str(tmp_path / "kubeconfig"), tmp_path), agent="t")
        listed = json.loads(await api.request("GET", MAPS))
        assert [item["metadata"]["name"] for item in listed["items"]] == names
        version = int(listed["metadata"]["resourceVersion"])
        assert version > newest
        if round_:
            query = {"watch": "1", "resourceVersion": str(newest)}
            async for line in api.lines(MAPS, query, idle=5):
                assert json.loads(line)["object"]["code"] == 410
                break

        for number in range(20):
            name = f"m{round_}-{number:02}"
            body = json.dumps({"metadata": {"name": name}}).encode()
            stored = json.loads(await api.request("POST", MAPS, body=body))
            names.append(name)
            newest = max(newest, int(stored["metadata"]["resourceVersion"]))
        server.kill()
        await server.wait()
        await api.close()


async def test_an_orderly_end_skips_no_versions(tmp_path, connect, builders):
    options = Options(db=tmp_path / "sim.db", housekeeping=False)
    async with serve(options) as api, connect(api) as ask:
        await ask("POST", CLAIMS, builders["claim"]())
        version = api.registry.store.resource_version
    async with serve(options) as api:
        assert api.registry.store.resource_version == version
