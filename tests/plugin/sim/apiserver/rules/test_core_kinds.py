"""Tests of defaults and validation of pods, nodes, namespaces, config maps and secrets."""

import base64

import pytest

from claimd.sim.apiserver.rules import core_kinds
from claimd.sim.apiserver.rules.field_errors import FieldErrors
from claimd.sim.apiserver.rules.profile import Profile

CONTAINER = {"name": "c", "image": "i"}


def validate(kind, new, old=None):
    errors = FieldErrors(Profile("1.37"))
    core_kinds.validate(errors, kind, new, old)
    return [f"{cause.field}: {cause.message}" for cause in errors.causes]


def pod(**spec):
    return {"metadata": {}, "spec": {"containers": [CONTAINER], "restartPolicy": "Always"} | spec}


# ---------------------------------------------------------------- defaults


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("cuda", "Always"),
        ("cuda:latest", "Always"),
        ("cuda:12", "IfNotPresent"),
        ("registry:5000/cuda", "Always"),
        ("registry:5000/cuda:12", "IfNotPresent"),
        ("cuda@sha256:0", "IfNotPresent"),
        ("cuda:latest@sha256:0", "IfNotPresent"),
    ],
)
def test_when_an_image_is_pulled(image, policy):
    given = pod(containers=[{"name": "c", "image": image}])
    (container,) = core_kinds.with_defaults("Pod", given)["spec"]["containers"]
    assert container["imagePullPolicy"] == policy


def test_limits_are_requests_too_and_amounts_are_written_in_one_way():
    resources = {"limits": {"cpu": "1000m", "memory": "1024Mi"}, "requests": {"cpu": "0.5"}}
    given = pod(containers=[CONTAINER | {"resources": resources, "ports": [{"containerPort": 1}]}])
    (container,) = core_kinds.with_defaults("Pod", given)["spec"]["containers"]
    assert container["resources"] == {
        "limits": {"cpu": "1", "memory": "1Gi"},
        "requests": {"cpu": "500m", "memory": "1Gi"},
    }
    assert container["ports"] == [{"protocol": "TCP", "containerPort": 1}]


def test_what_is_no_container_is_left_to_others_to_refuse():
    given = pod(containers=["c"])
    assert core_kinds.with_defaults("Pod", given)["spec"]["containers"] == ["c"]


def test_conditions_have_their_times_even_if_nobody_says_them():
    given = pod() | {"status": {"conditions": [{"type": "Ready"}]}}
    assert core_kinds.with_defaults("Pod", given)["status"]["conditions"] == [
        {"type": "Ready", "lastProbeTime": None, "lastTransitionTime": None}
    ]


def test_what_a_node_has_can_be_allocated():
    node = {"metadata": {}, "status": {"capacity": {"cpu": "2000m"}}}
    status = core_kinds.with_defaults("Node", node)["status"]
    assert status["capacity"] == status["allocatable"] == {"cpu": "2"}
    node["status"]["allocatable"] = {"cpu": "1"}
    assert core_kinds.with_defaults("Node", node)["status"]["allocatable"] == {"cpu": "1"}


# ---------------------------------------------------------------- preparation of new objects


def test_a_new_namespace_is_active_and_known_by_a_label():
    named = core_kinds.with_defaults("Namespace", {"metadata": {"name": "n"}})
    assert named["metadata"]["labels"] == {"kubernetes.io/metadata.name": "n"}
    unnamed = {"metadata": {"generateName": "n"}}
    assert core_kinds.with_defaults("Namespace", unnamed) == unnamed
    new = core_kinds.prepare_for_create("Namespace", {"spec": {"finalizers": ["a", "kubernetes"]}})
    assert new == {"spec": {"finalizers": ["a", "kubernetes"]}, "status": {"phase": "Active"}}


def test_a_new_node_is_not_ready():
    taint = {"key": core_kinds.NOT_READY, "effect": "NoSchedule"}
    other = {"key": "a", "effect": "NoExecute"}
    given = {"spec": {"taints": [taint | {"value": "x"}, other]}}
    assert core_kinds.prepare_for_create("Node", given)["spec"]["taints"] == [other, taint]


