"""Hypothesis strategies for documents of any class, made from its field table; and a document
without some paths.
"""

import copy
import functools
import re

from hypothesis import strategies as st

from claimd.kubernetes.api.objects.shapes import Shape, fields_of

WORDS = st.text("abz09-", min_size=1, max_size=4)
NAMES = st.text("abz./", min_size=1, max_size=4)
QUANTITIES = st.sampled_from(["1", "80Gi", "500m", "1e3"])
FREE = st.dictionaries(
    WORDS,
    st.one_of(st.none(), st.integers(), WORDS, st.lists(st.booleans(), max_size=2)),
    max_size=2,
)


def documents(cls):
    """Valid plain data of the class: required fields, one of several, choices, keys."""
    return struct(cls).filter(lambda document: not cls.from_dict(document).problems())


@functools.cache
def struct(cls):
    fields = fields_of(cls)
    groups = getattr(cls, "one_of", ())
    grouped = {name for group in groups for name in group}

    @st.composite
    def draw_one(draw):
        wanted = {name for name, f in fields.items() if f.required}
        wanted |= {draw(st.sampled_from(group)) for group in groups}
        wanted |= {name for name in fields if name not in grouped and draw(st.booleans())}
        return {name: draw(special(name, fields[name].shape)) for name in fields if name in wanted}

    return draw_one()


def special(name: str, shape: Shape):
    if name == "allNodes":
        return st.just(True)  # false means absent in the older versions
    return value(shape)


def value(shape: Shape):
    if shape.kind == "struct":
        return struct(shape.struct)
    if shape.kind == "list":
        items = value(shape.item)
        if shape.keys:
            return st.lists(
                items,
                max_size=2,
                unique_by=lambda item: tuple(item.get(key, "") for key in shape.keys),
            )
        return (
            st.lists(items, max_size=2, unique=True)
            if shape.unique
            else st.lists(items, max_size=2)
        )
    if shape.kind == "map":
        return st.dictionaries(NAMES, value(shape.item), max_size=2)
    if shape.choices:
        return st.sampled_from(shape.choices)
    return {
        "string": WORDS,
        "quantity": QUANTITIES,
        "integer": st.integers(0, 9),
        "boolean": st.booleans(),
        "any": FREE,
    }[shape.kind]


def without(document, paths):
    """The document less what lies at these paths, as notes and problems write them."""
    left = copy.deepcopy(document)
    for path in paths:
        steps = [
            name or key
            for name, key in re.findall(r"\.?([^.\[\]]+)(?![^\[]*\])|\[([^\]]*)\]", path)
        ]
        place = left
        for step in steps[:-1]:
            place = place[int(step)] if isinstance(place, list) else place[step]
        del place[steps[-1]]
    return left
