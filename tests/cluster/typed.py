"""The commands of install.md, migrate.md and troubleshooting.md, and the stories that run them.

A story is a row of commands that a person would type. tests/test_typed.py compares the stories with
the pages. test_30_typed.py types the stories on the rig.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("install", "migrate", "troubleshooting")

_PROGRAMS = "kubectl|helm|claimd|make|podman|skopeo|journalctl|ls|rm"
_INDENTED = re.compile(rf" {{4,}}((?:{_PROGRAMS}) .*)")
_IN_TEXT = re.compile(r"`((?:kubectl|helm) [^`]+)`")
_FENCED = re.compile(r"^```.*?^```", re.M | re.S)
_COMMENT = re.compile(r" +# .*$")


def commands(page: str) -> list[str]:
    """Returns the page's commands without comments and duplicates. A command may have several lines."""
    text = _FENCED.sub("", (ROOT / f"docs/{page}.md").read_text())
    found = []
    lines = iter(text.splitlines())
    for line in lines:
        match = _INDENTED.match(line)
        if match is None:
            found += _IN_TEXT.findall(line)
            continue
        command = _COMMENT.sub("", match[1])
        while command.count("'") % 2:
            command += "\n" + next(lines).strip()
        found.append(command)
    return list(dict.fromkeys(found))


# ---------------------------------------------------------------- install.md

BY_HELM = (
    "kubectl create namespace claimd-system",
    "kubectl label namespace claimd-system pod-security.kubernetes.io/enforce=privileged",
    "helm install claimd deploy/chart --namespace claimd-system --create-namespace "
    "--values gpus.yaml --wait",
    "kubectl get resourceslices",
)
TRIED = "kubectl apply -f deploy/examples/one-pod-one-gpu/"
AND_SEEN = (
    "kubectl logs one-pod-one-gpu",
    "kubectl delete -f deploy/examples/one-pod-one-gpu/",
)
UPGRADED_BY_HELM = (
    "helm upgrade claimd deploy/chart --namespace claimd-system --values gpus.yaml --wait"
)
BACK_BY_HELM = "helm rollback claimd --namespace claimd-system --wait"
USED = (
    "kubectl get resourceclaims -A -o custom-columns='NAMESPACE:.metadata.namespace,"
    "NAME:.metadata.name,DRIVER:.status.allocation.devices.results[*].driver,"
    "NODE:.status.allocation.devices.results[*].pool'"
)
REMOVED_BY_HELM = "helm uninstall claimd --namespace claimd-system"
SWEPT = (
    "rm -r /var/lib/kubelet/plugins/gpu.claimd.dev",
    "rm -f /var/run/cdi/claimd.dev-claim_gpu.claimd.dev_*.json",
    "rm -rf /var/lib/claimd-fake",
)
BY_KUSTOMIZE = (
    "kubectl apply -k gpus",
    "kubectl -n claimd-system rollout status daemonset/claimd",
    "kubectl get resourceslices",
)
BACK_BY_KUSTOMIZE = "kubectl -n claimd-system rollout undo daemonset/claimd"
TO_HELM = (
    "kubectl apply -k gpus --server-side --force-conflicts --field-manager=helm",
    "kubectl -n claimd-system delete daemonset claimd --cascade=orphan",
    "helm install claimd deploy/chart --namespace claimd-system --values gpus.yaml "
    "--take-ownership --force-conflicts --wait",
    "kubectl -n claimd-system rollout restart daemonset/claimd",
)
REMOVED_BY_KUSTOMIZE = "kubectl delete -k gpus"

# ---------------------------------------------------------------- migrate.md

HANDED_OVER = "kubectl label node NODE example.com/gpus=claimd"
HANDED_BACK = "kubectl label node NODE example.com/gpus-"
CORDONED, UNCORDONED = "kubectl cordon NODE", "kubectl uncordon NODE"
OFFERED = "kubectl get node NODE -o jsonpath='{.status.allocatable.nvidia\\.com/gpu}'"
PUBLISHED = "kubectl get resourceslices --field-selector spec.nodeName=NODE"
PODS_OF_PLUGINS, PODS_OF_CLAIMS = [command for command in commands("migrate") if "| jq " in command]

# ---------------------------------------------------------------- troubleshooting.md