@pytest.mark.parametrize(
    ("given", "added"),
    [
        ({"key": "other"}, 2),
        ({"key": core_kinds.NOT_READY, "effect": "NoExecute"}, 1),
        ({"key": core_kinds.NOT_READY}, 1),
        ({"key": core_kinds.NOT_READY, "effect": "NoSchedule"}, 2),
        ({"operator": "Exists"}, 0),
    ],
)
def test_a_pod_stays_a_while_on_a_node_in_trouble_unless_it_says_how_long(given, added):
    new = core_kinds.prepare_for_create("Pod", pod(tolerations=[given]))
    tolerations = new["spec"]["tolerations"]
    assert tolerations[0] == given
    assert [toleration["tolerationSeconds"] for toleration in tolerations[1:]] == [300] * added


@pytest.mark.parametrize(
    ("resources", "qos_class"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1"}}, "Guaranteed"),
        (
            {
                "limits": {"cpu": "1", "memory": "1"},
                "requests": {"cpu": "1", "memory": "1"},
            },
            "Guaranteed",
        ),
        (
            {
                "limits": {"cpu": "2", "memory": "1"},
                "requests": {"cpu": "1", "memory": "1"},
            },
            "Burstable",
        ),
    ],
)
def test_how_a_pod_fares_when_its_node_runs_short(resources, qos_class):
    new = core_kinds.prepare_for_create("Pod", pod(containers=[{"resources": resources}]))
    assert new["status"] == {"phase": "Pending", "qosClass": qos_class}


@pytest.mark.parametrize(
    ("given", "account"),
    [({}, "default"), ({"serviceAccount": "a"}, "a"), ({"serviceAccountName": "b"}, "b")],
)
def test_a_pod_has_an_account(given, account):
    spec = core_kinds.prepare_for_create("Pod", pod(**given))["spec"]
    assert (spec["serviceAccountName"], spec["serviceAccount"]) == (account, account)


# ---------------------------------------------------------------- pods


CLAIMS = [{"name": "gpu", "resourceClaimName": "c"}, {"name": "nic", "resourceClaimName": "d"}]


def using(*claims):
    return pod(
        resourceClaims=CLAIMS, containers=[CONTAINER | {"resources": {"claims": list(claims)}}]
    )


@pytest.mark.parametrize(
    "new",
    [
        pod(),
        using({"name": "gpu"}, {"name": "nic"}),
        using({"name": "gpu", "request": "a"}, {"name": "gpu", "request": "b"}),
        using({"name": "gpu", "request": "a"}, {"name": "gpu"}),
        pod(resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "t"}]),
    ],
)
def test_pods_that_are_allowed(new):
    assert validate("Pod", new) == []


@pytest.mark.parametrize(
    ("new", "why"),
    [
        (pod(containers=[]), "spec.containers: Required value"),
        (pod(containers=[{"name": "c"}]), "spec.containers[0].image: Required value"),
        (pod(containers=[{"image": "i"}]), "spec.containers[0].name: Required value"),
        (pod(initContainers=[{"name": "c"}]), "spec.initContainers[0].image: Required value"),
        (pod(restartPolicy="Now"), 'spec.restartPolicy: Unsupported value: "Now"'),
        (using({}), "spec.containers[0].resources.claims[0].name: Required value"),
        (
            using({"name": "tpu"}),
            'spec.containers[0].resources.claims[0]: Not found: "tpu": must be one of the names '
            "in pod.spec.resourceClaims: gpu, nic",
        ),
        (
            using({"name": "gpu"}, {"name": "gpu"}),
            'spec.containers[0].resources.claims[1]: Duplicate value: "gpu"',
        ),
        (
            using({"name": "gpu"}, {"name": "gpu", "request": "a"}),
            'spec.containers[0].resources.claims[1]: Duplicate value: "gpu"',
        ),
        (
            pod(resourceClaims=[CLAIMS[0], CLAIMS[0]]),
            'spec.resourceClaims[1].name: Duplicate value: "gpu"',
        ),
        (
            pod(resourceClaims=[{"resourceClaimName": "c"}]),
            "spec.resourceClaims[0].name: Required value",
        ),
        (
            pod(resourceClaims=[{"name": "g", "resourceClaimName": "A"}]),
            'spec.resourceClaims[0].resourceClaimName: Invalid value: "A"',
        ),
        (
            pod(resourceClaims=[{"name": "g", "resourceClaimTemplateName": "A"}]),
            'spec.resourceClaims[0].resourceClaimTemplateName: Invalid value: "A"',
        ),
    ],
)
def test_pods_that_are_refused(new, why):
    (cause,) = validate("Pod", new)
    assert cause.startswith(why)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ({}, core_kinds.ONE_SOURCE),
        (
            {"resourceClaimName": "c", "resourceClaimTemplateName": "t"},
            core_kinds.NOT_BOTH,
        ),
    ],
)
def test_a_claim_of_a_pod_has_one_source(source, why):
    (cause,) = validate("Pod", pod(resourceClaims=[{"name": "gpu"} | source]))
    assert cause.startswith("spec.resourceClaims[0]: Invalid value: {")
    assert cause.endswith(why)


