import argparse
from pathlib import Path

import pytest

from claimd.common import errors
from claimd.node import config


def test_defaults():
    loaded = config.load({}, {})
    assert loaded == config.Config()
    assert loaded.roots.sys == Path("/sys")


def test_flags_over_environment_over_file_over_defaults(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("node-name: file\nrescan: 10\nlog-level: debug\ninclude: [nvidia, 'amd']\n")
    environment = {"CLAIMD_NODE_NAME": "environment", "CLAIMD_LOG_LEVEL": "error", "HOME": "/root"}
    loaded = config.load({"config": str(file), "node_name": "flag"}, environment)
    assert (loaded.node_name, loaded.log_level, loaded.rescan, loaded.log_format) == (
        "flag",
        "error",
        10.0,
        "auto",
    )
    assert loaded.include == ("nvidia", "amd")


def test_the_file_may_be_named_in_the_environment_and_be_json(tmp_path):
    file = tmp_path / "c.json"
    file.write_text('{"driver-name": "x.example"}')
    assert config.load({}, {"CLAIMD_CONFIG": str(file)}).driver_name == "x.example"


def test_lists_from_text():
    assert config.load({"exclude": "console, 10de:*"}, {}).rules.exclude == ("console", "10de:*")


@pytest.mark.parametrize(
    ("written", "text"), [("true", "true"), ("off", "false"), ("auto", "auto")]
)
def test_a_word_of_a_setting_that_yaml_takes_for_more_than_text(tmp_path, written, text):
    file = tmp_path / "c.yaml"
    file.write_text(f"require-libraries: {written}\n")
    assert config.load({"config": str(file)}, {}).require_libraries == text


def test_garbage_need_not_be_collected():
    assert config.load({"garbage_grace": "0"}, {}).garbage_grace == 0


def test_one_folder_for_all_roots():
    assert config.load({"root": "/tmp/fake"}, {}).roots.proc == Path("/tmp/fake/proc")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("node-nam: x", r"unknown key in .* node-nam; did you mean node-name\?"),
        ("node_name: x", "unknown key .* node_name; did you mean node-name"),
        ("zzz: x", "unknown key .* zzz; known are absent-grace, cdi-dir"),
        ("- a", "must hold keys and values, not a list"),
        ("a: [", "neither YAML nor JSON"),
        ("node-name: 7", "node-name in .*: expected text, got 7: put it in quotes"),
        # To YAML this is a number, in sixties.
        ("exclude: 0000:11:00.0", "list or text with commas, got 660.0: put what is to be text in"),
        ("exclude: [0000:11:00.0]", "text with commas, got \\[660.0\\]: put what is to be text in"),
        ("include: [1]", "expected a list or text with commas"),
        ("rescan: soon", "expected a number of seconds, got 'soon'"),
        ("rescan: true", "expected a number of seconds, got True"),
        ("rescan: [1]", "expected a number of seconds, got \\[1\\]"),
        pytest.param(
            "rescan: 5" + "9" * 400, "number of seconds, got 599", id="larger than floats"
        ),
        pytest.param("rescan: 0x" + "f" * 4000, "more than 1,000 characters", id="hexadecimal"),
        pytest.param("rescan: 1" + ":59" * 200 + ".5", "a value of type float", id="in sixties"),
        ("rescan: 0", "expected 1 to 3600 seconds, got 0"),
        ("garbage-grace: 0.5", "garbage-grace in .*: expected 0 or 1 to 86400 seconds, got 0.5"),
        ("garbage-grace: -1", "expected 0 or 1 to 86400 seconds, got -1"),
        ("garbage-grace: 86401", "expected 0 or 1 to 86400 seconds"),
    ],
)
def test_a_wrong_file_is_refused_by_what_is_wrong(tmp_path, content, message):
    file = tmp_path / "c.yaml"
    file.write_text(content)
    with pytest.raises(errors.UsageError, match=message):
        config.load({"config": str(file)}, {})


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("rescan", 1, 3600),
        ("health_interval", 1, 3600),
        ("absent_grace", 0, 86400),
        ("stop_grace", 0, 3600),
        ("garbage_grace", 1, 86400),
    ],
)
def test_seconds_within_their_range(name, least, most):
    for seconds in (least, least + 0.5, most):
        assert getattr(config.load({name: str(seconds)}, {}), name) == seconds
    for seconds in (least - 0.01, most + 0.01, -5, "nan", "inf"):
        with pytest.raises(
            errors.UsageError, match=f"--{config.key_of(name)}: expected .* seconds"
        ):
            config.load({name: str(seconds)}, {})


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("log_level", config.LEVELS),
        ("log_format", config.FORMATS),
        ("taint_failed", config.EFFECTS),
        ("taint_degraded", config.EFFECTS),
        ("require_libraries", ("auto", "true", "false")),
    ],
)
def test_words_to_choose_from(name, words):
    for word in words:
        assert getattr(config.load({name: word}, {}), name) == word
    for wrong in ("", words[0].upper() + "x"):
        with pytest.raises(errors.UsageError, match=f"expected one of {', '.join(words)}, got"):
            config.load({name: wrong}, {})


