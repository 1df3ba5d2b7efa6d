"""Trees of fake GPUs, and their faults, from the command line."""


def test_fake_refuses_a_folder_that_is_not_its_own(claimd, tmp_path):
    (tmp_path / "precious").touch()
    code, _, err = claimd("fake", str(tmp_path), "nvidia:h100")
    assert code == 2
    assert "neither empty nor a fake tree" in err
    assert (tmp_path / "precious").exists()


def test_fake_refuses_an_unknown_model_and_names_the_known(claimd, tmp_path):
    code, _, err = claimd("fake", str(tmp_path / "t"), "nvidia:h1000")
    assert code == 2
    assert "nvidia:h100" in err
