"""The fixtures as another project's suite uses them, in its own pytest process."""

import importlib.metadata
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

MANIFEST = """
    apiVersion: v1
    kind: Pod
    metadata: {name: p, namespace: own}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: main
        image: none
        command: [sh, -c, "echo hello; exec sleep 1000"]
        resources: {claims: [{name: gpu}]}
      resourceClaims: [{name: gpu, resourceClaimName: c}]
    ---
    apiVersion: resource.k8s.io/v1
    kind: ResourceClaim
    metadata: {name: c, namespace: own}
    spec: {devices: {requests: [{name: g, exactly: {deviceClassName: gpu.claimd.dev}}]}}
    ---
    apiVersion: v1
    kind: Namespace
    metadata: {name: own}
"""
# A pytest in an environment from before the entry point was there knows nothing of us.
INSTALLED = any(
    entry.value == "claimd.sim.testing.pytest_plugin"
    for entry in importlib.metadata.entry_points(group="pytest11")
)


@pytest.fixture
def suite(pytester, monkeypatch):
    """Runs a suite of these tests; the caller checks the folders and processes that it reports."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makefile(".ini", pytest="[pytest]\nasyncio_default_fixture_loop_scope = function\n")

    def run(tests, *words):
        pytester.makepyfile(textwrap.dedent(tests))
        folder = pytester.path / "manifests"
        folder.mkdir()
        (folder / "pod.yaml").write_text(textwrap.dedent(MANIFEST))
        if not INSTALLED:
            words = ("-p", "claimd.sim.testing.pytest_plugin", *words)
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", *words)

    return run


def processes_of(folder):
    """Returns the processes whose command or environment names the folder, except this test's."""
    pids = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            told = (place / "cmdline").read_bytes() + (place / "environ").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in told:
            pids.append(place.name)
    return pids


@pytest.mark.slow
def test_a_suite_has_a_cluster_and_leaves_nothing(suite, pytester):
    tests = """
        import time
        from pathlib import Path

        def test_a_folder_is_applied_and_its_pod_runs(claimd_cluster):
            cluster = claimd_cluster
            Path("folder").write_text(str(cluster.folder))
            applied = cluster.apply("manifests")
            assert [obj["kind"] for obj in applied] == ["Namespace", "Pod", "ResourceClaim"]
            pod = cluster.wait("pod/p", namespace="own")
            assert pod["spec"]["nodeName"] == "node-1"
            # A pod runs before it has printed anything.
            while not cluster.logs("p", "own"):
                time.sleep(0.01)
            assert cluster.logs("p", "own") == "hello\\n"
            assert cluster.get("ns/own")["kind"] == "Namespace"
            assert [one["kind"] for one in cluster.list("resourceslices")] == ["ResourceSlice"]
            assert cluster.environ["KUBECONFIG"] == str(cluster.kubeconfig)
            assert cluster.describe() == ""
            ran = cluster.exec("p", ["sh", "-c", "echo $0; echo wrong >&2; exit 3", "a b"], "own")
            assert (ran.returncode, ran.stdout, ran.stderr) == (3, "a b\\n", "wrong\\n")
            cluster.wait("pod/p", "gone", namespace="own", timeout=0.1)
    """
    result = suite(tests, "--tb=short")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*ClusterError: waited 0.1 s for pod/p in vain: is still there",
            "*claimd on node-1 (running)*",
        ]
    )
    # What is ours is no matter of whoever reads why a test failed.
    result.stdout.no_fnmatch_line("*pytest_plugin.py:*")

    folder = Path((pytester.path / "folder").read_text())
    assert not folder.exists()
    assert processes_of(folder) == []


