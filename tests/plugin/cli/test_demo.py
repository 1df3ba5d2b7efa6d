"""What the demo is told by the command line; its stories have tests of their own."""

from plugin.sim.demo import command
from plugin.view import server as view


def test_what_was_asked_for_is_told(claimd, monkeypatch, tmp_path):
    told = []
    monkeypatch.setattr(command, "run", told.append)
    assert claimd("demo") == (0, "", "")
    arguments = ["partitions", "--state", str(tmp_path), "--serve", "--plain", "--speed", "2"]
    assert claimd("demo", *arguments) == (0, "", "")
    assert told == [
        command.DemoOptions(),
        command.DemoOptions(
            story="partitions",
            state=tmp_path,
            serve=True,
            plain=True,
            page=view.serve_cluster,
            speed=2.0,
        ),
    ]
