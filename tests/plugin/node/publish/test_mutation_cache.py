"""Our own writes over an informer that lags: until when they count, and what ends that."""

from typing import Any

import pytest

from claimd.node.publish.mutation_cache import MutationCache


def version(number: int) -> dict[str, Any]:
    return {"metadata": {"name": "s", "resourceVersion": str(number)}}


def test_a_write_counts_until_the_informer_shows_it_or_for_a_minute():
    cache = MutationCache()
    with cache.writing("s", version(1), {"s": version(1)}):
        cache.on_answer("s", version(2), until=60.0)
    with cache.writing("s", version(2), {"s": version(1)}):
        cache.on_answer("s", version(3), until=61.0)
    for lagging in (1, 2):
        cache.observe({"s": version(lagging)})
        assert cache.overlay({"s": version(lagging)}, 60.9) == {"s": version(3)}
    assert cache.deadlines() == [61.0]
    assert cache.overlay({"s": version(1)}, 61.0) == {"s": version(1)}
    assert cache.deadlines() == []


@pytest.mark.parametrize("shown", [3, 4])
def test_an_informer_that_has_caught_up_is_believed(shown: int):
    cache = MutationCache()
    with cache.writing("s", version(2), {"s": version(2)}):
        cache.on_answer("s", version(3), until=60.0)
    cache.observe({"s": version(shown)})
    assert cache.overlay({"s": version(shown)}, 1.0) == {"s": version(shown)}
    assert cache.overlay({}, 1.0) == {}  # and then it was deleted


def test_an_event_that_overtakes_the_answer_to_its_write_counts():
    cache = MutationCache()
    with cache.writing("s", None, {}):
        cache.observe({"s": version(1)})  # created
        cache.observe({})  # and deleted by somebody, before we have the answer
        cache.on_answer("s", version(1), until=60.0)
    assert cache.overlay({}, 1.0) == {}


def test_a_deletion_counts_until_the_informer_shows_it():
    cache = MutationCache()
    with cache.writing("s", version(1), {"s": version(1)}):
        cache.on_answer("s", None, until=60.0)
    assert cache.overlay({"s": version(1)}, 1.0) == {}
    with cache.writing("s", None, {"s": version(1)}):
        cache.on_answer("s", version(3), until=60.0)
    cache.observe({})  # the deletion has come, the creation has not
    assert cache.overlay({}, 1.0) == {"s": version(3)}


def test_what_is_shown_after_an_older_version_counts_as_somebody_elses():
    """Only versions from before the write lag; whatever else is shown came after it."""
    cache = MutationCache()
    with cache.writing("s", version(2), {"s": version(1)}):
        cache.on_answer("s", version(3), until=60.0)
    for lagging in (1, 2):
        cache.observe({"s": version(lagging)})
        assert cache.overlay({"s": version(lagging)}, 1.0) == {"s": version(3)}
    cache.observe({"s": version(9)})
    assert cache.overlay({"s": version(9)}, 1.0) == {"s": version(9)}


def test_a_write_without_an_answer_leaves_nothing():
    cache = MutationCache()
    with pytest.raises(TimeoutError), cache.writing("s", version(1), {"s": version(1)}):
        raise TimeoutError
    cache.observe({"s": version(2)})
    assert cache.overlay({"s": version(2)}, 1.0) == {"s": version(2)}
    assert cache.deadlines() == []


def test_other_objects_are_shown_as_they_are():
    cache = MutationCache()
    with cache.writing("s", None, {}):
        cache.on_answer("s", version(5), until=60.0)
    other = {"metadata": {"name": "other", "resourceVersion": "7"}}
    assert cache.overlay({"other": other}, 1.0) == {"other": other, "s": version(5)}


def test_between_writes_no_versions_are_collected():
    cache = MutationCache()
    cache.observe({"s": version(1)})
    with cache.writing("s", version(1), {"s": version(1)}):
        cache.on_answer("s", version(2), until=60.0)
    for number in range(2, 100):
        cache.observe({"s": version(number)})
    assert len(cache._shown) == 1
