"""The output on a terminal, read by a small emulator, and the plain lines on other outputs."""

import io
import re

from claimd.sim.demo import scene, screen

SIZE = (60, 20)
ONE = scene.Scene(nodes=(scene.Node(name="one", gpus=(scene.Gpu(name="gpu-a", state="free"),)),))
TWO = scene.Scene(
    nodes=(scene.Node(name="one", gpus=(scene.Gpu(name="gpu-a", state="held", note="train"),)),)
)


def render(written):
    """Returns the lines of a terminal after this output; it knows only the escape sequences that
    the demo uses."""
    lines, row, fresh = [""], 0, ""
    for part in re.split(r"(\x1b\[[?0-9]*[A-Za-z]|\n)", written):
        if part == "\n":
            row, fresh = row + 1, ""
            if row == len(lines):
                lines.append("")
        elif part.endswith("F") and part.startswith("\x1b"):
            row -= int(part[2:-1])
            assert row >= 0, "above the first line"
        elif part == "\x1b[J":
            del lines[row + 1 :]
            lines[row] = ""
        elif part == "\x1b[K":
            lines[row] = fresh
        elif part.startswith("\x1b[?25") or part.endswith("m"):
            continue
        elif part:
            assert not part.startswith("\x1b"), part
            fresh = fresh + part
            lines[row] = fresh + lines[row][len(fresh) :]
    return lines


def live(stream):
    return screen.Screen(stream, screen.Terminal(live=True, color=False, unicode=True, size=SIZE))


def test_what_is_told_stays_and_the_picture_is_below_it():
    stream = io.StringIO()
    screen_ = live(stream)
    screen_.text("A beginning.")
    screen_.show(ONE)
    screen_.text("It goes on.")
    screen_.show(TWO)
    screen_.show(TWO)
    screen_.close()
    lines = render(stream.getvalue())
    assert lines[:3] == ["  A beginning.", "  It goes on.", ""]
    assert sum("gpu-a" in line for line in lines) == 1
    assert any("train" in line for line in lines)
    assert not any("free" in line for line in lines)
    assert lines[-1] == ""


def test_a_picture_that_shrinks_leaves_nothing():
    stream = io.StringIO()
    screen_ = live(stream)
    screen_.show(
        scene.Scene(nodes=TWO.nodes, rows=(scene.Row(pod="train"), scene.Row(pod="other")))
    )
    screen_.show(ONE)
    assert not any("other" in line for line in render(stream.getvalue()))


def test_the_same_picture_is_not_written_again():
    stream = io.StringIO()
    screen_ = live(stream)
    screen_.show(ONE)
    before = stream.getvalue()
    screen_.show(ONE)
    assert stream.getvalue() == before


def test_long_texts_are_folded_and_long_lines_are_cut():
    stream = io.StringIO()
    screen_ = live(stream)
    screen_.text("word " * 40)
    screen_.line(("x" * 100, "bold"))
    screen_.block(["  key: " + "value " * 20])
    assert all(len(line) <= SIZE[0] for line in render(stream.getvalue()))
    assert stream.getvalue().count("word") == 40
    assert stream.getvalue().count("value") == 20
    assert render(stream.getvalue())[-2].startswith("          value")


def test_without_a_terminal_there_are_lines_and_no_escapes():
    stream = io.StringIO()
    screen_ = screen.Screen(
        stream, screen.Terminal(live=False, color=False, unicode=False, size=SIZE)
    )
    screen_.show(ONE)
    screen_.text("Told.")
    screen_.show(TWO)
    screen_.brief()
    screen_.line(("  ✓ ", "green"), ("done", ""))
    screen_.close()
    assert stream.getvalue() == "  Told.\n\n  one        * gpu-a train\n  + done\n"


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


def test_what_a_terminal_wants():
    stream = Terminal()
    assert screen.probe(stream, {"TERM": "xterm"}) == screen.Terminal(
        live=True, color=True, unicode=True
    )
    assert screen.probe(stream, {"TERM": "xterm", "NO_COLOR": "1"}) == screen.Terminal(
        live=True, color=False, unicode=True
    )
    assert screen.probe(stream, {"TERM": "dumb"}) == screen.Terminal(
        live=False, color=False, unicode=True
    )
    assert screen.probe(stream, {}) == screen.Terminal(live=False, color=False, unicode=True)
    assert screen.probe(stream, {"TERM": "xterm"}, plain=True) == screen.Terminal(
        live=False, color=True, unicode=True
    )
    elsewhere = screen.probe(io.StringIO(), {"TERM": "xterm"})
    assert not elsewhere.live
    assert elsewhere.style().width > 1000  # nothing is cut
