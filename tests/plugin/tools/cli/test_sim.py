"""`claimd sim` reports wrong use before it starts. The server has tests of its own."""

import pytest

from claimd.sim.apiserver import command, server


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--profile", "1.2"],
            "profile '1.2': expected one of 1.30, 1.31, 1.34, 1.35, 1.36, 1.37, 1.38",
        ),
        (["--port", "-1"], "port -1: expected 0 to 65535"),
        (["--port", "65536"], "port 65536: expected 0 to 65535"),
        (["--"], "after --: expected a COMMAND, such as `-- go test ./...`"),
        (
            ["--node", "a"],
            "--node is for `claimd sim --node NAME -- COMMAND`; a cluster that stays up is "
            "`claimd demo --serve`",
        ),
        (
            ["--scheduler", "sh"],
            "--scheduler is for `claimd sim --node NAME -- COMMAND`; a cluster that stays up is "
            "`claimd demo --serve`",
        ),
        (
            ["--controllers", "sh", "--", "true"],
            "--scheduler, --controllers and --binding-timeout are for a cluster: "
            "expected --node NAME with them",
        ),
        (
            ["--binding-timeout", "5", "--", "true"],
            "--scheduler, --controllers and --binding-timeout are for a cluster: "
            "expected --node NAME with them",
        ),
        (
            ["--binding-timeout", "5"],
            "--binding-timeout is for `claimd sim --node NAME -- COMMAND`; a cluster that stays up "
            "is `claimd demo --serve`",
        ),
        (
            ["--node", "a", "--binding-timeout", "0.5", "--", "true"],
            "--binding-timeout 0.5: expected a second or more",
        ),
        (
            ["--node", "a", "--binding-timeout", "nan", "--", "true"],
            "--binding-timeout nan: expected a second or more",
        ),
        (
            ["--node", "a", "--scheduler", "nowhere", "--", "true"],
            "--scheduler: nowhere is no program: expected the path of a kube-scheduler, as built "
            "from k8s.io/kubernetes/cmd/kube-scheduler",
        ),
        (
            ["--profile", "1.31", "--node", "a", "--", "true"],
            "profile '1.31': a cluster can be like 1.34, 1.35, 1.36, 1.37, 1.38",
        ),
        (["--node", "a", "--node", "a=nvidia:l4", "--", "true"], "--node: a is there twice"),
    ],
)
def test_wrong_use(claimd, arguments, said):
    assert claimd("sim", *arguments) == (2, "", f"claimd: {said}\n")


def test_a_kubeconfig_that_cannot_be_written(claimd):
    code, _, err = claimd("sim", "--port", "0", "--kubeconfig", "/nowhere/kubeconfig")
    assert (code, err) == (
        1,
        "claimd: cannot write /nowhere/kubeconfig: No such file or directory\n",
    )


@pytest.mark.parametrize(("port", "more", "tls"), [(0, [], True), (65535, ["--http"], False)])
def test_it_serves_what_was_asked_for(claimd, monkeypatch, tmp_path, port, more, tls):
    served = []

    async def run(options, kubeconfig):
        served.append((options, kubeconfig))

    monkeypatch.setattr(command, "run", run)
    arguments = ["--port", str(port), "--profile", "1.34", "--db", str(tmp_path / "db"), *more]
    assert claimd("sim", *arguments, "--kubeconfig", str(tmp_path / "k")) == (0, "", "")
    ((options, kubeconfig),) = served
    assert options == server.Options(
        profile="1.34", port=port, tls=tls, db=tmp_path / "db", end_namespaces=True
    )
    assert kubeconfig == tmp_path / "k"
