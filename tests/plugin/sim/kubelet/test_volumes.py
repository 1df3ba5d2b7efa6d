"""The content of a pod's volumes, and the mounts of its containers."""

import pytest

from claimd.sim.kubelet import volumes

POD = {
    "metadata": {
        "name": "p",
        "namespace": "team",
        "uid": "u-1",
        "labels": {"b": "2", "a": 'say "1"'},
    },
    "spec": {},
}
SETTINGS = {"one": b"1", "two": b"\xff\x00"}


def contents(read=None, issued=None, **volume):
    files = volumes.contents(POD, {"name": "v"} | volume, read or {}, issued or {})
    return {path: (file.content, oct(file.mode)) for path, file in files.items()}


def test_a_config_map_and_a_secret_are_files_by_their_keys():
    read = {("configmaps", "c"): SETTINGS}
    assert contents(read, configMap={"name": "c"}) == {
        "one": (b"1", "0o644"),
        "two": (b"\xff\x00", "0o644"),
    }
    read = {("secrets", "s"): SETTINGS}
    assert contents(read, secret={"secretName": "s", "defaultMode": 0o400})["one"] == (
        b"1",
        "0o400",
    )


def test_items_choose_keys_paths_and_modes():
    items = [{"key": "one", "path": "deep/1"}, {"key": "two", "path": "2", "mode": 0o600}]
    reference = {"name": "c", "items": items, "defaultMode": 0o444}
    assert contents({("configmaps", "c"): SETTINGS}, configMap=reference) == {
        "deep/1": (b"1", "0o444"),
        "2": (b"\xff\x00", "0o600"),
    }


def test_what_is_not_there():
    for name, read in (("c", None), ("c", {("configmaps", "c"): None})):
        with pytest.raises(volumes.MissingSource, match='configmap "c" not found'):
            contents(read, configMap={"name": name})
    assert contents(configMap={"name": "c", "optional": True}) == {}

    read = {("configmaps", "c"): SETTINGS}
    items = [{"key": "none", "path": "x"}]
    with pytest.raises(volumes.MissingSource, match="non-existent configmap key: team/none"):
        contents(read, configMap={"name": "c", "items": items})
    assert contents(read, configMap={"name": "c", "items": items, "optional": True}) == {}


def test_fields_of_the_pod():
    items = [
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {"path": "who/name", "fieldRef": {"fieldPath": "metadata.name"}},
        {"path": "b", "fieldRef": {"fieldPath": "metadata.labels['b']"}, "mode": 0o600},
        {"path": "cpu", "resourceFieldRef": {"resource": "limits.cpu"}},
    ]
    assert contents(downwardAPI={"items": items}) == {
        "labels": (b'a="say \\"1\\""\nb="2"', "0o644"),
        "who/name": (b"p", "0o644"),
        "b": (b"2", "0o600"),
    }


def test_what_is_projected_from_several():
    token = {"path": "token", "audience": "vault", "expirationSeconds": 600}
    projected = {
        "defaultMode": 0o440,
        "sources": [
            {"secret": {"name": "s"}},
            {"downwardAPI": {"items": [{"path": "ns", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
            {"serviceAccountToken": token},
        ],
    }  # fmt: skip
    volume = {"name": "v", "projected": projected}
    assert volumes.sources(volume) == {("secrets", "s")}
    assert volumes.tokens(volume) == {("vault", 600)}
    files = contents({("secrets", "s"): SETTINGS}, {("vault", 600): "jwt"}, projected=projected)
    assert files["token"] == (b"jwt", "0o440")
    assert (files["ns"], files["one"]) == ((b"team", "0o440"), (b"1", "0o440"))
    plain = {"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}
    assert volumes.tokens(plain) == {("", 3600)}


def test_an_empty_folder_has_nothing_in_it_and_keeps_what_is_put_there(tmp_path):
    assert contents(emptyDir={}) == {}
    volumes.write(tmp_path / "v", {})
    (tmp_path / "v" / "mine").write_text("x")
    volumes.write(tmp_path / "v", {"a/b": volumes.File(content=b"1", mode=0o640)})
    assert (tmp_path / "v" / "mine").read_text() == "x"
    assert (tmp_path / "v" / "a" / "b").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "v").stat().st_mode & 0o777 == 0o777


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x"])
def test_no_path_leads_out_of_a_volume(tmp_path, path):
    with pytest.raises(ValueError, match="leads out"):
        volumes.write(tmp_path / "v", {path: volumes.File(content=b"", mode=0o644)})
    assert [each.name for each in tmp_path.iterdir()] == ["v"]


def test_what_a_container_sees(tmp_path):
    pod = {"spec": {"volumes": [{"name": "a", "emptyDir": {}}, {"name": "h", "hostPath": {}}]}}
    container = {
        "volumeMounts": [
            {"name": "a", "mountPath": "/a", "readOnly": True},
            {"name": "a", "mountPath": "/b", "subPath": "deep/er"},
            {"name": "h", "mountPath": "/h"},
        ]
    }
    seen = volumes.mounts(pod, container, tmp_path)
    assert [(each.host_path, each.container_path, each.options) for each in seen] == [
        (f"{tmp_path}/a", "/a", ["ro"]),
        (f"{tmp_path}/a/deep/er", "/b", []),
    ]
    volumes.make_sub_paths(pod, container, tmp_path)
    assert (tmp_path / "a" / "deep" / "er").is_dir()
    assert volumes.mounts(pod, {}, tmp_path) == ()