@pytest.mark.parametrize(
    ("toleration", "why"),
    [
        ({"key": "a", "operator": "Exists"}, []),
        ({"operator": "Exists"}, []),
        ({"key": "a", "value": "x", "effect": "NoExecute", "tolerationSeconds": 4}, []),
        (
            {"key": "a", "operator": "Exists", "tolerationSeconds": 4},
            [
                "effect: Invalid value: \"\": effect must be 'NoExecute' when `tolerationSeconds` is set"
            ],
        ),
        (
            {"value": "x"},
            [
                'operator: Invalid value: "": operator must be Exists when `key` is empty, which '
                'means "match all values and all keys"'
            ],
        ),
        (
            {"key": "a", "operator": "Exists", "value": "x"},
            ["operator: Invalid value: \"x\": value must be empty when `operator` is 'Exists'"],
        ),
        (
            {"key": "a", "operator": "Lt", "value": "5"},
            ['operator: Unsupported value: "Lt": supported values: "Equal", "Exists", "Lt", "Gt"'],
        ),
        (
            {"key": "a", "operator": "In", "effect": "Never", "tolerationSeconds": 1},
            [
                "effect: Invalid value: \"Never\": effect must be 'NoExecute' when "
                "`tolerationSeconds` is set",
                'operator: Unsupported value: "In": supported values: "Equal", "Exists"',
                'effect: Unsupported value: "Never": supported values: "NoSchedule", '
                '"PreferNoSchedule", "NoExecute"',
            ],
        ),
    ],
)
def test_what_a_pod_may_tolerate(toleration, why):
    """Compares with the messages of 1.37.1. An update has the same rules."""
    given = pod(tolerations=[toleration])
    expected = [f"spec.tolerations[0].{each}" for each in why]
    assert validate("Pod", given) == expected
    assert validate("Pod", given, pod())[: len(expected)] == expected


@pytest.mark.parametrize("field", ["key", "value"])
def test_what_a_pod_tolerates_has_names_as_labels_have(field):
    toleration = {"key": "a", "operator": "Equal"} | {field: "no good!"}
    (said,) = validate("Pod", pod(tolerations=[toleration]))
    place = "key" if field == "key" else "operator"
    assert said.startswith(f'spec.tolerations[0].{place}: Invalid value: "no good!": ')


