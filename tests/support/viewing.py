"""`claimd view` over an API server of a test: a small cluster with something of everything on it."""

import contextlib

from claimd.kubernetes.kube import auth, client
from claimd.tools.view import follow
from claimd.tools.view.board import Board
from claimd.tools.view.server import Page
from tests.support import cluster_objects as objects
from tests.support import kubeconfigs
from tests.support.cluster_objects import DRIVER, MI300X, claim, class_, gpu, gpus, name, node, pod

# What somebody may write into an object that is shown.
HOSTILE = (
    "<script>document.title='owned'</script>",
    '"><img src=x onerror="document.title=\'owned\'">',
    "\u202egnp.exe\u202c",
    "javascript:alert(1)//'); --",
    "</textarea>&lt;b&gt;&#0;",
)


@contextlib.asynccontextmanager
async def serve(api, folder, recorded=None):
    """The page of the API server's cluster."""
    config = kubeconfigs.write(folder / "kubeconfig", {"server": api.url}, {})
    connection = client.Client(auth.client_config(str(config), folder), agent="test")
    board = Board()
    try:
        async with follow.from_cluster(board, connection, recorded) as picture:
            page = Page(board, picture)
            async with page.serve():
                yield page
    finally:
        await connection.close()


def small_cluster():
    """Three nodes: whole GPUs, one of them sick; GPUs that are shared; a divided one."""
    yield class_()
    for called in ("dgx-1", "mi300-1", "shared-1"):
        documents = node(called)
        documents["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
        yield documents
    yield objects.slice_(_sick(gpus(8)), node="dgx-1")
    # Counters and the devices that take of them stand in slices of their own.
    mi300 = [*gpus(3, MI300X), *_divided(3)]
    yield objects.slice_(mi300, node="mi300-1", count=2)
    counters = objects.slice_([], node="mi300-1", count=2, called="mi300-1-counters")
    counters["spec"]["sharedCounters"] = _COUNTERS
    yield counters
    shared = gpus(4, objects.A100, allowMultipleAllocations=True)
    yield objects.slice_(shared, node="shared-1")

    yield _running("llama-train", "dgx-1", [name(index) for index in range(4)])
    yield _running("notebook-7", "dgx-1", [name(5)])
    yield _running("whisper", "mi300-1", [name(0)])
    yield _running("batch-part", "mi300-1", ["gpu-3-part-0"])
    for number in range(3):
        documents = _running(f"chat-{number}", "shared-1", [name(0)])
        result = documents["status"]["allocation"]["devices"]["results"][0]
        result["shareID"] = f"3f2b8a5e-0000-4000-8000-00000000000{number}"
        result["consumedCapacity"] = {"memory": "8Gi"}
        yield documents

    large = objects.selector(f'device.capacity["{DRIVER}"].memory.compareTo(quantity("80Gi")) >= 0')
    yield claim("big-model", count=6, selectors=[large])
    yield pod(
        "big-model-0",
        resourceClaims=[{"name": "gpus", "resourceClaimName": "big-model"}],
        containers=[objects.container(cpu="8")],
    )


def _running(called, on, held):
    claim_ = claim(called, held=held, on=on, reserved=[f"{called}-0"])
    return claim_


def _sick(devices):
    devices[6]["taints"] = [
        {
            "key": "claimd.dev/xid",
            "value": "79",
            "effect": "NoExecute",
            "timeAdded": "2026-11-23T09:12:04Z",
        }
    ]
    return devices


def _divided(index):
    whole = gpu(index, MI300X)
    whole["consumesCounters"] = [{"counterSet": "gpu-3", "counters": {"xcc": {"value": "4"}}}]
    parts = []
    for number in range(4):
        part = gpu(index, MI300X)
        part["name"] = f"gpu-3-part-{number}"
        part["attributes"]["parent"] = {"string": whole["name"]}
        part["capacity"] = {"memory": {"value": "48Gi"}}
        part["consumesCounters"] = [{"counterSet": "gpu-3", "counters": {"xcc": {"value": "1"}}}]
        parts.append(part)
    return [whole, *parts]


_COUNTERS = [{"name": "gpu-3", "counters": {"xcc": {"value": "4"}}}]
