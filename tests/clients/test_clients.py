"""Clients that nobody here wrote, as they are: `make clients`.

Each is a program beside this file, which does its steps against a `claimd sim` of its own and says
what it did. What it has to have done is what docs/clients.md says. Its libraries are pinned, and
installed into the user's cache.
"""

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs/clients.md"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "claimd-clients"
RIG = Path.home() / ".cache/rig/bin"
STEPS = ("create", "list", "watch", "patch", "delete", "election")
INSTALLING, RUNNING = 1200, 180  # seconds
PYTHON = {
    "kubernetes (Python)": "official.py",
    "kubernetes_asyncio": "asyncio_client.py",
    "kr8s": "kr8s_client.py",
    "lightkube": "lightkube_client.py",
    "kopf": "kopf_operator.py",
}
OTHERS = ("@kubernetes/client-node", "fabric8 (Java)")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(INSTALLING + RUNNING)]


def promised(client):
    """The steps of which the page's row of the client does not say that they are not done."""
    cells = {}
    for line in PAGE.read_text().splitlines():
        name, *answers = [cell.strip() for cell in line.strip("|").split("|")]
        cells[name] = answers[1:]
    return {step for step, answer in zip(STEPS, cells[client], strict=True) if answer != "-"}


@contextlib.contextmanager
def simulated(folder):
    """The kubeconfig of a server that is there alone."""
    config = folder / "kubeconfig"
    command = [sys.executable, "-m", "plugin", "sim", "--kubeconfig", str(config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=HERE.parents[1]) as server:
        try:
            assert server.stdout.readline().startswith(b"serving like Kubernetes")
            yield config
        finally:
            server.terminate()


def installed(name, pins, install):
    """A folder in the cache, filled by `install(folder)` once for what `pins` say."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in pins)).hexdigest()[:16]
    folder = CACHE / f"{name}-{digest}"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        install(folder)
        (folder / "complete").touch()
    return folder


def run(words, folder, **environment):
    done = subprocess.run(
        words,
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=INSTALLING,
    )
    assert done.returncode == 0, f"{words}:\n{done.stdout}{done.stderr}"
    return done.stdout


def need(tool):
    found = shutil.which(tool)
    if not found:
        pytest.skip(f"{tool} is not installed")
    return found


def check(client, words, folder, tmp_path):
    with simulated(tmp_path) as config:
        said = run(words, folder, KUBECONFIG=str(config), HOME=str(tmp_path))
    assert set(said.split()) == promised(client)


@pytest.mark.parametrize("client", PYTHON)
def test_a_client_in_python(client, tmp_path):
    pins = HERE / "python/requirements.txt"

    def install(folder):
        run([sys.executable, "-m", "venv", "venv"], folder)
        pip = [folder / "venv/bin/pip", "install", "-q", "--require-hashes", "-r", pins]
        run([str(word) for word in pip], folder)

    python = installed("python", [pins], install) / "venv/bin/python"
    check(client, [str(python), PYTHON[client]], HERE / "python", tmp_path)


def test_javascript(tmp_path):
    npm, node = need("npm"), need("node")
    pins = [HERE / "javascript" / name for name in ("package.json", "package-lock.json")]

    def install(folder):
        for pin in pins:
            shutil.copy(pin, folder)
        run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], folder)

    folder = installed("javascript", pins, install)
    shutil.copy(HERE / "javascript/steps.mjs", folder)
    check("@kubernetes/client-node", [node, "steps.mjs"], folder, tmp_path)


def test_java(tmp_path):
    maven, java = need("mvn"), need("java")
    pom = HERE / "java/pom.xml"

    def install(folder):
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}/jars"]
        run([maven, "-q", "-B", "-f", str(pom), *goal], folder)

    jars = installed("java", [pom], install) / "jars"
    check(
        "fabric8 (Java)",
        [java, "-cp", f"{jars}/*", str(HERE / "java/Steps.java")],
        tmp_path,
        tmp_path,
    )


def newest(tool):
    """As the rig built it, or of the PATH."""
    built = sorted(RIG.glob(f"*/{tool}"))
    return str(built[-1]) if built else need(tool)


CHART = {
    "Chart.yaml": "{apiVersion: v2, name: steps, version: 0.1.0}",
    "templates/map.yaml": """\
apiVersion: v1
kind: ConfigMap
metadata: {name: a}
data: {value: {{ .Values.value | quote }}}
""",
    "values.yaml": "value: first",
}


def test_helm(tmp_path):
    """Installed, changed, taken back, and gone."""
    helm, kubectl = newest("helm"), newest("kubectl")
    for name, text in CHART.items():
        path = tmp_path / "chart" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    with simulated(tmp_path) as config:
        places = {"KUBECONFIG": str(config), "HOME": str(tmp_path)}

        def value():
            words = ["get", "configmap", "a", "-o", "jsonpath={.data.value}"]
            return run([kubectl, *words], tmp_path, **places)

        run([helm, "install", "steps", "chart"], tmp_path, **places)
        assert value() == "first"
        run([helm, "upgrade", "steps", "chart", "--set=value=second"], tmp_path, **places)
        assert value() == "second"
        run([helm, "rollback", "steps", "1"], tmp_path, **places)
        assert value() == "first"
        run([helm, "uninstall", "steps"], tmp_path, **places)
        assert run([kubectl, "get", "configmaps", "-o", "name"], tmp_path, **places) == ""


def test_kustomize(tmp_path):
    kubectl = newest("kubectl")
    (tmp_path / "kustomization.yaml").write_text(
        "{namePrefix: my-, configMapGenerator: [{name: a, literals: [b=c]}]}"
    )
    with simulated(tmp_path) as config:
        places = {"KUBECONFIG": str(config), "HOME": str(tmp_path)}
        for _ in range(2):
            run([kubectl, "apply", "-k", "."], tmp_path, **places)
        found = run([kubectl, "get", "configmaps", "-o", "name"], tmp_path, **places)
        assert re.fullmatch(r"configmap/my-a-\w+\n", found)
        run([kubectl, "delete", "-k", "."], tmp_path, **places)


def test_every_row_of_the_page_is_a_test():
    names = {line.strip("|").split("|")[0].strip() for line in PAGE.read_text().splitlines()}
    assert {*PYTHON, *OTHERS} <= names
