"""`claimd convert`, called in the way of people."""

import json
import subprocess
import sys

import pytest
import yaml

from claimd.tools import cli

FILE = """
apiVersion: resource.k8s.io/v1beta1
kind: ResourceClaim
metadata: {name: a, namespace: ns, creationTimestamp: 2026-01-01T00:00:00Z}
spec: {devices: {requests: [{name: r, deviceClassName: gpu}], mood: 1}}
---
---
apiVersion: v1
kind: ConfigMap
metadata: {name: m}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "claims.yaml"
    path.write_text(FILE)
    return path


def test_documents_to_v1_with_what_is_lost_on_stderr(capsys, file):
    assert cli.main(["convert", "--to", "v1", "-f", str(file)]) == 0
    out, err = capsys.readouterr()
    claim, other = yaml.load_all(out, yaml.BaseLoader)
    assert claim["apiVersion"] == "resource.k8s.io/v1"
    assert claim["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"
    assert claim["spec"]["devices"] == {
        "requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]
    }
    assert other["kind"] == "ConfigMap"
    assert err == "claimd: ResourceClaim ns/a: spec.devices.mood: lost: v1 has no such field\n"


@pytest.mark.slow
def test_json_and_stdin(file):
    command = [sys.executable, "-m", "claimd", "convert", "-f", "-", "-o", "json"]
    done = subprocess.run(command, input=FILE, capture_output=True, text=True, check=True)
    listed = json.loads(done.stdout)
    assert (listed["kind"], len(listed["items"])) == ("List", 2)
    done = subprocess.run(
        command, input=json.dumps(listed["items"][0]), capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == listed["items"][0]


@pytest.mark.parametrize(
    ("content", "to", "words"),
    [
        ("a: [", "v1", "cannot read "),
        (
            "kind: ResourceClaim\napiVersion: resource.k8s.io/v1\nspec: 1",
            "v1beta1",
            "ResourceClaim: spec: expected an object",
        ),
        ("- 1", "v1", "f.yaml, document 1: expected an object with apiVersion and kind, got [1]"),
        (FILE, "v2", "ResourceClaim ns/a: expected one of v1, v1beta2,"),
        ("kind: ConfigMap\napiVersion: v1\ndata: {on: x}", "v1", "a key is no text: "),
    ],
)
def test_what_cannot_be_converted_is_named(capsys, tmp_path, content, to, words):
    (tmp_path / "f.yaml").write_text(content)
    assert cli.main(["convert", "--to", to, "-f", str(tmp_path / "f.yaml")]) == 1
    out, err = capsys.readouterr()
    assert words in err
    assert not out


def test_strictly_nothing_is_lost(capsys, file):
    assert cli.main(["convert", "--strict", "-f", str(file)]) == 1
    out, err = capsys.readouterr()
    assert not out
    assert err.splitlines() == [
        "claimd: ResourceClaim ns/a: spec.devices.mood: lost: v1 has no such field",
        "claimd: v1 cannot say all of it: nothing is written (--strict)",
    ]
    file.write_text(FILE.replace(", mood: 1", ""))
    assert cli.main(["convert", "--strict", "-f", str(file)]) == 0
    assert capsys.readouterr().err == ""


def test_the_files_of_a_folder_in_the_order_of_their_names(capsys, tmp_path):
    (tmp_path / "2.json").write_text('{"apiVersion": "v1", "kind": "ConfigMap"}')
    (tmp_path / "1.yml").write_text("{apiVersion: v1, kind: Secret}")
    (tmp_path / "README").write_text("no: [")
    assert cli.main(["convert", "-f", str(tmp_path)]) == 0
    kinds = [document["kind"] for document in yaml.safe_load_all(capsys.readouterr().out)]
    assert kinds == ["Secret", "ConfigMap"]


def test_a_folder_without_files_to_read(capsys, tmp_path):
    assert cli.main(["convert", "-f", str(tmp_path)]) == 1
    assert "has no files whose names end in .yaml, .yml, .json" in capsys.readouterr().err


def test_a_file_that_is_not_there(capsys):
    assert cli.main(["convert", "-f", "/does/not/exist.yaml"]) == 1
    message = capsys.readouterr().err
    assert message == "claimd: cannot read /does/not/exist.yaml: No such file or directory\n"


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_a_key_that_is_no_text_is_told(claimd, tmp_path, form):
    (tmp_path / "odd.yaml").write_text("apiVersion: v1\nkind: ConfigMap\n?\n")
    code, _, err = claimd("convert", "-f", str(tmp_path / "odd.yaml"), "--to", "v1", "-o", form)
    assert "Traceback" not in err
    assert code in (0, 1)
    assert code == 0 or "a key is no text" in err


def test_what_the_target_refuses_is_told_and_is_a_failure(capsys, tmp_path):
    """It is a failure without --strict, too, and the document is written all the same."""
    place = tmp_path / "f.yaml"
    place.write_text(FILE.replace(", mood: 1", "").replace("name: r", "name: R"))
    assert cli.main(["convert", "--to", "v1beta2", "-f", str(place)]) == 1
    out, err = capsys.readouterr()
    assert "apiVersion: resource.k8s.io/v1beta2" in out
    assert err.startswith(
        'claimd: ResourceClaim ns/a: Kubernetes 1.37 refuses it: ResourceClaim.resource.k8s.io "a" '
        'is invalid: spec.devices.requests[0].name: Invalid value: "R": '
    )

    assert cli.main(["convert", "--strict", "--to", "v1alpha3", "-f", str(place)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "Kubernetes 1.31 refuses it: " in err
    assert err.endswith("claimd: v1alpha3 refuses some of it: nothing is written (--strict)\n")


def test_comments_that_cannot_stay_are_told(capsys, tmp_path):
    place = tmp_path / "f.yaml"
    place.write_text(FILE.replace("---\n---", "# one\n---") + "# two\n")
    assert cli.main(["convert", "-f", str(place)]) == 0
    out, err = capsys.readouterr()
    assert "# two" in out
    assert "# one" in out

    place.write_text("kind: ConfigMap\napiVersion: v1\ndata: &x {a: b} # three\nmore: *x\n")
    assert cli.main(["convert", "-f", str(place)]) == 0
    out, err = capsys.readouterr()
    assert "# three" not in out
    assert err == f"claimd: {place}: comments left out: 1, the first: # three\n"
