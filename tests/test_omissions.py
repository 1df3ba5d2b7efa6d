"""The omissions that are put into a module."""

from __future__ import annotations

import textwrap

from tests import mutations, omissions


def omitted(source: str) -> list[str]:
    return [mutant.what for mutant in omissions.of_source("m.py", textwrap.dedent(source))]


def test_a_statement_and_a_reset_are_left_out_and_what_only_tells_is_not() -> None:
    assert omitted(
        '''
        def work(self):
            """Does it."""
            log.info("it begins")
            metrics.WORK.add()
            value = look()
            self.store(value)
            self.due = False
            del self.old[value]
            return value
        '''
    ) == [
        "self.store(value)  ->  pass",
        "self.due = False  ->  pass",
        "del self.old[value]  ->  pass",
    ]


def test_a_guard_a_lock_and_a_finally_are_left_out() -> None:
    assert omitted(
        """
        def work(self):
            if self.closed:
                return None
            with self.lock:
                try:
                    return self.step()
                finally:
                    self.end()
        """
    ) == [
        "if self.closed: return None  ->  pass",
        "with self.lock  ->  if True",
        "self.end()  ->  pass",
    ]


def test_a_block_that_names_something_stays() -> None:
    assert omitted("def work():\n    with open('x') as file:\n        return file.read()\n") == []


def test_two_awaits_change_their_places() -> None:
    swapped = omissions.of_source("m.py", "async def f():\n    await a()\n    x = await b()\n")
    assert [mutant.text for mutant in swapped if mutant.lines == (2, 3)] == [
        "async def f():\n    x = await b()\n    await a()\n"
    ]


def test_an_except_catches_too_much() -> None:
    source = """
        def work():
            try:
                return read()
            except (OSError, ValueError):
                return None
            except Exception:
                return 1
    """
    assert omitted(source) == ["(OSError, ValueError)  ->  Exception"]


def test_a_sample_of_them_is_drawn_by_the_seed_and_compiles() -> None:
    drawn = mutations.sample(7, 10, ["plugin/claimd/node/kubelet/"], omissions.of_source)
    assert drawn == mutations.sample(7, 10, ["plugin/claimd/node/kubelet/"], omissions.of_source)
    assert drawn != mutations.sample(7, 10, ["plugin/claimd/node/kubelet/"])
    assert len(drawn) == 10
    for mutant in drawn:
        compile(mutant.text, mutant.module, "exec")
