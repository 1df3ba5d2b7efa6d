"""Stories are checked before they run, and an error names its place in the story."""

import re
from pathlib import Path
from typing import get_args

import pytest

from claimd.common import errors
from claimd.sim.demo import facts, story
from claimd_devices import faults

HEAD = """
title: A story
nodes:
  - {name: one, gpus: ["nvidia:h100=2"], settings: {health-interval: 1}}
settings: {taint-failed: NoExecute}
chapters:
  - title: First
    steps:
"""


def parse(*steps):
    return story.parse(HEAD + "".join(f"      - {step}\n" for step in steps), "mine.yaml")


def test_a_story_with_a_step_of_each_kind():
    told = parse(
        "say: Look.",
        "apply: [{apiVersion: v1, kind: Pod, metadata: {name: a}}]",
        "{wait: pod/a, until: {status.phase: Running}, keep: {gpu: status.x}, tell: 'got ${gpu}'}",
        "{wait: pod, where: {metadata.name: a}, until: gone}",
        "fault: one wedge ${gpu}",
        "{kill: one, during: prepare}",
        "stop: one",
        "start: one",
        "{logs: a, contains: [CLAIMD]}",
        "{run: claimd explain a, lines: 'node .*'}",
        "{show: resourceclaim/a, path: status.devices}",
        "delete: pod/a",
    )
    assert [story.verb(step) for step in told.chapters[0].steps] == [
        *(
            "say",
            "apply",
            "wait",
            "wait",
            "fault",
            "kill",
            "stop",
            "start",
            "logs",
            "run",
            "show",
            "delete",
        )
    ]
    waits = told.chapters[0].steps[2]
    assert (waits.kind, waits.name, waits.within) == ("pod", "a", 20)
    fault = story.fill(told.chapters[0].steps[4], {"gpu": "gpu-1"})
    assert fault.fault == "one wedge gpu-1"
    assert story.fill(waits, {"other": "x"}).tell == "got ${gpu}"


def test_settings_are_those_of_a_config_file():
    settings = "{share: ['*=memory', 'amd=shares:4'], include: nvidia, vfio: true, rescan: 5}"
    written = f"{{title: a, nodes: [{{name: a, gpus: [], settings: {settings}}}]}}"
    (node,) = story.parse(written, "mine.yaml").nodes
    assert story.as_variables(node.settings) == {
        "share": "*=memory,amd=shares:4",
        "include": "nvidia",
        "vfio": "true",
        "rescan": "5",
    }


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (
            "aply: []",
            r"mine.yaml, chapter 1 \(First\), step 1: unknown step: aply; did you mean apply\?",
        ),
        ("dance: one", "unknown step: dance; known are say, apply, delete, wait"),
        ("{say: a, stop: one}", "several steps in one: say, stop"),
        ("just text", "expected keys and values, got just text"),
        ("{wait: pod, untill: {}}", r"step 1 \(wait\): .*untill"),
        ("{wait: pod, within: soon}", r"Expected `float`, got `str` - at `\$.within`"),
        ("{wait: pod, until: {a..b: 1}}", "'a..b' is no path"),
        ("{wait: pod, until: {a: {is: 1}}}", "a: is is not one of equals"),
        ("{wait: pod, until: gone, keep: {a: b}}", "what is gone cannot be kept"),
        ("fault: one wedge", "'one wedge' is no fault: expected NODE FAULT DEVICE"),
        ("fault: one melt gpu-1", "with a fault of unplug, plug, wedge"),
        ("fault: two wedge gpu-1", "no node 'two'; the story has one"),
        ("kill: two", "no node 'two'"),
        ("{kill: one, during: lunch}", "during"),
        ("run: rm -rf", "stories run nothing else"),
        ("{logs: p, lines: 'a{99999999999}'}", "is no regular expression: the repetition number"),
        (f"{{logs: p, lines: '{'(' * 2000}'}}", r"lines: '\(+\.\.\.' is no regular expression"),
        ("delete: pod", "'pod' is not KIND/NAME"),
        ("apply: [{kind: Pod}]", "an object has an apiVersion, a kind and metadata"),
        ("fault: one wedge ${gpu}", "nothing was kept as gpu before"),
        ("{logs: a, lines: '('}", r"lines: '\(' is no regular expression: missing \)"),
        ("{run: claimd devices, lines: '*'}", "is no regular expression: nothing to repeat"),
        ("run: claimd 'x", "No closing quotation"),
        (
            "apply: [{apiVersion: v1, kind: Pod, metadata: {name: 5}}]",
            "metadata.name of an object is text, got 5",
        ),
        (
            "apply: [{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: 5}}]",
            "metadata.namespace of an object is text, got 5",
        ),
    ],
)
def test_a_bad_step_is_told_with_its_place(step, said):
    with pytest.raises(errors.UsageError, match=said):
        parse(step)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("title: [", "mine.yaml"),
        ("nodes: []", "missing required field `title`"),
        ("{title: a, nodes: []}", "a story needs a node"),
        (
            "{title: a, nodes: [{name: a, gpus: [h100]}]}",
            "model: 'h100' is unknown, did you mean nvidia:h100",
        ),
        (
            "{title: a, nodes: [{name: a, gpus: []}, {name: a, gpus: []}]}",
            "two nodes have the same name",
        ),
        (
            "{title: a, nodes: [{name: a, gpus: []}], chapters: [{steps: []}]}",
            "expected a title and a list of steps",
        ),
        ("{title: a, nodes: [{name: a, gpus: []}], acts: []}", "unknown field `acts`"),
        (
            "{title: a, nodes: [{name: a, gpus: ['nvidia:l4=99999999999']}]}",
            "count: '99999999999' is not at most 4096",
        ),
        (
            "{title: a, needs: DRATaints, nodes: [{name: a, gpus: []}]}",
            "no release here has the feature 'DRATaints'; there are .*DRADeviceTaints",
        ),
        (
            "{title: a, nodes: [{name: a, gpus: []}], chapters: [{title: b, lacks: X, steps: []}]}",
            "mine.yaml, chapter 1: no release here has the feature 'X'",
        ),
        (
            "{title: a, nodes: [{name: a, gpus: []}], settings: {reskan: 5}}",
            "`claimd run` has no setting 'reskan'",
        ),
        (
            "{title: a, nodes: [{name: a, gpus: [], settings: {reskan: 5}}]}",
            "`claimd run` has no setting 'reskan'",
        ),
        (
            "{title: a, nodes: [{name: a, gpus: []}], settings: {share: ['a,b']}}",
            "share: 'a,b' has a comma: write two entries",
        ),
        (
            "{title: a, nodes: [{name: a, gpus: []}], settings: {share: [5]}}",
            r"Expected `str`, got `int` - at `\$.settings",
        ),
    ],
)
def test_a_bad_story_is_told(written, said):
    with pytest.raises(errors.UsageError, match=said):
        story.parse(written, "mine.yaml")


