"""The options that the command line gives to the demo. Its stories have tests of their own."""

from claimd.sim.demo import command
from claimd.tools.view import server as view


def test_what_was_asked_for_is_told(claimd, monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr(command, "run", calls.append)
    assert claimd("demo") == (0, "", "")
    arguments = ["partitions", "--state", str(tmp_path), "--serve", "--plain", "--speed", "2"]
    arguments += ["--profile", "1.34"]
    assert claimd("demo", *arguments) == (0, "", "")
    assert calls == [
        command.DemoOptions(),
        command.DemoOptions(
            story="partitions",
            profile="1.34",
            state=tmp_path,
            serve=True,
            plain=True,
            page=view.serve_cluster,
            speed=2.0,
        ),
    ]


def test_a_release_that_claimd_does_not_run_on(claimd):
    message = "claimd: profile '1.30': a cluster can be like 1.34, 1.35, 1.36, 1.37, 1.38\n"
    assert claimd("demo", "--profile", "1.30") == (2, "", message)
