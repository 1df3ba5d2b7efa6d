"""`claimd sim -- COMMAND`: the command's exit code, and nothing left behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SIM = [sys.executable, "-m", "claimd", "sim"]


def run(*words):
    return subprocess.run([*SIM, *words], capture_output=True, text=True, timeout=120, check=False)


def alive(pid):
    """Returns True if the process runs; a zombie does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.slow
def test_the_exit_code_is_the_commands_and_what_it_left_is_ended():
    """This includes a process in another session and environment that ignores SIGTERM."""
    script = """
        env -i setsid sh -c 'trap "" TERM; echo $$; exec 1>&-; while :; do sleep 100; done' &
        setsid sleep 1000 > /dev/null & echo $!
        echo $KUBECONFIG
        test -r $KUBECONFIG || exit 1
        sleep 0.1  # both have begun
        exit 7
    """
    done = run("--", "sh", "-c", script, "--", "-x")
    assert (done.returncode, done.stderr) == (7, "")
    *pids, kubeconfig = sorted(done.stdout.split())
    kubeconfig, pids = (
        (kubeconfig, pids) if "/" in kubeconfig else (pids[0], [*pids[1:], kubeconfig])
    )
    assert len(pids) == 2
    assert not any(alive(int(pid)) for pid in pids)
    assert not Path(kubeconfig).parent.exists()


@pytest.mark.slow
def test_a_command_that_is_not_there():
    assert run("--", "no-such-command").returncode == 127
    done = run("--", "/etc/hostname")
    assert done.returncode == 126
    assert done.stderr.startswith("claimd: /etc/hostname: ")


@pytest.mark.slow
def test_a_signal_is_handed_on_and_told_as_a_shell_tells_it():
    with subprocess.Popen(
        [*SIM, "--", "sh", "-c", "echo up; exec sleep 1000"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "up\n"
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM


@pytest.mark.slow
def test_nodes_with_claimd_and_nodes_for_other_drivers():
    script = "ls $SIM_FOLDER/b/kubelet; claimd explain --pending; echo $?"
    claimd = Path(sys.executable).with_name("claimd")
    done = run(
        *("--node", "a=nvidia:l4=2", "--node", "b"),
        *("--", "sh", "-c", script.replace("claimd explain", f"{claimd} explain")),
    )
    assert done.returncode == 0, done.stderr
    assert {"plugins", "plugins_registry"} <= set(done.stdout.split())
    assert done.stdout.endswith("\n0\n")
