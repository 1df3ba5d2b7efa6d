"""A whole cluster: claimd's rights in it, which are those of the manifests."""

import asyncio
import fcntl
import functools
import json
import os
import shutil
import struct
import tempfile
import termios
from pathlib import Path

import msgspec
import pytest

from claimd.kubernetes.kube import client, errors, kubeconfig
from claimd.sim import cluster, daemon
from claimd.sim.apiserver import server

SLICES = "/apis/resource.k8s.io/v1/resourceslices"


@pytest.fixture
async def running():
    with tempfile.TemporaryDirectory(
        prefix="sim-", dir="/tmp"
    ) as folder:  # short: sockets lie in it
        machines = [
            cluster.Machine(name="one", gpus=["nvidia:h100"]),
            cluster.Machine(name="two", gpus=["amd:mi300x"]),
        ]
        async with cluster.up(machines, Path(folder), options=server.Options()) as up:
            yield up


async def get(api, path):
    return json.loads(await api.request("GET", path))


async def find_slice(api, node):
    """Returns a slice of the node, or None. A kubelet deletes the slices of its node when it starts,
    and on a busy machine its driver may have published some before that."""
    slices = await get(api, SLICES)
    return next((each for each in slices["items"] if each["spec"]["nodeName"] == node), None)


async def delete_slice(api, node):
    """Deletes a slice of the node. Returns the refusal, or "" if the node has no slice now."""
    slice_ = await find_slice(api, node)
    if slice_ is None:
        return ""
    try:
        await api.request("DELETE", f"{SLICES}/{slice_['metadata']['name']}")
    except errors.NotFound:
        return ""
    except errors.ApiError as error:
        return str(error)
    raise AssertionError(f"a slice of {node} was deleted")


async def until(fact):
    async with asyncio.timeout(30):
        while not (answer := await fact()):
            await asyncio.sleep(0.02)
    return answer


async def wait_for_slices(running):
    async def there():
        slices = await get(running.client, SLICES)
        return {slice_["spec"]["nodeName"] for slice_ in slices["items"]} == {"one", "two"}

    await until(there)


async def test_nodes_publish_and_the_plugins_have_the_rights_of_the_manifests(running):
    await wait_for_slices(running)
    plugin = client.Client(kubeconfig.load(running.folder / "one" / "kubeconfig"), agent="test")
    try:
        with pytest.raises(
            errors.Forbidden, match='User "system:serviceaccount:claimd-system:claimd" cannot list'
        ):
            await get(plugin, "/api/v1/pods")
        refusal = await until(lambda: delete_slice(plugin, "two"))
        assert "claimd on node one may not write a slice of node two" in refusal
    finally:
        await plugin.close()


async def test_parts_are_told_once_to_end_and_have_the_time_for_it():
    """A second cancellation would keep a kubelet from stopping its gRPC server, which may block the
    process for ever."""
    ended = []

    async def run(seconds):
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(seconds)
            ended.append(seconds)

    async with cluster._Tasks() as tasks:
        for seconds in (0.0, 0.05, 0.1):
            tasks.start(functools.partial(run, seconds), str(seconds))
        await asyncio.sleep(0)
    assert ended == [0.0, 0.05, 0.1]


@pytest.mark.slow
async def test_the_daemon_set_shows_how_the_processes_are(running):
    async def ready(count):
        daemon_set = await get(
            running.client, "/apis/apps/v1/namespaces/claimd-system/daemonsets/claimd"
        )
        return (daemon_set.get("status") or {}).get("numberReady") == count

    await until(lambda: ready(2))
    await running.nodes["one"].daemon.stop()
    await until(lambda: ready(1))
    running.nodes["one"].daemon.start()
    await until(lambda: ready(2))
    pods = await get(running.client, "/api/v1/namespaces/claimd-system/pods")
    assert sorted(pod["metadata"]["name"] for pod in pods["items"]) == ["claimd-one", "claimd-two"]
    assert running.nodes["one"].daemon.state == daemon.RUNNING


