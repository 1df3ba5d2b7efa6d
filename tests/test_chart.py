"""The chart makes the objects that kustomize makes, and refuses what cannot be meant."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

import claimd
from tests.docs import chart
from tests.support import manifests, samples

ROOT = Path(__file__).resolve().parent.parent
COMPONENTS = sorted(path.name for path in (ROOT / "deploy/components").iterdir())
AS_VENDOR = [name for name in COMPONENTS if name.startswith("as-")]
OTHERS = [name for name in COMPONENTS if name not in AS_VENDOR]

GIVEN_A_NAMESPACE = (
    *("DeviceClass", "ValidatingAdmissionPolicy"),
    *("FlowSchema", "PriorityLevelConfiguration"),
)

ALONE = [(), *((name,) for name in COMPONENTS)]
TOGETHER = [(*OTHERS, name) for name in AS_VENDOR]
PAIRS = [*itertools.combinations(OTHERS, 2), *itertools.product(AS_VENDOR, OTHERS)]

needs_helm = pytest.mark.skipif(
    not manifests.helm(), reason="no helm: the rig makes one (`python3 -m tests.cluster.rig helm`)"
)
needs_both = pytest.mark.skipif(
    not (manifests.helm() and manifests.kubectl()),
    reason="no helm or no kubectl: the rig makes both (`python3 -m tests.cluster.rig --help`)",
)


# ---------------------------------------------------------------- beside kustomize


def comparable(objects: manifests.Objects) -> dict[tuple[str, str], Any]:
    """Returns the documents by kind and name, with sorted lists and without empty ones.

    Three things differ: Helm's users say the image's tag, make the namespace themselves, and kustomize
    gives one to kinds of which it does not know that they are in none.
    """
    by_name = {}
    for obj in map(in_order, objects):
        if obj["kind"] == "DaemonSet":
            pod = obj["spec"]["template"]["spec"]
            for container in [*pod["containers"], *pod.get("initContainers", [])]:
                container["image"] = container["image"].removesuffix(f":{claimd.__version__}")

        if obj["kind"].startswith(GIVEN_A_NAMESPACE):
            obj["metadata"].pop("namespace", None)

        if obj["kind"] != "Namespace":
            key = (obj["kind"], obj["metadata"]["name"])
            assert key not in by_name
            by_name[key] = obj
    return by_name


def in_order(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: in_order(inner) for key, inner in value.items() if inner != []}
    if isinstance(value, list):
        return sorted((in_order(inner) for inner in value), key=written)
    return value


def written(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def compare(choices: list[tuple[str, ...]]) -> None:
    by_helm = manifests.rendered_each([{"components": list(names)} for names in choices])
    for names, objects in zip(choices, by_helm, strict=True):
        assert comparable(objects) == comparable(manifests.built_with(names)), names


@pytest.mark.slow
@needs_both
def test_the_base_each_component_and_all_of_them_are_what_kustomize_makes() -> None:
    compare([*ALONE, *TOGETHER])


@needs_both
@pytest.mark.slow
@pytest.mark.timeout(900)  # a hundred of them, by two programs
def test_so_are_any_two_components() -> None:
    assert len(PAIRS) >= 80
    compare(PAIRS)


# ---------------------------------------------------------------- values


def pod_of(objects: manifests.Objects) -> Any:
    (daemonset,) = [obj for obj in objects if obj["kind"] == "DaemonSet"]
    return daemonset["spec"]["template"]["spec"]


def environment(objects: manifests.Objects) -> dict[str, str]:
    (container,) = pod_of(objects)["containers"]
    return {variable["name"]: variable.get("value") for variable in container["env"]}


@needs_helm
def test_settings_are_variables_of_the_container() -> None:
    objects = manifests.rendered(
        {
            "settings": {
                "share": ["nvidia=memory:4Gi", "10de:27b8=shares:4"],
                "taint-failed": "NoExecute",
                "absent-grace": 86400,
                "numa-list": True,
            }
        }
    )
    given = environment(objects)
    assert given["CLAIMD_SHARE"] == "nvidia=memory:4Gi,10de:27b8=shares:4"
    assert given["CLAIMD_TAINT_FAILED"] == "NoExecute"
    assert given["CLAIMD_ABSENT_GRACE"] == "86400"
    assert given["CLAIMD_NUMA_LIST"] == "true"


@needs_helm
@pytest.mark.parametrize(
    "folder", ["/var/lib/k0s/kubelet", "/var/snap/microk8s/common/var/lib/kubelet"]
)
def test_another_kubelets_folder_is_mounted_and_told(folder: str) -> None:
    objects = manifests.rendered({"kubeletDir": folder})
    pod = pod_of(objects)
    assert environment(objects)["CLAIMD_KUBELET_DIR"] == folder
    text = json.dumps(pod["containers"][0]["volumeMounts"] + pod["volumes"])
    assert "/var/lib/kubelet/" not in text.replace(folder, "")
    assert text.count(folder + "/") == 6


@needs_helm
def test_another_name_of_the_driver_is_in_every_object() -> None:
    by_default = manifests.rendered({"components": ["nvidia-resources"]})
    renamed = json.loads(json.dumps(by_default).replace("gpu.claimd.dev", "gpu.example.com"))
    pod_of(renamed)["containers"][0]["env"].append(
        {"name": "CLAIMD_DRIVER_NAME", "value": "gpu.example.com"}
    )
    objects_ = manifests.rendered(
        {"components": ["nvidia-resources"], "driverName": "gpu.example.com"}
    )
    assert comparable(objects_) == comparable(renamed)


@needs_helm
def test_a_vendors_driver_may_take_fewer_gpus_than_the_vendors() -> None:
    values = {"components": ["as-nvidia"], "settings": {"include": "10de:2330"}}
    (container,) = pod_of(manifests.rendered(values))["containers"]
    included = [
        variable["value"] for variable in container["env"] if variable["name"] == "CLAIMD_INCLUDE"
    ]
    assert included == ["10de:2330"]


@needs_helm
def test_classes_of_older_kubernetes_have_what_it_knows() -> None:
    def classes(release: str) -> manifests.Objects:
        objects = manifests.rendered({}, f"--kube-version={release}")
        return [obj for obj in objects if obj["kind"] == "DeviceClass"]

    for obj in classes("1.33.7"):
        assert obj["apiVersion"] == "resource.k8s.io/v1beta1"
        assert "extendedResourceName" not in obj["spec"]
    assert {obj["apiVersion"] for obj in classes("1.34.0")} == {"resource.k8s.io/v1"}


@needs_helm
def test_where_it_runs_and_with_what() -> None:
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}
    values = {
        "image": {
            "repository": "registry.example.com/claimd",
            "digest": "sha256:" + 64 * "0",
            "pullPolicy": "Always",
            "pullSecrets": [{"name": "registry"}],
        },
        "components": ["fake"],
        "fake": {"gpus": ["nvidia:t4=1"]},
        "tolerations": tolerations,
        "nodeSelector": {"example.com/gpu": "true"},
        "affinity": affinity,
        "priorityClassName": "",
        "resources": {"limits": {"memory": "1Gi"}},
        "hostNetwork": True,
        "podLabels": {"team": "gpus"},
        "podAnnotations": {"note": "here"},
    }
    objects = manifests.rendered(values)
    pod = pod_of(objects)
    assert pod["tolerations"] == tolerations
    assert pod["nodeSelector"] == {"example.com/gpu": "true"}
    assert pod["affinity"] == affinity
    assert pod["hostNetwork"] is True
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert "priorityClassName" not in pod
    for container in [*pod["containers"], *pod["initContainers"]]:
        assert container["image"] == f"registry.example.com/claimd@sha256:{64 * '0'}"
        assert container["imagePullPolicy"] == "Always"
    assert pod["initContainers"][0]["args"] == ["fake", "write", "/fake", "nvidia:t4=1"]
    # what is said of one of requests and limits leaves the other as it is
    assert pod["containers"][0]["resources"] == {
        "requests": {"cpu": "10m", "memory": "64Mi"},
        "limits": {"memory": "1Gi"},
    }
    (daemonset,) = [obj for obj in objects if obj["kind"] == "DaemonSet"]
    metadata = daemonset["spec"]["template"]["metadata"]
    assert metadata["labels"] == {"app.kubernetes.io/name": "claimd", "team": "gpus"}
    assert metadata["annotations"] == {"note": "here"}


@needs_helm
def test_on_the_nodes_network_two_pods_of_an_update_do_not_meet() -> None:
    (container,) = pod_of(manifests.rendered({"hostNetwork": True}))["containers"]
    assert "ports" not in container
    assert container["livenessProbe"]["exec"] == {"command": ["claimd", "probe", "live"]}
    assert {"name": "endpoint", "mountPath": "/run/claimd"} in container["volumeMounts"]


@needs_helm
def test_a_cluster_may_have_a_priority_level_of_its_own() -> None:
    kinds = {obj["kind"] for obj in manifests.rendered({"priorityLevel": False})}
    assert "ClusterRole" in kinds
    assert not kinds & {"FlowSchema", "PriorityLevelConfiguration"}


# docs/metrics.md and the alerts count on this label.
BY_NODE = {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"}


@needs_helm
def test_who_reads_metrics() -> None:
    peers = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    choices: list[dict[str, Any]] = [
        {"networkPolicy": {"enabled": True}},
        {"networkPolicy": {"enabled": True, "from": peers}},
        {
            "components": ["metrics"],
            "monitor": {"kind": "PodMonitor", "labels": {"release": "p"}, "interval": "30s"},
        },
        {"components": ["metrics"], "monitor": {"kind": "ServiceMonitor"}},
    ]
    nobody, somebody, by_pod, by_service = [
        {obj["kind"]: obj for obj in objects} for objects in manifests.rendered_each(choices)
    ]
    assert nobody["NetworkPolicy"]["spec"].get("ingress", []) == []
    assert somebody["NetworkPolicy"]["spec"]["ingress"] == [
        {"from": peers, "ports": [{"protocol": "TCP", "port": 8082}]}
    ]

    monitor = by_pod["PodMonitor"]
    assert monitor["metadata"]["labels"]["release"] == "p"
    of_port = {"port": "metrics", "honorLabels": True, "relabelings": [BY_NODE]}
    assert monitor["spec"]["podMetricsEndpoints"] == [{**of_port, "interval": "30s"}]
    (container,) = pod_of(list(by_pod.values()))["containers"]
    assert {"name": "metrics", "containerPort": 8082} in container["ports"]

    service, monitor = by_service["Service"], by_service["ServiceMonitor"]
    assert service["metadata"]["labels"] == monitor["spec"]["selector"]["matchLabels"]
    assert [port["name"] for port in service["spec"]["ports"]] == ["metrics"]
    assert monitor["spec"]["endpoints"] == [of_port]


@needs_helm
def test_who_reads_metrics_over_tls() -> None:
    """Checks the authority of the Secret, the name of the page, and the token."""
    choices: list[dict[str, Any]] = [
        {
            "components": ["metrics-tls"],
            "monitor": {"kind": "PodMonitor", "tokenSecret": "scraper"},
        },
        {"components": ["metrics-tls"], "monitor": {"kind": "ServiceMonitor"}},
    ]
    by_pod, by_service = [
        {obj["kind"]: obj for obj in objects} for objects in manifests.rendered_each(choices)
    ]
    tls = {
        "scheme": "https",
        "tlsConfig": {
            "ca": {"secret": {"name": "claimd-metrics-tls", "key": "ca.crt"}},
            "serverName": "claimd-metrics.claimd-system.svc",
        },
    }
    of_port = {"port": "metrics", "honorLabels": True, "relabelings": [BY_NODE], **tls}
    credentials = {"credentials": {"name": "scraper", "key": "token"}}
    (of_pod,) = by_pod["PodMonitor"]["spec"]["podMetricsEndpoints"]
    assert of_pod == {**of_port, "authorization": credentials}
    (of_service,) = by_service["ServiceMonitor"]["spec"]["endpoints"]
    own = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    assert of_service == {**of_port, "bearerTokenFile": own}


# ---------------------------------------------------------------- refusals

REFUSED = [
    ({"component": ["nvidia"]}, "additional properties 'component' not allowed"),
    ({"components": ["nvida"]}, "at '/components/0': value must be one of 'nvidia', 'nvml',"),
    ({"components": ["fake", "fake"]}, "at '/components': items at 0 and 1 are equal"),
    ({"components": "nvidia"}, "at '/components': got string, want array"),
    ({"settings": {"taint-faild": "none"}}, "additional properties 'taint-faild' not allowed"),
    ({"settings": {"taint-failed": "Evict"}}, "at '/settings/taint-failed': value must be one of"),
    ({"settings": {"rescan": 0}}, "at '/settings/rescan': minimum: got 0, want 1"),
    ({"settings": {"node-name": "n"}}, "additional properties 'node-name' not allowed"),
    ({"kubeletDir": "var/lib/kubelet"}, "at '/kubeletDir'"),
    ({"kubeletDir": "/var/lib/kubelet/"}, "at '/kubeletDir'"),
    ({"driverName": "GPU.example.com"}, "at '/driverName'"),
    ({"driverName": f"{64 * 'a'}"}, "at '/driverName': maxLength: got 64, want 63"),
    ({"image": {"digest": "sha256:abc"}}, "at '/image/digest'"),
    ({"image": {"repository": ""}}, "at '/image/repository'"),
    ({"nodeSelector": {"gpu": True}}, "at '/nodeSelector/gpu': got boolean, want string"),
    ({"monitor": {"kind": "Monitor"}}, "at '/monitor/kind': value must be one of"),
    ({"components": ["as-amd", "as-intel"]}, "a driver has one name, so claimd takes the place of"),
    ({"components": ["as-amd"], "driverName": "g.example.com"}, "the component as-amd says the"),
    ({"settings": {"vfio-bind": "10de:*"}}, "without the component vfio; add it to components"),
    ({"monitor": {"kind": "PodMonitor"}}, "without the component metrics; add it to components"),
    (
        {"components": ["metrics-tls"], "monitor": {"kind": "PodMonitor"}},
        "a PodMonitor has to name the Secret with the token",
    ),
    (
        {"components": ["metrics"], "monitor": {"tokenSecret": "t"}},
        "a token is sent over TLS alone",
    ),
    ({"hostNetwork": True, "components": ["metrics-tls"]}, "cannot both have the metrics' port"),
    ({"hostNetwork": True, "components": ["metrics"]}, "cannot both have the metrics' port"),
]


@needs_helm
@pytest.mark.parametrize(
    ("values", "words"),
    samples.parameters(REFUSED),
    ids=[json.dumps(refused_values) for refused_values, _ in REFUSED],
)
def test_what_cannot_be_meant_is_refused_in_a_sentence(values: dict[str, Any], words: str) -> None:
    done = manifests.helmed(values=values)
    assert done.returncode == 1
    assert words in done.stderr


# ---------------------------------------------------------------- the files


@needs_helm
def test_helm_finds_nothing_wrong() -> None:
    command = [manifests.helm(), "lint", "--strict", str(manifests.CHART)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_helm
def test_a_packed_chart_is_the_same_and_has_no_file_of_kustomizes(tmp_path: Path) -> None:
    command = [manifests.helm(), "package", str(manifests.CHART), f"--destination={tmp_path}"]
    subprocess.run(command, capture_output=True, check=True)
    (packed,) = tmp_path.iterdir()
    listed = subprocess.run(["tar", "tzf", packed], capture_output=True, text=True, check=True)
    files = listed.stdout.split()
    assert "claimd/base/rbac.yaml" in files
    assert "claimd/components/nvidia-resources/deviceclasses.yaml" in files
    assert [
        name for name in files if re.search("kustomization|daemonset.yaml|namespace", name)
    ] == ["claimd/templates/daemonset.yaml"]
    command = [manifests.helm(), "template", "claimd", str(packed), "--namespace=claimd-system"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert manifests.read(done.stdout) == manifests.rendered()


def test_the_chart_has_the_version_of_what_it_installs() -> None:
    text = yaml.safe_load((manifests.CHART / "Chart.yaml").read_text())
    assert text["version"] == text["appVersion"] == claimd.__version__


@needs_helm
def test_alerts_and_dashboard_are_those_of_the_folder() -> None:
    values = {"components": ["metrics"], "monitor": {"alerts": True, "dashboard": True}}
    by_kind = {obj["kind"]: obj for obj in manifests.rendered(values)}
    folder = ROOT / "deploy" / "monitoring"
    alerts = yaml.safe_load((folder / "alerts.yaml").read_text())
    assert by_kind["PrometheusRule"]["spec"] == alerts
    dashboard = by_kind["ConfigMap"]["data"]["claimd.json"]
    assert json.loads(dashboard) == json.loads((folder / "dashboard.json").read_text())
    assert "PodMonitor" not in by_kind


def test_every_value_is_described_once_in_words_and_once_in_the_schema() -> None:
    text = (manifests.CHART / "values.yaml").read_text()
    schema = json.loads(chart.SCHEMA.read_text())
    schema["properties"].pop("global")

    def check(values: dict[str, Any], described: dict[str, Any], indent: str) -> None:
        assert set(values) == set(described["properties"])
        assert described["additionalProperties"] is False
        for name, value in values.items():
            below = described["properties"][name]
            if isinstance(value, dict) and "properties" in below and name != "settings":
                check(value, below, indent + "  ")

    check(yaml.safe_load(text), schema, "")
    blocks = re.split(r"\n\n+", text)
    for name in schema["properties"]:
        (block,) = [each for each in blocks if re.search(rf"^{name}:", each, re.M)]
        assert "#" in block, f"{name} has no comment"


def test_the_schema_knows_the_settings_and_the_components() -> None:
    text = chart.SCHEMA.read_text()
    assert chart.schema(text) == text, "run `make docs`"
    listed = json.loads(text)["properties"]["components"]["items"]["enum"]
    assert sorted(listed) == COMPONENTS