# The commands to type while a pod `train` runs with a claim.
LOOKED_AT = (
    "kubectl -n claimd-system exec POD -- claimd doctor",
    "kubectl -n claimd-system get pods -o wide -l app.kubernetes.io/name=claimd",
    "kubectl -n claimd-system exec POD -- claimd devices -o wide",
    "kubectl -n claimd-system logs POD",
    "claimd explain pod/train -n team-a",
    "kubectl get resourceslices,deviceclasses,nodes,pods,resourceclaims -A -o yaml > cluster.yaml",
    "claimd explain pod/train -f cluster.yaml",
    "kubectl get deviceclasses",
    "kubectl describe pod train",
    "kubectl get events -A --field-selector reason=FailedPrepareDynamicResources",
    "ls /var/run/cdi/claimd.dev-claim_*",
    "kubectl exec train -- sh -c 'env | grep CLAIMD; ls -l /dev'",
    "kubectl -n claimd-system get pods -o wide",
    "kubectl get resourceslices --field-selector spec.nodeName=NODE",
    "kubectl -n claimd-system get pods -o wide --field-selector spec.nodeName=NODE",
    "kubectl get resourceslices -o custom-columns='NODE:.spec.nodeName,"
    "DEVICE:.spec.devices[*].name,TAINTS:.spec.devices[*].taints[*].key'",
    "kubectl get events -A --field-selector reportingComponent=gpu.claimd.dev",
    "kubectl get devicetaintrules",
    "kubectl -n claimd-system exec POD -- claimd probe ready",
    "kubectl -n claimd-system describe daemonset claimd",
    "kubectl auth can-i create resourceslices.resource.k8s.io --as "
    "system:serviceaccount:claimd-system:claimd",
    "kubectl api-versions | grep resource.k8s.io",
    "claimd devices -o wide",
    "kubectl get events -A --field-selector reason=GpuHandedOutTwice",
    "kubectl get node NODE -o jsonpath='{.status.capacity}'",
    "kubectl get resourceclaim NAME -o jsonpath='{.status.devices}'",
    "kubectl get pods -o custom-columns='NAME:.metadata.name,"
    "HEALTH:.status.containerStatuses[*].allocatedResourcesStatus[*].resources[*].health'",
    "kubectl -n claimd-system get daemonset claimd -o "
    "jsonpath='{.spec.template.spec.containers[0].env}'",
)
# The commands whose filter may find nothing. Then their exit code is 1.
FILTERED = (
    "kubectl -n claimd-system logs POD | grep 'its parts'",
    "claimd devices -o wide | grep 'not watched'",
    "kubectl -n claimd-system logs POD | grep -E 'not written|refuse'",
    "kubectl -n claimd-system logs POD | grep 'status.devices was not written'",
    # The GPUs are fake, so there may be no /dev/nvidia*.
    "kubectl exec train -- sh -c 'ls -l /dev/nvidia*; env | grep -E \"CLAIMD|NVIDIA\"'",
)

STORIES: dict[str, tuple[str, ...]] = {
    "install": (
        *BY_HELM,
        TRIED,
        *AND_SEEN,
        UPGRADED_BY_HELM,
        BACK_BY_HELM,
        USED,
        REMOVED_BY_HELM,
        *SWEPT,
        *BY_KUSTOMIZE,
        BACK_BY_KUSTOMIZE,
        *TO_HELM,
        REMOVED_BY_KUSTOMIZE,
    ),
    "migrate": (
        CORDONED,
        PODS_OF_PLUGINS,
        HANDED_OVER,
        OFFERED,
        PUBLISHED,
        UNCORDONED,
        HANDED_BACK,
        PODS_OF_CLAIMS,
    ),
    "troubleshooting": (*LOOKED_AT, *FILTERED),
}

# The commands that no story types, with the reasons.
NOT_TYPED = {
    "make image": "the rig builds the same Containerfile with other bases",
    "podman tag claimd registry.example.com/claimd:0.1.0": "there is no registry",
    "podman push registry.example.com/claimd:0.1.0": "there is no registry",
    "skopeo copy --all oci-archive:dist/claimd-0.1.0-image.tar "
    "docker://registry.example.com/claimd:0.1.0": "there is no registry",
    "kubectl drain NODE --ignore-daemonsets": "it would evict the rig's only node",
    "kubectl drain NODE --ignore-daemonsets --pod-selector=…": "the reader chooses the selector",
    "kubectl apply": "it is a part of a sentence",
    "kubectl apply -k": "it is a part of a sentence",
    "kubectl describe pod": "it is a part of a sentence",
    "helm uninstall": "it is a part of a sentence",
    "helm upgrade": "it is a part of a sentence",
    'journalctl -u kubelet | grep -i "not registered"': "the rig's kubelet is no systemd service",
    "kubectl -n claimd-system logs POD --previous": "the pod's container has not restarted",
    "kubectl apply -f deploy/examples/container-check/nvidia.yaml": "test_16 runs this pod, with the "
    "rig's image in place of the placeholder",
}