@pytest.mark.slow
async def test_what_a_container_prints_is_a_log(running):
    command = ["sh", "-c", "echo first; echo second; exec sleep 100"]
    spec = {"nodeName": "one", "containers": [{"name": "a", "image": "i", "command": command}]}
    spec["containers"].append({"name": "b", "image": "i"})
    pod = {"metadata": {"name": "p"}, "spec": spec}
    pods = "/api/v1/namespaces/default/pods"
    await running.client.request("POST", pods, body=json.dumps(pod).encode())

    async def read_log(**query):
        return (await running.client.request("GET", f"{pods}/p/log", query=query)).decode()

    async def has_printed():
        return await read_log(container="a") == "first\nsecond\n"

    await until(has_printed)
    assert await read_log(container="a", tailLines="1") == "second\n"
    assert await read_log(container="a", tailLines="0") == ""
    assert await read_log(container="b") == ""
    with pytest.raises(
        errors.ApiError,
        match=r"a container name must be specified for pod p, choose one of: \[a b\]",
    ):
        await read_log()
    with pytest.raises(errors.ApiError, match="container c is not valid for pod p"):
        await read_log(container="c")
    with pytest.raises(errors.NotFound):
        await running.client.request("GET", f"{pods}/q/log")

    waiting = {"metadata": {"name": "w"}, "spec": spec | {"nodeName": "", "schedulerName": "none"}}
    await running.client.request("POST", pods, body=json.dumps(waiting).encode())
    has_said = 'container "a" in pod "w" is waiting to start: ContainerCreating'
    with pytest.raises(errors.ApiError, match=has_said):
        await running.client.request(
            "GET", f"{pods}/w/log", query={"follow": "true", "container": "a"}
        )


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("kubectl"), reason="there is no kubectl")
async def test_kubectl_follows_a_log_until_the_container_has_ended(running, tmp_path):
    go = tmp_path / "go"
    command = ["sh", "-c", f"echo one; echo two; until [ -e {go} ]; do sleep 0.01; done; echo end"]
    container = {"name": "a", "image": "i", "command": command}
    pods = "/api/v1/namespaces/default/pods"
    spec = {"restartPolicy": "Never", "containers": [container]}
    pod = {"metadata": {"name": "p"}, "spec": spec}
    await running.client.request("POST", pods, body=json.dumps(pod).encode())
    follow = ["kubectl", "logs", "-f", "--tail=1", "p"]

    async def run(*words):
        return await asyncio.create_subprocess_exec(
            *words,
            env=os.environ | {"KUBECONFIG": str(running.kubeconfig), "HOME": str(tmp_path)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def has_printed():
        return running.logs("default", "p") == "one\ntwo\n"

    await until(has_printed)
    kubectl = await run(*follow)
    assert await kubectl.stdout.readline() == b"two\n"
    go.touch()
    async with asyncio.timeout(30):
        assert await kubectl.communicate() == (b"end\n", b"")
    assert kubectl.returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("kubectl"), reason="there is no kubectl")
async def test_kubectl_runs_commands_in_a_container(running, tmp_path):
    """kubectl's own protocol transfers the input, both outputs, the exit code and a terminal."""
    container = {"name": "a", "image": "i", "command": ["sleep", "1000"]}
    container["env"] = [{"name": "WORD", "value": "found"}]
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [container]}}
    pods = "/api/v1/namespaces/default/pods"
    await running.client.request("POST", pods, body=json.dumps(pod).encode())

    async def runs():
        return (await get(running.client, f"{pods}/p")).get("status", {}).get("phase") == "Running"

    await until(runs)

    async def kubectl(*words, given=None, terminal=asyncio.subprocess.PIPE):
        process = await asyncio.create_subprocess_exec(
            *("kubectl", "exec", *words),
            env=os.environ | {"KUBECONFIG": str(running.kubeconfig), "HOME": str(tmp_path)},
            stdin=terminal,
            stdout=terminal,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(60):
            out, err = await process.communicate(given)
        return process.returncode, out, err

    script = 'echo "$WORD $0"; echo wrong >&2; exit 3'
    code, out, err = await kubectl("p", "--", "sh", "-c", script, "a b")
    assert (code, out) == (3, b"found a b\n")
    assert err == b"wrong\ncommand terminated with exit code 3\n"
    large = os.urandom(300_000)
    assert await kubectl("-i", "p", "--", "cat", given=large) == (0, large, b"")
    code, _, err = await kubectl("p", "--", "no-such-command")
    assert code == 127
    assert err.startswith(b'exec: "no-such-command": executable file not found in $PATH\n')
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 7, 31, 0, 0))
    resized = "until [ \"$(stty size)\" = '7 31' ]; do sleep 0.01; done; tty"
    code, _, err = await kubectl("-it", "p", "--", "sh", "-c", resized, terminal=theirs)
    assert (code, err) == (0, b"")
    assert b"/dev/pts/" in os.read(ours, 4096)
    os.close(ours)
    os.close(theirs)
    code, _, err = await kubectl("p", "-c", "b", "--", "true")
    assert code == 1
    assert b"container b is not valid for pod p" in err


