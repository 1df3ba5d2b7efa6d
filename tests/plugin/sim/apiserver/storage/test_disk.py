"""A server that goes on where an earlier one ended."""

import sqlite3

import pytest

from plugin.kube import errors
from plugin.sim.apiserver.server import Options, serve
from plugin.sim.apiserver.storage import disk

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


async def test_objects_versions_and_tokens_outlive_the_server(tmp_path, connect, made):
    options = Options(db=tmp_path / "sim.db")
    async with serve(options) as api, connect(api) as ask:
        kept = await ask("POST", CLAIMS, made["claim"]("kept"))
        await ask("POST", CLAIMS, made["claim"]("gone"))
        await ask("DELETE", f"{CLAIMS}/gone")
        token, version = api.token, api.registry.store.resource_version
        part = api.token_of("system:kube-scheduler")
    async with serve(options) as api, connect(api) as ask, connect(api, part) as other:
        assert api.token == token
        assert await ask("GET", f"{CLAIMS}/kept") == kept
        assert [c["metadata"]["name"] for c in (await ask("GET", CLAIMS))["items"]] == ["kept"]
        assert (
            int((await ask("POST", CLAIMS, made["claim"]("new")))["metadata"]["resourceVersion"])
            > version
        )
        with pytest.raises(errors.Forbidden, match="system:kube-scheduler"):
            await other("GET", f"{CLAIMS}/kept")


async def test_nobody_else_reads_the_tokens(tmp_path, connect, made):
    async with serve(Options(db=tmp_path / "sim.db")) as api, connect(api) as ask:
        await ask("POST", CLAIMS, made["claim"]())
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.glob("sim.db*")}
        assert modes == dict.fromkeys(["sim.db", "sim.db-wal", "sim.db-shm"], 0o600)


async def test_a_change_is_on_disk_a_moment_later(tmp_path, connect, made, until):
    async with serve(Options(db=tmp_path / "sim.db")) as api, connect(api) as ask:
        await ask("POST", CLAIMS, made["claim"]())
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


async def test_one_server_a_file(tmp_path):
    options = Options(db=tmp_path / "sim.db")
    async with serve(options):
        with pytest.raises(disk.Unusable, match=r"sim\.db is in use by another server"):
            async with serve(options):
                pass
    async with serve(options):
        pass
