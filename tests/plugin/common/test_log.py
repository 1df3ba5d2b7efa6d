import asyncio
import io
import json
import logging

import pytest

from claimd.common import log


@pytest.fixture
def lines():
    root = logging.getLogger()
    before = root.handlers[:], root.level
    stream = io.StringIO()

    def read(form="json", level="info"):
        log.set_up(level, form, stream)
        return stream

    yield read
    root.handlers[:], root.level = before


def test_one_json_line_each(lines):
    stream = lines()
    logging.getLogger("claimd.x").info("two\nlines %s", "é", extra={"claim_uid": "u"})
    (line,) = stream.getvalue().splitlines()
    parsed = json.loads(line)
    assert (parsed["level"], parsed["logger"], parsed["message"], parsed["claim_uid"]) == (
        "info",
        "claimd.x",
        "two\nlines é",
        "u",
    )
    assert parsed["time"].endswith("Z")


def test_a_stack_follows_the_line_for_people(lines):
    stream = lines("text")
    try:
        raise ValueError("no")
    except ValueError:
        logging.getLogger("x").exception("failed")
    first, *stack = stream.getvalue().splitlines()
    assert first.endswith("error   failed")
    assert stack[-1] == "ValueError: no"


def test_a_stack_is_part_of_the_line(lines):
    stream = lines()
    try:
        raise ValueError("no")
    except ValueError:
        logging.getLogger("x").exception("failed")
    (line,) = stream.getvalue().splitlines()
    assert "ValueError: no" in json.loads(line)["stack"]


def test_plain_text(lines):
    stream = lines("text")
    logging.getLogger("x").warning("careful", extra={"claim_uid": "u"})
    assert "warning careful claim_uid=u" in stream.getvalue()


def test_auto_is_json_where_there_is_no_terminal(lines):
    stream = lines("auto")
    logging.getLogger("x").info("m")
    assert json.loads(stream.getvalue())["message"] == "m"


def test_levels(lines):
    stream = lines(level="warning")
    logging.getLogger("x").info("quiet")
    assert stream.getvalue() == ""


async def test_lines_of_one_operation_share_its_id(lines):
    stream = lines()

    async def call(name):
        identity = log.begin()
        await asyncio.sleep(0)
        await asyncio.create_task(child(name))
        return identity

    async def child(name):
        logging.getLogger("x").info(name)

    ids = await asyncio.gather(call("a"), call("b"))
    logging.getLogger("x").info("outside")
    parsed = {
        line["message"]: line.get("op") for line in map(json.loads, stream.getvalue().splitlines())
    }
    assert parsed == {"a": ids[0], "b": ids[1], "outside": None}
    assert ids[0] != ids[1]


def test_a_strangers_text_makes_no_second_line_and_steers_no_terminal(caplog):
    """A forged line, a colour, text that runs backwards."""
    stranger = "c\n12:00:00.000 info    forged\x1b[31m\x9b2J\u202e"
    record = logging.LogRecord("claimd.x", logging.INFO, __file__, 1, "claim %s", (stranger,), None)
    for formatter in (log.TextFormatter(), log.JsonFormatter()):
        line = formatter.format(record)
        assert len(line.splitlines()) == 1
        assert not any(character in line for character in "\x1b\x9b\u202e")
