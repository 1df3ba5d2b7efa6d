"""What docs/ and the README promise: tables are those of the code, commands exist and print what
the pages say, links lead somewhere.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs import common, pages, tables

PAGES = [page.relative_to(pages.ROOT).as_posix() for page in pages.pages()]
# Pages of the index that are not there yet.
BEING_WRITTEN: set[str] = set()
# The tables of these pages are made from many fake machines.
LONG = {"docs/attributes.md", "docs/taints.md"}
MARKED = [pytest.param(page, marks=pytest.mark.slow) if page in LONG else page for page in PAGES]
RUN_PAGES = [page for page in PAGES if any(pages.console_blocks((pages.ROOT / page).read_text()))]


@pytest.mark.parametrize("page", MARKED)
def test_generated_tables_are_those_of_the_code(page: str) -> None:
    text = (pages.ROOT / page).read_text()
    begun = re.findall(r"^<!-- generated:", text, re.M)
    assert len(begun) == len(pages.GENERATED.findall(text)), (
        "each `<!-- generated: NAME -->` needs its `<!-- end -->`"
    )
    assert pages.regenerated(text) == text, "run `make docs`"


def test_every_table_stands_on_a_page() -> None:
    texts = "".join((pages.ROOT / page).read_text() for page in PAGES)
    unused = [name for name in tables.TABLES if f"<!-- generated: {name} -->" not in texts]
    assert unused == []


def test_a_name_without_words_is_refused() -> None:
    with pytest.raises(
        common.Incomplete,
        match=r"add \['weight'\], remove \['carveOut', 'shares', 'computeUnits', ",
    ):
        common.described("capacities", ["memory", "weight"])


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_claimd_exist_with_their_flags(page: str) -> None:
    refused = {
        command: why
        for command in pages.claimd_commands((pages.ROOT / page).read_text())
        if (why := pages.refusal(command))
    }
    assert refused == {}


def test_a_flag_that_does_not_exist_is_found() -> None:
    text = "```sh\nclaimd devices --colour red\n```\nand `claimd inspect`"
    refused = [pages.refusal(command) for command in pages.claimd_commands(text)]
    assert "unrecognized arguments: --colour red" in refused[0]
    assert "invalid choice: 'inspect'" in refused[1]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", RUN_PAGES)
def test_commands_print_what_the_page_says(page: str, tmp_path: Path) -> None:
    pages.furnish(tmp_path)
    for _, steps in pages.console_blocks((pages.ROOT / page).read_text()):
        for step in steps:
            seen = pages.run(step, tmp_path)
            assert pages.agrees(step.output, seen), f"$ {step.command}\n{seen}\nrun `make docs`"


def test_python_prints_what_the_page_says() -> None:
    text = pages.PYTHON_PAGE.read_text()
    blocks = [block for block in pages.python_blocks(text) if not block.needs_client]
    assert len(blocks) > 8
    for block, printed in zip(blocks, pages.run_python(blocks), strict=True):
        assert pages.agrees(block.output, printed), f"{block.code}\n{printed}\nrun `make docs`"


@pytest.mark.parametrize("page", PAGES)
def test_no_line_of_prose_is_too_long(page: str) -> None:
    assert pages.long_lines((pages.ROOT / page).read_text()) == []


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    dead = [link for link in pages.dead_links(pages.ROOT / page) if link not in BEING_WRITTEN]
    assert dead == []


def test_the_index_has_every_page() -> None:
    index = (pages.ROOT / "docs/README.md").read_text()
    listed = set(re.findall(r"\]\(([\w-]+\.md)", index))
    there = {path.name for path in (pages.ROOT / "docs").glob("*.md")} - {"README.md"}
    assert listed - there <= BEING_WRITTEN
    assert there <= listed


def test_verbs_and_places_that_pages_name_are_there() -> None:
    makefile = (pages.ROOT / "Makefile").read_text()
    missing = set()
    for page in PAGES:
        text = (pages.ROOT / page).read_text()
        for verb in re.findall(r"`make ([a-z-]+)", text):
            if not re.search(rf"^{verb}:", makefile, re.M):
                missing.add(f"{page}: make {verb}")
        without_addresses = re.sub(r"https?://\S+", "", text)
        for place in re.findall(r"\b(?:deploy|tests)/[\w./-]*\w", without_addresses):
            # Acme is the vendor that new-vendor.md makes up.
            if "acme" not in place and not (pages.ROOT / place).exists():
                missing.add(f"{page}: {place}")
    assert missing == set()


def test_commands_are_found_where_they_are() -> None:
    commands = [c for page in PAGES for c in pages.claimd_commands((pages.ROOT / page).read_text())]
    assert len(commands) > 80


COMMANDS = ("claimd devices", "kubectl ", "df ", "modprobe ", "systemctl ")
# What troubleshooting quotes of others: the kubelet, the API server, the container's shell.
OTHERS_SAY = {
    "DRA driver gpu.claimd.dev is not registered",
    "UNAVAILABLE",
    "connection refused",
    "Operation not permitted",
    'cannot create resource "resourceslices"',
}


def test_messages_that_troubleshooting_quotes_are_those_of_the_program() -> None:
    text = pages.FENCE.sub("", (pages.ROOT / "docs/troubleshooting.md").read_text())
    quoted = [
        span
        for row in re.findall(r"^\| .*$", text, re.M)
        for span in re.findall(r"`([^`]+)`", row)
        if " " in span and span not in OTHERS_SAY and not span.startswith(COMMANDS)
    ]
    assert len(quoted) > 30

    said = pages.strings_of_the_program()
    unknown = [span for span in quoted if not pages.is_said(span, said)]
    assert unknown == []
