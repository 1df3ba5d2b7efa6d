"""Random regular expressions, some of them damaged, and texts that they are put to."""

import random

TEXTS = (
    "", "a", "ab", "abc", "aab b", "xyz\nab", "AaBb", "a1 b2_c", "a.b-é é9", "cab\n\nA",
)  # fmt: skip
_LEAVES = (
    *("a", "b", "c", "x", "-", "é", ".", "^", "$", r"\A", r"\z", r"\b", r"\B", r"\d", r"\w", r"\W"),
    *("[ab]", "[^a]", r"[a-c\d]", "[[:alpha:]]", "[^[:^digit:]]", r"\x41", r"\Qa.b\E"),
    *(r"\pL", r"\PL", r"\p{Lu}", r"[\pN_]", r"(?i)[\p{Lu}x]", r"(?i)[\p{^Lu}x]"),
    *("(?i)A", "(?s).", "(?m)^", "(?m)$"),
)
_TIMES = ("*", "+", "?", "*?", "+?", "??", "{1,2}", "{2}", "{0,3}?", "{2,}")


def pattern(source: random.Random, depth: int = 3) -> str:
    kind = source.random()
    if depth <= 0 or kind < 0.35:
        return source.choice(_LEAVES)
    parts = [pattern(source, depth - 1) for _ in range(source.randint(1, 3))]
    if kind < 0.6:
        return "".join(parts)
    if kind < 0.75:
        return f"({'|'.join(parts)})" if source.random() < 0.8 else f"({'|'.join(parts)}|)"
    return f"(?:{parts[0]}){source.choice(_TIMES)}"


def damaged(source: random.Random, text: str) -> str:
    at = source.randrange(len(text) + 1)
    return text[:at] + source.choice("()[]{}*+?\\|^-") + text[at:]