def test_a_pod_with_scheduling_gates_says_so_from_the_start():
    new = core_kinds.prepare_for_create("Pod", pod(schedulingGates=[{"name": "a"}]))
    (condition,) = new["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "SchedulingGated")
    assert "conditions" not in core_kinds.prepare_for_create("Pod", pod())["status"]


# ---------------------------------------------------------------- updates of pods


GATES = [{"name": "a"}, {"name": "b"}]
TOLERATIONS = [{"key": "a"}]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({}, {"containers": [CONTAINER | {"image": "other"}]}),
        ({}, {"activeDeadlineSeconds": 5}),
        ({"tolerations": TOLERATIONS}, {"tolerations": [*TOLERATIONS, {"key": "b"}]}),
        ({"schedulingGates": GATES}, {"schedulingGates": GATES[1:]}),
        ({"schedulingGates": GATES}, {}),
        ({"terminationGracePeriodSeconds": -1}, {"terminationGracePeriodSeconds": 1}),
    ],
)
def test_what_may_change_of_a_pod(old, new):
    assert validate("Pod", pod(**new), pod(**old)) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({}, {"containers": [CONTAINER | {"name": "other"}]}),
        ({}, {"restartPolicy": "Never"}),
        ({"tolerations": TOLERATIONS}, {"tolerations": [{"key": "b"}]}),
        ({}, {"schedulingGates": GATES}),
        ({"terminationGracePeriodSeconds": 0}, {"terminationGracePeriodSeconds": 1}),
        ({"terminationGracePeriodSeconds": 30}, {"terminationGracePeriodSeconds": 1}),
        ({"terminationGracePeriodSeconds": -1}, {"terminationGracePeriodSeconds": 2}),
    ],
)
def test_what_may_not(old, new):
    assert validate("Pod", pod(**new), pod(**old)) == [
        f"spec: Forbidden: {core_kinds.IMMUTABLE_POD}"
    ]


def test_containers_neither_come_nor_go_nor_lose_their_image():
    for containers in ([], [CONTAINER, CONTAINER]):
        assert validate("Pod", pod(containers=containers), pod()) == [
            "spec.containers: Forbidden: pod updates may not add or remove containers"
        ]
    assert validate("Pod", pod(containers=[CONTAINER | {"image": ""}]), pod()) == [
        "spec.containers[0].image: Required value"
    ]


def test_the_status_is_about_claims_of_the_pod():
    errors = FieldErrors(Profile("1.37"))
    statuses = [{"name": "gpu"}, {"name": "tpu"}]
    new = using() | {"status": {"resourceClaimStatuses": statuses}}
    core_kinds.validate_status(errors, "Pod", new)
    assert [cause.field for cause in errors.causes] == ["status.resourceClaimStatuses[1].name"]


# ---------------------------------------------------------------- maps and secrets


def encode_zeros(size):
    return base64.b64encode(b"x" * size).decode()


@pytest.mark.parametrize("size", [0, 1, 2])
def test_how_large_a_map_and_a_secret_may_be(size):
    limit = core_kinds.MAX_DATA
    fits = {"data": {"a": "x" * size}, "binaryData": {"b": encode_zeros(limit - size)}}
    assert validate("ConfigMap", fits) == []
    larger = {"data": {"a": "x" * (size + 1)}, "binaryData": {"b": encode_zeros(limit - size)}}
    assert validate("ConfigMap", larger) == [f"[]: Too long: may not be more than {limit} bytes"]

    assert (
        validate("Secret", {"data": {"a": encode_zeros(size), "b": encode_zeros(limit - size)}})
        == []
    )
    larger = {"data": {"a": encode_zeros(size), "b": encode_zeros(limit - size + 1)}}
    assert validate("Secret", larger) == [f"data: Too long: may not be more than {limit} bytes"]


def test_a_map_that_is_immutable_stays_so_and_as_it_is():
    old = {"immutable": True, "data": {"a": "1"}}
    why = f"Forbidden: {core_kinds.IMMUTABLE_MAP}"
    assert validate("ConfigMap", dict(old), old) == []
    assert validate("ConfigMap", {"data": {"a": "1"}}, old) == [f"immutable: {why}"]
    assert validate("ConfigMap", old | {"data": {}}, old) == [f"data: {why}"]
    assert validate("ConfigMap", old | {"binaryData": {"b": "eA=="}}, old) == [f"binaryData: {why}"]
    assert validate("ConfigMap", {"data": {"a": "2"}}, {"data": {"a": "1"}}) == []


@pytest.mark.parametrize(
    ("key", "why"),
    [(".", "must not be '.'"), ("..", "must not start with '..'"), ("..a", "must not start with")],
)
def test_keys_are_names_of_files(key, why):
    (cause,) = validate("ConfigMap", {"data": {key: "x"}})
    assert cause.startswith(f'data[{key}]: Invalid value: "{key}": {why}')
    assert validate("ConfigMap", {"data": {".a": "x", "a..b": "y"}}) == []
