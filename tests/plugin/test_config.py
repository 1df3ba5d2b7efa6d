from pathlib import Path

import pytest

from plugin import config, errors


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
        ("node-name: 7", "node-name in .*: expected text, got 7"),
        ("include: [1]", "expected a list or text with commas"),
        ("rescan: soon", "expected a number of seconds, got 'soon'"),
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