async def test_a_plugin_that_is_killed_in_the_middle_of_a_prepare_gives_the_same_again(running):
    claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
    node = running.nodes["two"]
    requests = [{"name": "g", "exactly": {"deviceClassName": "amd.gpu.claimd.dev"}}]
    claim = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests}}}
    claim = json.loads(
        await running.client.request("POST", claims, body=json.dumps(claim).encode())
    )
    uid = claim["metadata"]["uid"]
    crash = node.crash_in_prepare()
    crash.hang_at(uid)
    crash.hang_at(uid)
    killing = asyncio.create_task(crash.kill(20))
    spec = {
        "containers": [{"name": "a", "image": "i", "resources": {"claims": [{"name": "g"}]}}],
        "resourceClaims": [{"name": "g", "resourceClaimName": "c"}],
    }
    pods = "/api/v1/namespaces/default/pods"
    await running.client.request(
        "POST", pods, body=json.dumps({"metadata": {"name": "p"}, "spec": spec}).encode()
    )
    assert await killing == "the record was written, the CDI file not"
    assert crash.prepared_claims() == {uid}
    assert not list((node.folder / "cdi").iterdir())

    async def runs():
        return (await get(running.client, f"{pods}/p")).get("status", {}).get("phase") == "Running"

    await until(runs)
    assert node.daemon.restarts == 1
    assert uid in next((node.folder / "cdi").iterdir()).name


@pytest.mark.slow
async def test_a_strike_that_nothing_comes_of_leaves_nothing(running):
    crash = running.nodes["one"].crash_in_prepare()
    crash.hang_at("00000000-0000-0000-0000-000000000000")
    with pytest.raises(TimeoutError):
        await crash.kill(0.1)
    assert not list((running.nodes["one"].folder / "cdi").iterdir())
    assert running.nodes["one"].daemon.state == daemon.RUNNING


@pytest.mark.slow
async def test_tokens_stand_in_files_of_their_owner_alone_and_in_no_message(running):
    await wait_for_slices(running)
    with pytest.raises(errors.ApiError) as refused:
        await running.client.request("GET", "/api/v1/nodes/none")
    nowhere = msgspec.structs.replace(kubeconfig.load(running.kubeconfig), port=1)
    with pytest.raises(errors.Unreachable) as unreachable:
        await client.Client(nowhere, agent="test").request("GET", "/api/v1/nodes")

    tokens = [running.api.token.encode()]
    for node in running.nodes:
        written = json.loads((running.folder / node / "kubeconfig").read_text())
        tokens.append(written["clusters"][0]["cluster"]["server"].rpartition("/")[2].encode())
    for token in tokens:
        assert token not in f"{refused.value} {unreachable.value}".encode()
        for path in running.folder.rglob("*"):
            if path.is_file() and not path.is_symlink() and path.stat().st_mode & 0o077:
                assert token not in path.read_bytes(), path