CHAPTERS = """
title: A story
nodes: [{name: one, gpus: []}]
chapters:
  - {title: With, needs: DRADeviceTaints, steps: [{wait: pod, keep: {name: metadata.name}}]}
  - {title: Without, lacks: DRADeviceTaints, steps: [{say: a}]}
  - {title: Both, steps: [{say: SAID}]}
"""


def test_a_story_is_told_as_a_release_allows():
    told = story.parse(CHAPTERS, "mine.yaml")
    assert [chapter.title for chapter in story.fit(told, "1.37").chapters] == ["With", "Both"]
    left_out, without, _ = story.fit(told, "1.34").chapters
    assert left_out.left_out == "Kubernetes 1.34 has DRADeviceTaints off"
    assert (without.title, without.left_out) == ("Without", "")

    with pytest.raises(
        errors.UsageError, match="needs the feature DRAConsumableCapacity, which is"
    ):
        story.fit(story.load("sharing"), "1.34")


def test_what_a_chapter_keeps_that_may_be_left_out_is_not_there_later():
    with pytest.raises(errors.UsageError, match=r"chapter 3 \(Both\).* nothing was kept as name"):
        story.parse(CHAPTERS.replace("SAID", "'${name}'"), "mine.yaml")


def test_the_words_of_earlier_releases_are_still_read():
    told = parse("order: one wedge gpu-1", "{kill: one, during: prepare}", "struck: one")
    fault, _, killed = told.chapters[0].steps
    assert (story.verb(fault), fault.fault) == ("fault", "one wedge gpu-1")
    assert (story.verb(killed), killed.killed) == ("killed", "one")


def test_stories_come_by_name_or_file(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("{title: a, nodes: [{name: a, gpus: []}]}")
    assert story.load(str(file)).title == "a"
    with pytest.raises(
        errors.UsageError,
        match="no story 'nowhere': No such file or directory; give a file, or one",
    ):
        story.load("nowhere")


def test_the_page_about_stories_is_true():
    page = (Path(__file__).resolve().parents[4] / "docs" / "stories.md").read_text()
    (example,) = re.findall(r"```yaml\n(.*?)```", page, re.S)
    told = story.parse(example, "docs/stories.md")
    assert [story.verb(step) for step in told.chapters[0].steps] == ["say", "wait", "fault", "wait"]
    described = set(
        re.findall(r"`([a-z]+): ", page.partition("## Steps")[2].partition("## Facts")[0])
    )
    assert set(story.STEPS) <= described
    assert set(story.STEPS.values()) == set(get_args(story.Step))
    for word in facts.OPERATORS:
        assert f"{{{word}: " in page
    for order in faults.FAULTS:
        assert order in page


def test_the_stories_that_come_with_it_are_sound():
    assert story.DEFAULT in story.names()
    for name in story.names():
        told = story.load(name)
        assert told.about
        assert told.chapters