@pytest.mark.parametrize("name", ["kubelet_dir", "cdi_dir"])
def test_paths_that_others_know_too_are_absolute(name):
    assert getattr(config.load({name: "/x/y"}, {}), name) == Path("/x/y")
    with pytest.raises(errors.UsageError, match=f"--{config.key_of(name)}: expected an absolute"):
        config.load({name: "x/y"}, {})


@pytest.mark.parametrize("name", ["a", "gpu.claimd.dev", "a-b.c9", "a" * 63])
def test_driver_names(name):
    assert config.load({"driver_name": name}, {}).driver_name == name


@pytest.mark.parametrize("name", ["", "A", "a_b", "-a", "a-", "a..b", ".a", "a.", "a b", "a\n"])
def test_what_is_no_driver_name(name):
    with pytest.raises(errors.UsageError, match="expected a DNS name in lower case"):
        config.load({"driver_name": name}, {})


@pytest.mark.parametrize(
    "endpoint", ["8081", "unix:", "unix:x", "a b:1", "::1:80", ":123456", "h:"]
)
def test_what_is_no_endpoint(endpoint):
    with pytest.raises(errors.UsageError, match="--endpoint: expected ':PORT', 'HOST:PORT' or"):
        config.load({"endpoint": endpoint}, {})


def test_roots_one_by_one():
    given = {"sys_root": "/s", "proc_root": "/p", "dev_root": "/d", "host_root": "/host/"}
    roots = config.load(given, {}).roots
    assert (roots.sys, roots.proc, roots.dev, roots.host) == (
        Path("/s"),
        Path("/p"),
        Path("/d"),
        "/host",
    )
    assert config.load({}, {}).roots.host == ""


def test_flags_show_their_defaults():
    parser = argparse.ArgumentParser()
    config.add_flags(parser, ("node_name", "rescan", "vfio", "include", "cdi_dir"))
    parsed = vars(parser.parse_args(["--rescan", "5"]))
    assert parsed == {"rescan": "5"}, "a flag that was not given leaves no trace"
    shown = " ".join(parser.format_help().split())
    for default in ("(default 60)", "(default false)", "(default /var/run/cdi)"):
        assert default in shown
    assert "--node-name … name of this node in the cluster --cdi-dir" in shown
    assert "--kubeconfig" not in shown
    assert "or 'console' --vfio" in shown, "an empty default is not shown"


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(
        errors.UsageError, match=r"cannot read the configuration file .*: No such file"
    ):
        config.load({"config": str(tmp_path / "none")}, {})


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (
            {"CLAIMD_NODENAME": "x"},
            r"unknown environment variable CLAIMD_NODENAME; did you mean CLAIMD_NODE_NAME\?",
        ),
        ({"CLAIMD_node_name": "x"}, "unknown environment variable CLAIMD_node_name"),
        (
            {"CLAIMD_LOG_LEVEL": "loud"},
            "CLAIMD_LOG_LEVEL: expected one of debug, info, warning, error, got 'loud'",
        ),
        ({"CLAIMD_DRIVER_NAME": "GPU"}, "CLAIMD_DRIVER_NAME: expected a DNS name in lower case"),
        ({"CLAIMD_DRIVER_NAME": "a" * 64}, "at most 63"),
        (
            {"CLAIMD_VFIO": "yes"},
            "environment variable CLAIMD_VFIO: expected true or false, got 'yes'",
        ),
        ({"CLAIMD_CDI_DIR": "cdi"}, "expected an absolute path, got cdi"),
        ({"CLAIMD_ENDPOINT": "8081"}, "expected ':PORT', 'HOST:PORT' or 'unix:/PATH', got '8081'"),
    ],
)
def test_a_wrong_environment_is_refused_by_what_is_wrong(environment, message):
    with pytest.raises(errors.UsageError, match=message):
        config.load({}, environment)


