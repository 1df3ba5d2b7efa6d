"""One CDI spec file: the features of each version, and refused files.

More cases are in tests/cases/sim/cdi/specs.yaml.
"""

import json

import pytest

from claimd.sim.runtime import cdi_spec

NODE = {"path": "/dev/a"}


def spec(edits=None, version="1.1.0", device=None, **more):
    """Builds a spec with the edits in a device, or in the spec itself."""
    device_ = {"name": "a", "containerEdits": edits or {"env": ["A=b"]}} | (device or {})
    return {"cdiVersion": version, "kind": "example.com/gpu", "devices": [device_]} | more


def refusal(document, newest=cdi_spec.VERSIONS[-1]):
    """Returns the runtime's error, or None if it accepts the file."""
    try:
        cdi_spec.parse(json.dumps(document), newest)
    except cdi_spec.InvalidSpec as error:
        return str(error)
    return None


def rdt(**more):
    return {"intelRdt": {"closID": "c"} | more}


@pytest.mark.parametrize(
    ("document", "version"),
    [
        (spec({"deviceNodes": [NODE]}), "0.3.0"),
        (spec({"mounts": [{"hostPath": "/a", "containerPath": "/b"}]}), "0.3.0"),
        (spec({"mounts": [{"hostPath": "/a", "containerPath": "/b", "type": "bind"}]}), "0.4.0"),
        (spec({"deviceNodes": [NODE | {"hostPath": "/dev/b"}]}), "0.5.0"),
        (spec(device={"name": "0"}), "0.5.0"),
        (spec(annotations={"a": "b"}), "0.6.0"),
        (spec(device={"annotations": {"a": "b"}}), "0.6.0"),
        (spec(kind="example.com/gpu.x"), "0.6.0"),
        (spec({"additionalGids": [1]}), "0.7.0"),
        (spec(rdt()), "0.7.0"),
        (spec(rdt(schemata=[])), "1.1.0"),
        (spec(rdt(enableMonitoring=True)), "1.1.0"),
        (spec({"netDevices": [{"hostInterfaceName": "a", "name": "b"}]}), "1.1.0"),
    ],
)
def test_a_version_has_to_know_what_is_used(document, version):
    assert cdi_spec.least_version(cdi_spec.parse(json.dumps(document))) == version
    known = cdi_spec.VERSIONS.index(version)
    assert refusal(document | {"cdiVersion": version}) is None
    older = document | {"cdiVersion": cdi_spec.VERSIONS[known - 1]}
    assert refusal(older) == (
        f"cdiVersion {older['cdiVersion']} lacks something that is used: "
        f"it must be at least {version}"
    )


def test_what_the_spec_as_a_whole_uses_counts_too():
    whole = spec(containerEdits={"additionalGids": [1]}, version="0.6.0")
    assert "it must be at least 0.7.0" in refusal(whole)


def test_a_runtime_does_not_know_what_came_after_it():
    assert refusal(spec(version="0.6.0"), newest="0.6.0") is None
    assert refusal(spec(version="v0.6.0"), newest="0.6.0") is None
    assert refusal(spec(version="0.7.0"), newest="0.6.0").startswith("invalid version '0.7.0'")


