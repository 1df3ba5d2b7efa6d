"""The exit codes and streams of the probe, which a kubelet reads."""

import socket
import threading

import pytest


def test_nobody_there_is_a_no(claimd):
    code, out, err = claimd("probe", "live", "--endpoint", "unix:/nowhere/e.sock")
    assert (code, out) == (1, "")
    assert err.startswith("no answer at unix:/nowhere/e.sock: No such file or directory; is")


def test_the_endpoint_comes_from_the_environment(claimd, monkeypatch):
    monkeypatch.setenv("CLAIMD_ENDPOINT", "unix:/nowhere/other.sock")
    assert "/nowhere/other.sock" in claimd("probe", "ready")[2]


def test_without_an_endpoint_nobody_can_be_asked(claimd, monkeypatch):
    monkeypatch.delenv("CLAIMD_ENDPOINT", raising=False)
    code, out, err = claimd("probe", "live")
    assert (code, out) == (2, "")
    assert "endpoint is not set; give the one that `claimd run` has" in err


@pytest.mark.parametrize(
    ("question", "status", "answer"),
    [("live", "200 OK", (0, "it is fine\n", "")), ("ready", "503 No", (1, "", "it is fine\n"))],
)
def test_the_answer_is_the_exit_code_and_the_words(claimd, tmp_path, question, status, answer):
    path, requests = str(tmp_path / "e"), []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(1)

        def serve():
            connection, _ = listener.accept()
            with connection:
                requests.append(connection.recv(4096).split(b" ")[1])
                connection.sendall(f"HTTP/1.0 {status}\r\n\r\nit is fine\n".encode())

        thread = threading.Thread(target=serve)
        thread.start()
        assert claimd("probe", question, "--endpoint", f"unix:{path}") == answer
        thread.join(30)
    assert requests == [f"/{question}z".encode()]