@pytest.mark.parametrize("endpoint", [":8081", "127.0.0.1:80", "[::1]:80", "unix:/run/x.sock", ""])
def test_endpoints(endpoint):
    assert config.load({"endpoint": endpoint}, {}).endpoint == endpoint


def test_switches(tmp_path):
    file = tmp_path / "claimd.yaml"
    file.write_text("vfio: true\n")
    assert config.load({"config": str(file)}, {}).rules.vfio is True
    assert config.load({"vfio": "false", "config": str(file)}, {}).vfio is False
    assert config.load({}, {"CLAIMD_NUMA_LIST": "True"}).numa_list is True
    assert config.load({}, {}).rules.vfio is False
    bound = config.load({}, {"CLAIMD_VFIO_BIND": "0000:41:00.0, 10de:*"}).rules.vfio_bind
    assert bound == ("0000:41:00.0", "10de:*")


@pytest.mark.parametrize(
    ("given", "refuses"),
    [
        ({}, True),
        ({"root": "/tmp/fake"}, False),
        ({"require_libraries": "true", "root": "/tmp/fake"}, True),
        ({"require_libraries": "false"}, False),
    ],
)
def test_whether_a_gpu_without_libraries_is_refused(given, refuses):
    assert config.load(given, {}).refuses_without_libraries is refuses


@pytest.mark.parametrize("root", ["", "/tmp/fake"])
def test_the_drivers_root_holds_whatever_the_other_roots_are(root):
    given = {"root": root, "nvidia_driver_root": "/run/nvidia/driver"}
    assert config.load(given, {}).roots.nvidia_driver == "/run/nvidia/driver"


@pytest.mark.parametrize("name", ["nvidia_driver_root", "library_hook_dir"])
def test_paths_of_the_host_are_absolute_or_not_given(name):
    for path in ("", "/", "/x/y"):
        assert getattr(config.load({name: path}, {}), name) == path
    expected = f"--{config.key_of(name)}: expected an absolute path of the host, got x/y"
    with pytest.raises(errors.UsageError, match=expected):
        config.load({name: "x/y"}, {})


def test_both_endpoints_are_looked_at():
    assert config.load({"metrics_endpoint": ":8082"}, {}).metrics_endpoint == ":8082"
    with pytest.raises(errors.UsageError, match="--metrics-endpoint: expected ':PORT'"):
        config.load({"metrics_endpoint": "8082"}, {})


def test_the_longest_driver_name():
    with pytest.raises(errors.UsageError, match="at most 63 characters"):
        config.load({"driver_name": "a" * 64}, {})


def test_a_default_that_is_wrong_is_named_as_the_setting():
    wrong = config.Config(rescan=0.0)
    with pytest.raises(errors.UsageError, match="^rescan: expected 1 to 3600 seconds, got 0$"):
        config._check(wrong, {})


def test_an_empty_file_gives_nothing(tmp_path):
    (tmp_path / "c.yaml").write_text("# nothing yet\n")
    assert config.load({"config": str(tmp_path / "c.yaml")}, {}) == config.Config()


def test_items_without_a_word_are_left_out():
    assert config.load({"include": " amd,, intel ,"}, {}).include == ("amd", "intel")
    assert config.load({"include": ("amd", " ")}, {}).include == ("amd",)


def test_every_setting_is_a_flag_unless_some_are_chosen():
    parser = argparse.ArgumentParser()
    config.add_flags(parser)
    assert vars(parser.parse_args([])) == {}
    flags = [word for setting in config.NAMES for word in (f"--{config.key_of(setting)}", "x")]
    given = vars(parser.parse_args(["--config", "file", *flags]))
    assert given == dict.fromkeys(config.NAMES, "x") | {"config": "file"}


def test_what_a_file_without_a_text_holds_is_shown(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("vfio: 1\n")
    with pytest.raises(errors.UsageError, match="vfio in .*: expected true or false, got 1"):
        config.load({"config": str(file)}, {})
    file.write_text("log-level: null\n")
    with pytest.raises(errors.UsageError, match="log-level in .*: expected text, got None"):
        config.load({"config": str(file)}, {})
    file.write_text("include: {a: b}\n")
    with pytest.raises(errors.UsageError, match="expected a list or text with commas"):
        config.load({"config": str(file)}, {})


def test_the_environment_of_the_process_counts(monkeypatch):
    monkeypatch.setenv("CLAIMD_NODE_NAME", "from-the-process")
    assert config.load({}).node_name == "from-the-process"
