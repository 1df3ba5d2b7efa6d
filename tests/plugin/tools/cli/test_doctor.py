"""The text, the document and the exit code of `claimd doctor`. Its checks have their own tests."""

import json


def test_a_tree_without_a_kubelet(claimd, tree, tmp_path):
    arguments = (
        "doctor",
        "--root",
        tree,
        "--kubelet-dir",
        str(tmp_path / "k"),
        "--cdi-dir",
        str(tmp_path),
    )
    code, out, _ = claimd(*arguments)
    assert code == 4
    assert out.splitlines()[0].split() == ["SEVERITY", "CHECK", "WHAT", "WAS", "SEEN"]
    assert f"there is no folder {tmp_path}/k/plugins_registry" in out
    assert "\nwell " not in out
    # A long path of a temporary folder is one more.
    count = int(out.splitlines()[-1].split(" errors, ")[0])
    assert count == sum(line.startswith("error ") for line in out.splitlines()) >= 4

    _, everything, _ = claimd(*arguments, "--all")
    assert "\nwell           gpus " in everything
    wide = claimd(*arguments, "-o", "wide")[1]
    assert len(wide.splitlines()) == len(everything.splitlines())
    code, out, _ = claimd(*arguments, "-o", "json")
    assert code == 4
    assert json.loads(out)["counts"]["error"] == count


def test_rules_that_mean_nothing(claimd, tree):
    code, _, err = claimd("doctor", "--root", tree, "--include", "nobody")
    assert code == 2
    assert "nobody" in err
