"""Each command of the pages that people type has its story on the rig, or a reason why it has none."""

import pytest

from tests.cluster import typed


@pytest.mark.parametrize("page", typed.PAGES)
def test_each_command_is_typed_or_has_a_reason(page):
    told = set(typed.STORIES[page]) | typed.NOT_TYPED.keys()
    assert [command for command in typed.commands(page) if command not in told] == []


@pytest.mark.slow
@pytest.mark.parametrize("page", typed.PAGES)
def test_what_is_typed_is_on_the_page_as_it_stands(page):
    on_page = typed.commands(page)
    assert [command for command in typed.STORIES[page] if command not in on_page] == []


def test_no_reason_is_left_over():
    every = {command for page in typed.PAGES for command in typed.commands(page)}
    typed_somewhere = {command for story in typed.STORIES.values() for command in story}
    assert typed.NOT_TYPED.keys() - every == set()
    assert typed.NOT_TYPED.keys() & typed_somewhere == set()
