"""Names looked up by a real resolver, and what becomes of the program when that is silent."""

import asyncio
import selectors
import socket
import subprocess
import sys
import textwrap
import threading
import time
from concurrent import futures

import pytest

from claimd.node import event_loop


def run(work):
    with asyncio.Runner(loop_factory=event_loop.Loop) as runner:
        return runner.run(work)


def test_a_name_has_an_address():
    async def look():
        return await asyncio.get_running_loop().getaddrinfo(
            "localhost", 443, type=socket.SOCK_STREAM
        )

    assert {family for family, *_ in run(look())} <= {socket.AF_INET, socket.AF_INET6}


@pytest.mark.parametrize("name", ["name with spaces", "a..b", "x" * 70 + ".example"])
def test_a_name_that_is_none_says_so(name):
    async def look():
        async with asyncio.timeout(30):
            await asyncio.get_running_loop().getaddrinfo(name, 443)

    with pytest.raises(socket.gaierror):
        run(look())


def test_an_answer_is_not_kept(monkeypatch):
    """A name may move: only those who ask at the same time share an answer."""
    asked = []

    def resolve(*where, **how):
        asked.append(where)
        return [len(asked)]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)

    async def look():
        loop = asyncio.get_running_loop()
        together = await asyncio.gather(*(loop.getaddrinfo("h", 443) for _ in range(2)))
        return [*together, await loop.getaddrinfo("h", 443), await loop.getaddrinfo("h", 80)]

    assert run(look()) == [[1], [1], [2], [3]]


def test_who_gives_up_takes_nothing_from_those_who_wait():
    async def look():
        loop = asyncio.get_running_loop()
        asks = [asyncio.ensure_future(loop.getaddrinfo("localhost", 443)) for _ in range(3)]
        await asyncio.sleep(0)
        assert sum(thread.name == "lookup" for thread in threading.enumerate()) <= 1
        asks[0].cancel()
        return await asyncio.gather(*asks[1:])

    first, other = run(look())
    assert first == other != []


def test_a_silent_resolver_holds_up_neither_threads_nor_the_end():
    script = """
        import asyncio, socket, time
        from claimd.node import event_loop
        socket.getaddrinfo = lambda *where, **how: time.sleep(60)
        async def main():
            loop = asyncio.get_running_loop()
            for _ in range(40):
                try:
                    await asyncio.wait_for(loop.getaddrinfo("silent.example", 443), 0.001)
                except TimeoutError:
                    pass
            print(await loop.run_in_executor(None, lambda: "there is a thread"))
        with asyncio.Runner(loop_factory=event_loop.Loop) as runner:
            runner.run(main())
    """
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    assert done.stdout == "there is a thread\n"
    assert time.monotonic() - began < 60


def test_who_is_busy_hears_of_what_arrives():
    """While tasks go on and on, what a socket has is read within a few turns of the loop."""

    async def be_busy_until_heard():
        ours, theirs = socket.socketpair()
        with ours, theirs:
            heard = asyncio.Event()
            asyncio.get_running_loop().add_reader(ours, heard.set)
            theirs.send(b"x")
            turns = 0
            while not heard.is_set():
                await asyncio.sleep(0)
                turns += 1
            asyncio.get_running_loop().remove_reader(ours)
        return turns

    assert run(be_busy_until_heard()) <= event_loop.TURNS_UNASKED + 2


def test_the_kernel_is_not_asked_in_each_turn(monkeypatch):
    asked = []
    select = selectors.EpollSelector.select

    def count_wakes(self, timeout=None):
        asked.append(timeout)
        return select(self, timeout)

    monkeypatch.setattr(selectors.EpollSelector, "select", count_wakes)

    async def be_busy():
        asked.clear()
        for _ in range(10 * (event_loop.TURNS_UNASKED + 1)):
            await asyncio.sleep(0)
        return len(asked)

    assert 9 <= run(be_busy()) <= 11


def test_who_waits_is_not_kept_waiting():
    """The turns without a question do not add up to a wait for something else."""

    async def wait():
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            heard = loop.create_future()
            loop.add_reader(ours, lambda: heard.done() or heard.set_result(None))
            timer = loop.call_later(60, heard.cancel)
            threading.Timer(0.05, theirs.send, [b"x"]).start()
            await heard
            timer.cancel()
            loop.remove_reader(ours)

    run(wait())


def test_work_for_threads_is_done_side_by_side_up_to_the_most():
    most = event_loop.THREADS
    together = threading.Barrier(most)

    async def work():
        loop = asyncio.get_running_loop()
        waits = [loop.run_in_executor(None, together.wait, 60) for _ in range(most)]
        await asyncio.gather(*waits)
        # Further work waits for one of them, and no thread is made.
        more = [loop.run_in_executor(None, threading.get_ident) for _ in range(3 * most)]
        return len(set(await asyncio.gather(*more))), loop._threads._count

    used, count = run(work())
    assert used <= most == count


def test_one_thread_does_what_comes_one_after_the_other():
    async def work():
        loop = asyncio.get_running_loop()
        return {await loop.run_in_executor(None, threading.get_ident) for _ in range(50)}

    assert len(run(work())) == 1


def test_what_a_thread_raises_is_raised_where_it_is_waited_for():
    def fail():
        raise KeyboardInterrupt("of a thread")

    async def work():
        loop = asyncio.get_running_loop()
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(None, lambda: 1 // 0)
        future = loop.run_in_executor(None, fail)
        await asyncio.wait([future])
        assert isinstance(future.exception(), KeyboardInterrupt)
        return await loop.run_in_executor(None, int, "7")

    assert run(work()) == 7


def test_who_gives_up_on_a_thread_does_not_take_it_from_the_others():
    begun, go_on = threading.Event(), threading.Event()

    def wait():
        begun.set()
        go_on.wait(60)

    async def work():
        loop = asyncio.get_running_loop()
        given_up = loop.run_in_executor(None, wait)
        while not begun.is_set():
            await asyncio.sleep(0.001)
        given_up.cancel()
        assert await loop.run_in_executor(None, int, "7") == 7
        go_on.set()
        assert await loop.run_in_executor(None, int, "8") == 8
        assert loop._threads._count == 2

    run(work())


def test_threads_that_cannot_be_had_are_not_counted(monkeypatch):
    """As where the number of processes is limited, for a while."""
    start = threading.Thread.start

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    async def work():
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(threading.Thread, "start", refuse)
        for _ in range(event_loop.THREADS + 1):
            with pytest.raises(OSError, match="no thread for the work: can't start new thread"):
                await loop.run_in_executor(None, int, "1")
            with pytest.raises(OSError, match="cannot be looked up: can't start new thread"):
                await loop.getaddrinfo("localhost", 1)
        monkeypatch.setattr(threading.Thread, "start", start)
        assert await loop.run_in_executor(None, int, "7") == 7
        assert await loop.getaddrinfo("localhost", 1)

        # With one there is, more are no need.
        monkeypatch.setattr(threading.Thread, "start", refuse)
        works = (loop.run_in_executor(None, int, str(number)) for number in range(50))
        assert await asyncio.gather(*works) == list(range(50))

    run(work())


def test_an_executor_that_is_named_is_used():
    async def work():
        with futures.ThreadPoolExecutor(1, "mine") as pool:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(pool, lambda: threading.current_thread().name)

    assert run(work()).startswith("mine")