@pytest.mark.slow
async def test_a_container_waits_for_the_config_map_of_its_variables(running):
    source = {"configMapKeyRef": {"name": "settings", "key": "word"}}
    container = {
        "name": "main",
        "image": "i",
        "command": ["sh", "-c", "echo $WORD; exec sleep 1000"],
        "env": [{"name": "WORD", "valueFrom": source}],
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {
            "nodeName": "one",
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        },
    }
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"word": "found"}}
    config_map["metadata"] = {"name": "settings"}
    namespace = "/api/v1/namespaces/default"
    await running.client.request("POST", f"{namespace}/pods", body=json.dumps(pod).encode())

    async def waits():
        stored = await get(running.client, f"{namespace}/pods/p")
        statuses = stored["status"].get("containerStatuses") or [{}]
        reason = statuses[0].get("state", {}).get("waiting", {}).get("reason")
        return reason == "CreateContainerConfigError"

    await until(waits)
    body = json.dumps(config_map).encode()
    await running.client.request("POST", f"{namespace}/configmaps", body=body)

    async def has_said():
        return running.logs("default", "p") == "found\n"

    await until(has_said)


@pytest.mark.slow
async def test_pods_of_a_group_share_its_claim_from_the_template_to_the_end(running):
    """The gang waits for its second pod, runs with one GPU, and goes with its group."""
    dra, namespace = "/apis/resource.k8s.io/v1/namespaces/default", "/api/v1/namespaces/default"
    groups = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
    entry = {"name": "g", "resourceClaimTemplateName": "one"}
    requests = [{"name": "g", "exactly": {"deviceClassName": "nvidia.gpu.claimd.dev"}}]
    template = {
        "metadata": {"name": "one"},
        "spec": {"spec": {"devices": {"requests": requests}}},
    }
    policy = {"gang": {"minCount": 2}}
    group = {
        "metadata": {"name": "training"},
        "spec": {"schedulingPolicy": policy, "resourceClaims": [entry]},
    }

    async def post(path, document):
        await running.client.request("POST", path, body=json.dumps(document).encode())

    async def add_worker(name):
        container = {"name": "a", "image": "i", "resources": {"claims": [{"name": "g"}]}}
        spec = {
            "schedulingGroup": {"podGroupName": "training"},
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            "resourceClaims": [entry],
        }
        await post(f"{namespace}/pods", {"metadata": {"name": name}, "spec": spec})

    async def phases():
        pods = (await get(running.client, f"{namespace}/pods"))["items"]
        return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in pods}

    async def claims():
        return (await get(running.client, f"{dra}/resourceclaims"))["items"]

    await post(f"{dra}/resourceclaimtemplates", template)
    await post(groups, group)
    await add_worker("a")
    (claim,) = await until(claims)
    assert "allocation" not in claim.get("status", {})
    await add_worker("b")

    async def both_run():
        return await phases() == {"a": "Running", "b": "Running"}

    await until(both_run)
    (claim,) = await claims()
    (user,) = claim["status"]["reservedFor"]
    assert (user["resource"], user["name"]) == ("podgroups", "training")

    # The group stays as long as its pods run.
    await running.client.request("DELETE", f"{groups}/training")
    assert (await get(running.client, f"{groups}/training"))["metadata"]["deletionTimestamp"]
    for name in "ab":
        await running.client.request("DELETE", f"{namespace}/pods/{name}")

    async def all_gone():
        remaining = (await get(running.client, groups))["items"]
        return not remaining and not await claims() and not await phases()

    await until(all_gone)
    assert not list((running.nodes["one"].folder / "cdi").iterdir())
