"""Clients that nobody here wrote, as they are: `make clients`.

Each is a program beside this file, which does its steps against a `claimd sim` of its own and says
what it did. What it has to have done is what docs/clients.md says. Its libraries are pinned, and
installed into the user's cache.
"""

import re
import shutil
import sys
from pathlib import Path

import msgspec
import pytest

from tests.clients.toolchains import (
    INSTALLING,
    ROOT,
    RUNNING,
    installed,
    need,
    newest,
    run,
    simulated,
)
from tests.docs import pages

HERE = Path(__file__).parent
PAGE = ROOT / "docs/clients.md"
STEPS = ("create", "list", "watch", "patch", "delete", "election", "informer", "events")
PYTHON = {
    "kubernetes (Python)": "official.py",
    "kubernetes_asyncio": "asyncio_client.py",
    "kr8s": "kr8s_client.py",
    "lightkube": "lightkube_client.py",
    "kopf": "kopf_operator.py",
}
GO = {"client-go": "clientgo", "controller-runtime": "controllerruntime"}
# Where the version of each stands.
PINS = {
    "client-go": ("go/go.mod", r"^\s+k8s.io/client-go v(\S+)"),
    "controller-runtime": ("go/go.mod", r"^\s+sigs.k8s.io/controller-runtime v(\S+)"),
    "kubernetes (Python)": ("python/requirements.txt", r"^kubernetes==(\S+)"),
    "kubernetes_asyncio": ("python/requirements.txt", r"^kubernetes-asyncio==(\S+)"),
    "kr8s": ("python/requirements.txt", r"^kr8s==(\S+)"),
    "lightkube": ("python/requirements.txt", r"^lightkube==(\S+)"),
    "kopf": ("python/requirements.txt", r"^kopf==(\S+)"),
    "@kubernetes/client-node": (
        "javascript/package-lock.json",
        r'"node_modules/@kubernetes/client-node": \{\s+"version": "(.+)"',
    ),
    "fabric8 (Java)": ("java/pom.xml", r"<artifactId>kubernetes-client<.+\s+<version>(.+)<"),
}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(INSTALLING + RUNNING)]


def rows():
    """The cells of each client in the page's table, after its name."""
    _, *table = PAGE.read_text().partition("| --- |")[2].partition("\n\n")[0].splitlines()
    rows_ = {}
    for line in table:
        name, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        rows_[name] = cells
    return rows_


def promised(client):
    """The steps of which the page's row of the client does not say that they are not done."""
    _, *answers = rows()[client]
    return {step for step, answer in zip(STEPS, answers, strict=True) if answer != "-"}


def check(client, words, folder, tmp_path):
    with simulated(tmp_path) as config:
        said = run(words, folder, KUBECONFIG=str(config), HOME=str(tmp_path))
    assert set(said.split()) == promised(client)


def python():
    """An interpreter with the clients."""
    pins = HERE / "python/requirements.txt"

    def install(folder):
        run([sys.executable, "-m", "venv", "venv"], folder)
        pip = [folder / "venv/bin/pip", "install", "-q", "--require-hashes", "-r", pins]
        run([str(word) for word in pip], folder)

    return str(installed("python", [pins], install) / "venv/bin/python")


@pytest.mark.parametrize("client", PYTHON)
def test_a_client_in_python(client, tmp_path):
    check(client, [python(), PYTHON[client]], HERE / "python", tmp_path)


def test_the_page_for_python(tmp_path):
    """The blocks of docs/python.md with the official client. The unit tests run the others."""
    blocks = pages.python_blocks(pages.PYTHON_PAGE.read_text())
    blocks = [block for block in blocks if block.needs_client]
    assert len(blocks) == 2
    places = [str(ROOT / "plugin"), str(ROOT / "devices"), str(Path(msgspec.__file__).parents[1])]
    for number, block in enumerate(blocks):
        folder = tmp_path / str(number)
        folder.mkdir()
        release = ["--profile", "1.30"] if "v1alpha2" in block.code else []
        with simulated(folder, *release):
            said = run([python(), "-c", block.code], folder, PYTHONPATH=":".join(places))
        assert pages.agrees(block.output, said)


@pytest.mark.parametrize("client", GO)
def test_a_client_in_go(client, tmp_path):
    go = need("go")
    module = HERE / "go"

    def install(folder):
        # With all cores it would take the machine from whatever else is tested on it.
        run([go, "build", "-p", "1", "-o", f"{folder}/", "./..."], module)

    pins = sorted(path for path in module.rglob("*") if path.is_file())
    folder = installed("go", pins, install)
    check(client, [str(folder / GO[client])], tmp_path, tmp_path)


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
        output = run([kubectl, "get", "configmaps", "-o", "name"], tmp_path, **places)
        assert re.fullmatch(r"configmap/my-a-\w+\n", output)
        run([kubectl, "delete", "-k", "."], tmp_path, **places)


def test_the_page_has_a_row_for_each_client_with_the_version_that_is_tried():
    versions = {}
    for client, (name, pattern) in PINS.items():
        (versions[client],) = re.findall(pattern, (HERE / name).read_text(), re.MULTILINE)
    assert {client: cells[0] for client, cells in rows().items()} == versions
