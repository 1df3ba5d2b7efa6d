"""v1alpha2 into v1: what still has a meaning, with the objects that references name, and notes for
the rest.
"""

from claimd.kubernetes.api.objects import convert

GROUP = "resource.k8s.io/v1alpha2"
CLASS = {
    "apiVersion": GROUP,
    "kind": "ResourceClass",
    "metadata": {"name": "gpu"},
    "driverName": "gpu.example.com",
}
PARAMETERS = {
    "apiVersion": "gpu.example.com/v1",
    "kind": "GpuParameters",
    "metadata": {"name": "big", "namespace": "ns"},
    "spec": {"memory": "80Gi"},
    "status": {"seen": True},
}
REFERENCE = {"apiGroup": "gpu.example.com", "kind": "GpuParameters", "name": "big"}
STRUCTURED = {
    "apiVersion": GROUP,
    "kind": "ResourceClaimParameters",
    "metadata": {"name": "two", "namespace": "ns"},
    "shareable": True,
    "driverRequests": [
        {
            "driverName": "gpu.example.com",
            "vendorParameters": {"mode": "fast"},
            "requests": [
                {
                    "namedResources": {"selector": 'attributes.string["model"] == "x"'},
                    "vendorParameters": {"n": 1},
                },
                {},
            ],
        }
    ],
}
CLASS_STRUCTURED = {
    "apiVersion": GROUP,
    "kind": "ResourceClassParameters",
    "metadata": {"name": "cp", "namespace": "ns"},
    "vendorParameters": [{"driverName": "gpu.example.com", "parameters": {"a": 1}}],
    "filters": [{"driverName": "gpu.example.com", "namedResources": {"selector": "true"}}],
}


def claim(status=None, **spec):
    document = {
        "apiVersion": GROUP,
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "ns"},
        "spec": {"resourceClassName": "gpu"} | spec,
    }
    return document | ({"status": status} if status else {})


def to_v1(document, *among):
    result = convert.convert(document, "v1", among)
    assert not [note for note in result.notes if "does not take this" in note.text]
    return result.document, {note.path: note for note in result.notes}


def requests(document):
    return document["spec"]["devices"]["requests"]


def test_a_claim_asks_for_one_device_of_the_class():
    result, notes = to_v1(claim())
    assert result == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "ns"},
        "spec": {
            "devices": {"requests": [{"name": "request", "exactly": {"deviceClassName": "gpu"}}]}
        },
    }
    assert not notes
    assert convert.convert(claim(), "v1beta1").document["spec"]["devices"]["requests"] == [
        {"name": "request", "deviceClassName": "gpu"}
    ]


def test_a_template_too():
    template = {
        "apiVersion": GROUP,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "t", "namespace": "ns"},
        "spec": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"resourceClassName": "gpu", "allocationMode": "Immediate"},
        },
    }
    result, notes = to_v1(template)
    assert result["spec"]["metadata"] == {"labels": {"a": "b"}}
    assert requests(result["spec"]) == [{"name": "request", "exactly": {"deviceClassName": "gpu"}}]
    assert notes.keys() == {"spec.spec.allocationMode"}


def test_allocation_modes():
    _, notes = to_v1(claim(allocationMode="Immediate"))
    assert notes["spec.allocationMode"].lost
    _, notes = to_v1(claim(allocationMode="WaitForFirstConsumer"))
    assert not notes["spec.allocationMode"].lost


def test_parameters_become_opaque_configuration():
    result, notes = to_v1(claim(parametersRef=REFERENCE), CLASS, PARAMETERS)
    (config,) = result["spec"]["devices"]["config"]
    assert config["opaque"] == {
        "driver": "gpu.example.com",
        "parameters": {
            "apiVersion": "gpu.example.com/v1",
            "kind": "GpuParameters",
            "spec": {"memory": "80Gi"},
        },
    }
    assert not notes["spec.parametersRef"].lost


def test_parameters_that_are_not_there_are_lost():
    elsewhere = PARAMETERS | {"metadata": {"name": "big", "namespace": "other"}}
    result, notes = to_v1(claim(parametersRef=REFERENCE), CLASS, elsewhere)
    assert "config" not in result["spec"]["devices"]
    assert notes["spec.parametersRef"].lost
    assert notes["spec.parametersRef"].text.startswith(
        "GpuParameters big is not in this file; put its content into"
    )
    _, notes = to_v1(claim(parametersRef=REFERENCE), PARAMETERS)
    assert notes["spec.parametersRef"].text.startswith(
        "the driver of class gpu is not in this file"
    )


def test_structured_parameters_become_requests():
    reference = {"apiGroup": "resource.k8s.io", "kind": "ResourceClaimParameters", "name": "two"}
    result = convert.convert(claim(parametersRef=reference), "v1", [CLASS, STRUCTURED])
    assert requests(result.document) == [
        {"name": "request-0", "exactly": {"deviceClassName": "gpu"}},
        {"name": "request-1", "exactly": {"deviceClassName": "gpu"}},
    ]
    assert result.document["spec"]["devices"]["config"] == [
        {"opaque": {"driver": "gpu.example.com", "parameters": {"mode": "fast"}}},
        {
            "requests": ["request-0"],
            "opaque": {"driver": "gpu.example.com", "parameters": {"n": 1}},
        },
    ]
    (lost,) = [note for note in result.notes if note.lost]
    assert lost.path == "spec.parametersRef"
    assert 'attributes.string["model"] == "x"' in lost.text