@pytest.mark.parametrize(
    ("edits", "why"),
    [
        ({"env": ["A="]}, None),
        ({"env": ["A"]}, "invalid environment variable 'A', expected NAME=value"),
        ({"env": ["=b"]}, "invalid environment variable '=b', expected NAME=value"),
        ({"deviceNodes": [{}]}, "a device node without a path"),
        *(({"deviceNodes": [NODE | {"type": kind}]}, None) for kind in "bcup"),
        (
            {"deviceNodes": [NODE | {"type": "x"}]},
            "device node '/dev/a': invalid type 'x', expected b, c, u or p",
        ),
        *(({"deviceNodes": [NODE | {"permissions": p}]}, None) for p in ("rwm", "r", "none")),
        (
            {"deviceNodes": [NODE | {"permissions": "rx"}]},
            "device node '/dev/a': invalid permissions 'rx', expected some of r, w and m",
        ),
        *(({"hooks": [{"hookName": n, "path": "/h"}]}, None) for n in cdi_spec.HOOKS),
        (
            {"hooks": [{"hookName": "later", "path": "/h"}]},
            "invalid hook name 'later', expected one of prestart, ",
        ),
        ({"hooks": [{"hookName": "prestart"}]}, "hook 'prestart' without a path"),
        (
            {"hooks": [{"hookName": "prestart", "path": "/h", "env": ["A"]}]},
            "hook 'prestart': invalid environment variable 'A'",
        ),
        (
            {"mounts": [{"hostPath": "/a"}]},
            "mount '/a' without host path or container path",
        ),
        (
            {"mounts": [{"containerPath": "/b"}]},
            "mount '/b' without host path or container path",
        ),
        *((rdt(closID=name), None) for name in ("/", "a", "x" * 4095)),
        *((rdt(closID=n), "invalid closID") for n in (".", "..", "a/b", "a\nb", "x" * 4096)),
        (
            {"netDevices": [{"name": "a"}]},
            "a net device without hostInterfaceName or name",
        ),
        (
            {"netDevices": [{"hostInterfaceName": "a"}]},
            "a net device without hostInterfaceName or name",
        ),
        (
            {"netDevices": [{"hostInterfaceName": "a", "name": n} for n in "xy"]},
            "net device 'a' is there more than once",
        ),
        (
            {"netDevices": [{"hostInterfaceName": n, "name": "x"} for n in "ab"]},
            "net device 'x' is there more than once",
        ),
        (
            {"netDevices": [{"hostInterfaceName": n, "name": n} for n in "ab"]},
            None,
        ),
    ],
)
def test_edits(edits, why):
    for document, where in (
        (spec(edits), "device 'a'"),
        (spec(containerEdits=edits), "containerEdits"),
    ):
        said = refusal(document)
        if why is None:
            assert said is None
        else:
            assert said.startswith(f"{where}: {why}")


def test_a_device_changes_something_and_stands_once():
    empty = spec() | {"devices": [{"name": "a"}]}
    assert refusal(empty) == "invalid device 'a': it has no container edits"
    twice = spec()
    twice["devices"] *= 2
    assert refusal(twice) == "device 'a' is there more than once"
    assert refusal(spec() | {"devices": []}) == "no devices"


@pytest.mark.parametrize(
    ("key", "allowed"),
    [
        ("a", True),
        ("Example.com/A_b.c", True),
        ("a" * 63, True),
        ("a" * 64, False),
        ("-a", False),
        ("a/", False),
        ("/a", False),
        ("a b", False),
        ("d" * 253 + "/a", True),
        ("d" * 254 + "/a", False),
    ],
)
def test_keys_of_annotations(key, allowed):
    for document, where in (
        (spec(annotations={key: "x"}), "example.com/gpu"),
        (spec(device={"annotations": {key: "x"}}), "a"),
    ):
        why = None if allowed else f"{where}: invalid annotation key {key!r}"
        assert refusal(document) == why


def test_how_much_annotations_may_say():
    limit = 256 << 10
    assert refusal(spec(annotations={"a": "x" * (limit - 1)})) is None
    assert refusal(spec(annotations={"a": "x" * (limit - 2), "b": ""})) is None
    assert refusal(spec(annotations={"a": "x" * limit})) == (
        f"example.com/gpu: {limit + 1} bytes of annotations, the limit is {limit}"
    )


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "no spec data"),
        ("null", "no spec data"),
        ("{", "neither JSON nor YAML"),
        ("[]", "not a CDI spec"),
        ('{"cdiVersion": "1.0.0", "other": 1}', "not a CDI spec"),
    ],
)
def test_what_is_no_spec(content, why):
    with pytest.raises(cdi_spec.InvalidSpec, match=why):
        cdi_spec.parse(content)
