"""Exit codes and streams of the probe, as a kubelet reads them."""


def test_nobody_there_is_a_no(claimd):
    code, out, err = claimd("probe", "live", "--endpoint", "unix:/nowhere/e.sock")
    assert (code, out) == (1, "")
    assert err.startswith("no answer at unix:/nowhere/e.sock: No such file or directory; is")


def test_the_endpoint_comes_from_the_environment(claimd, monkeypatch):
    monkeypatch.setenv("CLAIMD_ENDPOINT", "unix:/nowhere/other.sock")
    assert "/nowhere/other.sock" in claimd("probe", "ready")[2]
