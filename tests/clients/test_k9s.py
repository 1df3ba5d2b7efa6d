"""What k9s asks of a server, by its own packages: k9s itself takes far longer to build than all
other clients together.
"""

import shutil
from pathlib import Path

import pytest

from tests.clients.toolchains import (
    INSTALLING,
    RUNNING,
    installed,
    need,
    newest,
    run,
    simulated,
    sources_of_go,
)

MODULE, RELEASE = "github.com/derailed/k9s", "v0.51.0"
STEPS = Path(__file__).parent / "k9s/main.go"
OBJECTS = """
apiVersion: v1
kind: Pod
metadata: {name: trainer}
spec:
  containers: [{name: main, image: none, resources: {claims: [{name: gpu}]}}]
  resourceClaims: [{name: gpu, resourceClaimName: two-gpus}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: two-gpus}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: any, count: 2}}]}}
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(INSTALLING + RUNNING)]


def test_what_k9s_finds_out_and_shows(tmp_path):
    def install(folder):
        # Its packages are for its own tree alone, of which nobody may change what Go keeps.
        tree = folder / "k9s"
        run(
            ["cp", "-r", "--no-preserve=mode", str(sources_of_go(MODULE, RELEASE)), str(tree)],
            folder,
        )
        (tree / "steps").mkdir()
        shutil.copy(STEPS, tree / "steps")
        run([need("go"), "build", "-p", "1", "-o", str(folder / "steps"), "./steps"], tree)

    program = installed(f"k9s-{RELEASE}", [STEPS], install) / "steps"
    (tmp_path / "objects.yaml").write_text(OBJECTS)
    with simulated(tmp_path) as config:
        places = {"KUBECONFIG": str(config), "HOME": str(tmp_path), "KUBECACHEDIR": str(tmp_path)}
        run([newest("kubectl"), "apply", "-f", "objects.yaml"], tmp_path, **places)
        said = run([str(program)], tmp_path, **places)
    assert said.split() == ["connection", "kinds", "pods", "claims"]