def test_an_allocation_is_gone_field_by_field():
    status = {
        "driverName": "gpu.example.com",
        "deallocationRequested": True,
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
        "allocation": {
            "shareable": True,
            "availableOnNodes": {"nodeSelectorTerms": []},
            "resourceHandles": [{"driverName": "gpu.example.com", "data": "x"}],
        },
    }
    result, notes = to_v1(claim(status))
    assert "status" not in result
    assert {path for path, note in notes.items() if note.lost} == {
        "status.driverName",
        "status.deallocationRequested",
        "status.reservedFor",
        "status.allocation.shareable",
        "status.allocation.availableOnNodes",
        "status.allocation.resourceHandles",
    }


def test_a_class_selects_the_devices_of_its_driver():
    reference = {
        "apiGroup": "resource.k8s.io",
        "kind": "ResourceClassParameters",
        "name": "cp",
        "namespace": "ns",
    }
    given = CLASS | {
        "structuredParameters": True,
        "suitableNodes": {"nodeSelectorTerms": []},
        "parametersRef": reference,
    }
    result, notes = to_v1(given, CLASS_STRUCTURED)
    assert result["kind"] == "DeviceClass"
    assert result["spec"] == {
        "selectors": [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}],
        "config": [{"opaque": {"driver": "gpu.example.com", "parameters": {"a": 1}}}],
    }
    assert {path: note.lost for path, note in notes.items()} == {
        "suitableNodes": True,
        "structuredParameters": False,
        "parametersRef": True,
    }
    result, notes = to_v1(CLASS | {"parametersRef": REFERENCE | {"namespace": "ns"}}, PARAMETERS)
    assert result["spec"]["config"][0]["opaque"]["parameters"]["spec"] == {"memory": "80Gi"}
    _, notes = to_v1(CLASS | {"parametersRef": REFERENCE})
    assert notes["parametersRef"].lost


def test_named_resources_become_devices():
    attributes = [
        {"name": "model", "string": "x"},
        {"name": "memory", "quantity": "80Gi"},
        {"name": "ports", "intSlice": {"ints": [1, 2]}},
        {"name": "names", "stringSlice": {"strings": ["a"]}},
        {"name": "up", "bool": False},
    ]
    document = {
        "apiVersion": GROUP,
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "nodeName": "n",
        "driverName": "gpu.example.com",
        "namedResources": {
            "instances": [{"name": "gpu-0", "attributes": attributes}, {"name": "gpu-1"}]
        },
    }
    result, notes = to_v1(document)
    assert result["spec"] == {
        "driver": "gpu.example.com",
        "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "n",
        "devices": [
            {
                "name": "gpu-0",
                "attributes": {
                    "model": {"string": "x"},
                    "ports": {"ints": [1, 2]},
                    "names": {"strings": ["a"]},
                    "up": {"bool": False},
                },
                "capacity": {"memory": {"value": "80Gi"}},
            },
            {"name": "gpu-1"},
        ],
    }
    assert not [note for note in notes.values() if note.lost]
    older = convert.convert(document, "v1beta1")
    assert older.document["spec"]["devices"][1] == {"name": "gpu-1", "basic": {}}
    everywhere = {name: value for name, value in document.items() if name != "nodeName"}
    assert to_v1(everywhere)[0]["spec"]["allNodes"] is True


def test_what_has_no_successor_is_dropped_with_a_note():
    for kind, fields in (
        ("ResourceClaimParameters", {}),
        ("ResourceClassParameters", {}),
        ("PodSchedulingContext", {"spec": {}}),
    ):
        result = convert.convert(
            {"apiVersion": GROUP, "kind": kind, "metadata": {"name": "x"}} | fields, "v1"
        )
        assert result.document is None
        assert [note.path for note in result.notes] == ["kind"]


def test_pods_name_their_claims_without_a_source():
    claims = [
        {"name": "a", "source": {"resourceClaimName": "c"}},
        {"name": "b", "resourceClaimTemplateName": "t"},
    ]
    flat = [{"name": "a", "resourceClaimName": "c"}, claims[1]]
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [], "resourceClaims": claims}}
    assert convert.convert(pod, "v1").document["spec"] == {"containers": [], "resourceClaims": flat}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "spec": {"template": {"spec": {"resourceClaims": claims}}},
    }
    cron = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "spec": {"jobTemplate": {"spec": job["spec"]}},
    }
    assert convert.convert(cron, "v1").document["spec"]["jobTemplate"]["spec"]["template"][
        "spec"
    ] == {"resourceClaims": flat}
    other = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}}
    assert convert.convert(other, "v1").document == other
    assert claims[0] == {"name": "a", "source": {"resourceClaimName": "c"}}


def test_a_class_without_parameters_has_no_configuration():
    result, notes = to_v1(CLASS)
    assert result["spec"].keys() == {"selectors"}
    assert "parametersRef" not in notes
