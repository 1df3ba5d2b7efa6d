"""A browser is sent only what is new to it."""

import asyncio
import json

from claimd.tools.view import board as boards
from claimd.tools.view.board import Board


def news(board, version=0):
    return json.loads(board.changes_since(version))


def test_only_what_changed():
    board = Board()
    board.set_entry("a", 1)
    board.set_entry("b", {"x": "<b>"})
    seen = news(board)
    assert (seen["whole"], seen["set"]) == (True, {"a": 1, "b": {"x": "<b>"}})
    board.set_entry("a", 1)
    assert news(board, seen["version"])["set"] == {}
    board.set_entry("a", 2)
    board.set_entry("b", None)
    later = news(board, seen["version"])
    assert (later["whole"], later["set"]) == (False, {"a": 2, "b": None})
    assert news(board)["set"] == {"a": 2}, "who comes new hears of nothing that is gone"


def test_who_was_away_for_long_is_sent_everything(monkeypatch):
    monkeypatch.setattr(boards, "_MOST_GONE", 10)
    board = Board()
    board.set_entry("stays", 1)
    version = board.version
    for number in range(30):
        board.set_entry(f"pod/{number}", 1)
        board.set_entry(f"pod/{number}", None)
    assert len(board._entries) <= 12
    late = news(board, version)
    assert (late["whole"], late["set"]) == (True, {"stays": 1})
    assert news(board, board.version + 5)["whole"], "a version of the future is of another board"


async def test_whoever_waits_is_woken():
    board = Board()
    waiting = [asyncio.create_task(board.wait(0, 30)) for _ in range(3)]
    await asyncio.sleep(0)
    board.set_entry("a", 1)
    async with asyncio.timeout(10):
        await asyncio.gather(*waiting)
    await board.wait(board.version, 0.01)