@pytest.mark.slow
def test_parts_fail_and_a_test_that_fails_says_what_the_cluster_saw(suite):
    tests = """
        from pathlib import Path
        import pytest

        @pytest.fixture(scope="session")
        def cluster(claimd_cluster_factory):
            return claimd_cluster_factory({"a": "nvidia:l4=2", "b": ""})

        def test_parts_fail_and_come_back(cluster):
            cluster.apply("manifests")
            cluster.wait("pod/p", namespace="own")
            node = cluster.nodes["a"]
            node.kill_claimd()
            node.restart()
            node.restart("kubelet")
            for part in ("apiserver", "scheduler", "controllers"):
                cluster.restart(part)
            assert cluster.get("pod/p", "own")["status"]["phase"] == "Running"
            assert (cluster.nodes["b"].kubelet_dir / "plugins_registry").is_dir()
            cluster.delete("pod/p", "own")
            assert cluster.wait("pod/p", "gone", namespace="own") == {}
            cluster.delete("resourceclaim/c", "own")
            cluster.wait("resourceclaim/c", "gone", namespace="own")
            assert cluster.describe() == ""

        def test_a_wait_in_vain(cluster):
            text = Path("manifests/pod.yaml").read_text()
            cluster.apply(text.replace("gpu.claimd.dev", "amd.gpu.claimd.dev"))
            waits = {"status.conditions[type=PodScheduled].status": "False"}
            cluster.wait("pod/p", waits, namespace="own")
            cluster.wait("pod/p", namespace="own", timeout=0.2)

        def test_an_assertion(cluster):
            assert cluster.get("pod/p", "own")["status"]["phase"] == "Running"

        @pytest.mark.parametrize("ask", [
            lambda cluster: cluster.apply("no/such.yaml"),
            lambda cluster: cluster.wait("pod/p", "Happy", namespace="own"),
            lambda cluster: cluster.nodes["b"].kill_claimd(),
            lambda cluster: cluster.restart("kubelet"),
            lambda cluster: cluster.get("pods"),
        ])
        def test_wrong_use(cluster, ask):
            ask(cluster)

        def test_a_scheduler_that_is_none(claimd_cluster_factory):
            claimd_cluster_factory(["a"], scheduler="no/kube-scheduler")
    """
    result = suite(tests, "--tb=short")
    result.assert_outcomes(passed=1, failed=8)
    result.stdout.fnmatch_lines(
        [
            "*ClusterError: waited 0.2 s for pod/p in vain: status.phase is Pending, expected Running;*",
            "*claimd explain:*",
            '*vendor is "nvidia", needs "amd"*',
            "*claimd on a (running), the end of its log:*",
            "*AssertionError*",
            "*--- what the cluster of cluster saw ---*",
            "pod own/p is Pending",
            "*No such file or directory: '*no/such.yaml'*",
            "*until='Happy': expected facts such as*or of a pod Pending, Running, Succeeded, Failed*",
            "*no node 'b' has claimd; those that have it: a*",
            "*no part 'kubelet'; there are apiserver, claimd a, controllers, kubelet a, kubelet b*",
            "*'pods': expected a kind and a name, such as pod/pods*",
            "*ClusterError: --scheduler: no/kube-scheduler is no program: expected the path of a*",
        ]
    )


@pytest.mark.slow
def test_a_cluster_a_test_as_marker_and_parameter_say(suite):
    tests = """
        import pytest

        pytestmark = pytest.mark.claimd_cluster(nodes={"one": "amd:mi300x"}, profile="1.34")

        def test_the_module(claimd_cluster):
            (piece,) = claimd_cluster.list("resourceslices")
            assert piece["spec"]["nodeName"] == "one"

        @pytest.mark.claimd_cluster(nodes=["bare"])
        def test_a_test(claimd_cluster):
            assert claimd_cluster.list("resourceslices") == []
            assert claimd_cluster.list("deviceclasses") == []

        @pytest.mark.parametrize("claimd_cluster", [{"profile": "1.2"}], indirect=True)
        def test_a_parameter(claimd_cluster):
            pass
    """
    result = suite(tests)
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(
        ["*ClusterError: profile '1.2': a cluster can be like 1.34, 1.35, 1.36, 1.37, 1.38*"]
    )


@pytest.mark.slow
def test_a_pytest_that_is_killed_leaves_no_cluster(suite, pytester):
    tests = """
        import os, signal
        from pathlib import Path

        def test_it(claimd_cluster):
            Path("folder").write_text(str(claimd_cluster.folder))
            claimd_cluster.apply("manifests")
            claimd_cluster.wait("pod/p", namespace="own")
            os.kill(os.getpid(), signal.SIGKILL)
    """
    assert suite(tests).ret == -9
    folder = Path((pytester.path / "folder").read_text())
    watched = subprocess.run(
        ["sh", "-c", f"while [ -e {folder} ]; do sleep 0.05; done"], check=True, timeout=60
    )
    assert watched.returncode == 0
    assert processes_of(folder) == []


def test_who_does_not_use_it_loads_nothing(pytester):
    script = (
        "import sys; import claimd.sim.testing.pytest_plugin\n"
        "heavy = ('claimd', 'claimd_devices', 'grpc', 'msgspec', 'yaml')\n"
        "print(*sorted(name for name in sys.modules if name.split('.')[0] in heavy))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [
        "claimd",
        "claimd.common",
        "claimd.common.import_path",
        "claimd.sim",
        "claimd.sim.testing",
        "claimd.sim.testing.pytest_plugin",
    ]
