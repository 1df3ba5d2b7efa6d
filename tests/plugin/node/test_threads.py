"""A process that lacks a thread: it ends with a sentence."""

import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

from claimd.node import threads


def run(code):
    """Runs code in a process of its own; returns its exit code and what it printed."""
    start = """
        import logging, sys, threading, time
        from claimd.node import threads
        logging.basicConfig(stream=sys.stdout, format="%(message)s")
        threads.end_if_one_dies()
    """
    script = textwrap.dedent(start) + textwrap.dedent(code)
    ended = subprocess.run(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return ended.returncode, ended.stdout


def test_a_process_with_enough_threads_has_none_left_afterwards():
    before = threading.active_count()
    threads.check_enough()
    assert threading.active_count() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user without processes")
@pytest.mark.parametrize(("limit", "code"), [(1, 3), (8, 3), (64, 0)])
def test_a_process_that_may_not_have_them_is_refused(limit, code):
    ended, output = run(f"""
        import os, resource
        resource.setrlimit(resource.RLIMIT_NPROC, ({limit}, {limit}))
        os.setresuid(54321, 54321, 54321)
        try:
            threads.check_enough()
        except threads.errors.Fatal as error:
            print(error)
            sys.exit(3)
    """)
    assert ended == code
    refusal = f"this process could start only {limit - 1} of 32 threads: can't start new thread; "
    assert output.startswith(refusal) is (code == 3)


@pytest.mark.parametrize("error", ["MemoryError", "ValueError('x')"])
def test_a_thread_that_dies_ends_the_process(error):
    code, output = run(f"""
        def work():
            raise {error}
        threading.Thread(target=work, name="needed").start()
        time.sleep(60)
    """)
    assert code == threads.FAILED
    name = error.removesuffix("('x')")
    assert output.startswith(
        f"the thread needed has died, and claimd cannot go on without it: {name}"
    )


def test_a_lost_memory_error_ends_the_process():
    code, output = run("""
        class Odd:
            def __del__(self):
                raise MemoryError
        Odd()
        time.sleep(60)
    """)
    assert code == threads.FAILED
    assert "the thread MainThread has lost an error" in output


def test_a_crash_shows_where_it_was():
    code, output = run("""
        import os, signal
        def start_of_grpc():
            os.kill(os.getpid(), signal.SIGSEGV)
        start_of_grpc()
    """)
    assert code == -signal.SIGSEGV
    assert output.startswith("Fatal Python error: Segmentation fault")
    assert "in start_of_grpc" in output


@pytest.mark.parametrize(
    ("thread", "code"), [("Thread-1 (_poll_wrapper)", threads.FAILED), ("disk", 0)]
)
def test_another_lost_error_matters_only_in_grpcs_thread(thread, code):
    ended, output = run(f"""
        class Odd:
            def __del__(self):
                raise ValueError("odd")
        thread = threading.Thread(target=lambda: Odd() and None, name="{thread}")
        thread.start()
        thread.join()
    """)
    assert ended == code
    assert "odd" in output


def test_a_log_that_fails_does_not_keep_the_process_alive():
    code, _ = run("""
        class Full(logging.Handler):
            def emit(self, record):
                raise MemoryError
        logging.getLogger().addHandler(Full())
        def work():
            raise ValueError
        threading.Thread(target=work).start()
        time.sleep(20)
    """)
    assert code == threads.FAILED


def test_a_mistake_of_ours_is_no_lack_of_threads(monkeypatch):
    def start(*_):
        raise KeyError("a bug")

    monkeypatch.setattr(threads._thread, "start_new_thread", start)
    with pytest.raises(KeyError, match="a bug"):
        threads.check_enough()
