"""Random expressions and devices: typed for the most part, so that they compile, with some that
must not.
"""

from claimd.kubernetes.cel import Device, Version

from .samples import (
    CIDRS,
    DOMAINS,
    DOUBLES,
    DURATIONS,
    IDS,
    INTS,
    IPS,
    QUANTITIES,
    STRINGS,
    TEXTS,
    TIMES,
    UINTS,
    VERSIONS,
)
from .shapes import BOOLS, INT_LISTS, NUMBERS, STRING_LISTS, TEXT


class Expressions:
    """`one()` is an expression; what it holds is chosen by `random`, which may be hypothesis' own."""

    def __init__(self, random):
        self._random = random
        self._names = []

    def generate(self):
        size = self._random.choice((1, 2, 2, 3, 3, 4, 5))
        text = self.bool(size)
        if self._random.random() < 0.06:
            text = self._broken(text)
        return text

    def _pick(self, options):
        return self._random.choice(options)

    def _broken(self, text):
        at = self._random.randrange(len(text) + 1)
        return self._pick(
            (
                text[:at]
                + self._pick(("(", ")", '"', "==", " ", "1", ".", "?", "[", "u", "-", "@", "/"))
                + text[at:],
                text[:at] + text[at + 1 :],
                self.any(2),
                f"{text} + 1 > 0",
                f"[{text}, 1].size() > 0",
            )
        )

    def device(self):
        random = self._random
        attributes = {}
        for kind in ("int", "bool", "string", "version", "ints", "strings"):
            for name in IDS[kind]:
                if name != "absent" and random.random() < 0.8:
                    kept = (
                        kind
                        if random.random() < 0.93
                        else self._pick(("int", "bool", "string", "version"))
                    )
                    domain = self._pick(("", f"{DOMAINS[0]}/", f"{DOMAINS[1]}/"))
                    attributes[domain + name] = self._value(kept)
        capacity = {
            self._pick(("", f"{DOMAINS[1]}/")) + name: self._pick(
                ("80Gi", "40Gi", "1", "1k", "500m", "1500m")
            )
            for name in ("memory", "slots")
            if random.random() < 0.85
        }
        return Device(DOMAINS[0], attributes, capacity, random.random() < 0.3)

    def _value(self, kind):
        random = self._random
        match kind:
            case "int":
                return self._pick((0, 1, 2, 7, -1, 100, 2**63 - 1))
            case "bool":
                return random.random() < 0.5
            case "string":
                return self._pick(TEXTS)
            case "version":
                return Version(self._pick(("1.2.3", "1.2.3-rc.1", "2.0.0", "535.129.3")))
            case "ints":
                return [self._pick((0, 1, 2, 3, 7)) for _ in range(random.randrange(1, 5))]
        return [self._pick(TEXTS) for _ in range(random.randrange(1, 5))]

    # Expressions by what they give

    def any(self, size):
        return self._pick(
            (
                self.bool,
                self.int,
                self.string,
                self.double,
                self.ints,
                self.strings,
                self.quantity,
                self.version,
            )
        )(size)

    def _attribute(self, kind):
        field = "capacity" if kind == "quantity" else "attributes"
        name = self._pick(IDS[kind])
        if self._random.random() < 0.05:
            name = self._pick(IDS[self._pick(tuple(IDS))])
        domain = self._pick(DOMAINS if self._random.random() < 0.3 else DOMAINS[:2])
        base = f'device.{field}["{domain}"]'
        return self._pick(
            (
                f"{base}.{name}",
                f"{base}.{name}",
                f'{base}["{name}"]',
                f"{base}.?{name}.{self._or(kind)}",
            )
        )

    def _or(self, kind):
        default = {
            "int": "3", "bool": "false", "string": '"none"', "version": 'semver("0.1.0")', "ints": "[1, 2]",
            "strings": '["a"]', "quantity": 'quantity("1Gi")',
        }[kind]  # fmt: skip
        return (
            f"orValue({default})"
            if kind in ("quantity",) or self._random.random() < 0.7
            else f"or(optional.of({default})).value()"
        )

    def _variable(self, kind):
        names = [name for name, of in self._names if of == kind]
        return self._pick(names) if names and self._random.random() < 0.6 else None

    def _leaf(self, kind, literals):
        return self._variable(kind) or (
            self._attribute(kind)
            if kind in IDS and self._random.random() < 0.5
            else self._pick(literals)
        )

    def _make(self, size, kind, literals, shapes):
        if size <= 0 or self._random.random() < 0.15:
            return self._leaf(kind, literals)
        return self._pick(shapes)(size - 1)

    def bool(self, n):
        return self._make(n, "bool", ("true", "false", 'bool("true")'), BOOLS(self))

    def int(self, n):
        return self._make(n, "int", INTS, NUMBERS(self))

    def string(self, n):
        return self._make(n, "string", STRINGS, TEXT(self))

    def double(self, n):
        s = self
        return self._make(n, "double", DOUBLES, (
            lambda k: f"({s.double(k)} {s._pick('+-*/')} {s.double(k)})",
            lambda k: f"double({s._pick((s.int, s.string, s.double))(k)})",
            lambda k: f"{s.quantity(k)}.asApproximateFloat()",
            lambda k: f"(-{s.double(k)})",
        ))  # fmt: skip

    def uint(self, n):
        s = self
        return self._make(n, "uint", UINTS, (
            lambda k: f"({s.uint(k)} {s._pick('+-*/%')} {s.uint(k)})", lambda k: f"uint({s.int(k)})",
        ))  # fmt: skip

    def ints(self, n):
        return self._make(
            n,
            "ints",
            ("[]", "[1]", "[3, 1, 2]", "[1, 1u == 1 ? 2 : 3]", "lists.range(4)"),
            INT_LISTS(self),
        )

    def strings(self, n):
        return self._make(
            n,
            "strings",
            ('["a"]', '["b", "a"]', '"a,b".split(",")', '["h100", "A100"]'),
            STRING_LISTS(self),
        )

    def quantity(self, n):
        s = self
        return self._make(n, "quantity", tuple(f"quantity({q})" for q in QUANTITIES), (
            lambda k: f"{s.quantity(k)}.{s._pick(('add', 'sub'))}({s._pick((s.quantity, s.int))(k)})",
            lambda k: f"({s.bool(k)} ? {s.quantity(k)} : {s.quantity(k)})",
            lambda k: s._attribute("quantity"),
            lambda k: s._attribute("quantity"),
        ))  # fmt: skip

    def version(self, n):
        s = self
        literals = tuple(f"semver({v}{more})" for more in ("", ", true") for v in VERSIONS)
        return self._make(n, "version", literals, (
            lambda k: s._attribute("version"), lambda k: f"({s.bool(k)} ? {s.version(k)} : {s.version(k)})",
        ))  # fmt: skip

    def ip(self):
        return self._pick((f"ip({self._pick(IPS)})", f"cidr({self._pick(CIDRS)}).ip()"))

    def cidr(self):
        return self._pick((f"cidr({self._pick(CIDRS)})", f"cidr({self._pick(CIDRS)}).masked()"))

    def time(self, n):
        s = self
        return self._make(n, "time", tuple(f"timestamp({t})" for t in TIMES), (
            lambda k: f"({s.time(k)} {s._pick('+-')} {s.duration(k)})", lambda k: f"timestamp({s.int(k)})",
        ))  # fmt: skip

    def duration(self, n):
        s = self
        return self._make(n, "duration", tuple(f"duration({d})" for d in DURATIONS), (
            lambda k: f"({s.duration(k)} {s._pick('+-')} {s.duration(k)})", lambda k: f"({s.time(k)} - {s.time(k)})",
        ))  # fmt: skip

    def map(self, n):
        s = self
        return self._pick((
            lambda k: f'{{"a": {s.int(k)}, "b": {s.int(k)}}}', lambda k: f'{{"a": {s.int(k)}}}',
            lambda k: f"{s.ints(k)}.transformMap(i, v, {s._within(('i', 'v'), k)}).transformMap(k, v, v)",
        ))(n - 1)  # fmt: skip

    def _within(self, names, size):
        """An int of these ints."""
        if not names:
            return self.int(size)
        return self._with(names[0], "int", lambda: self._within(names[1:], size))

    def _with(self, name, kind, make):
        self._names.append((name, kind))
        text = make()
        self._names.pop()
        return text

    def each(self, shape, kind, body, size):
        """A macro's call with its variable in scope: shape has {list}, {v} and {body}."""
        name = f"v{len(self._names)}"
        source = self.ints(size) if kind == "int" else self.strings(size)
        return shape.format(list=source, v=name, body=self._with(name, kind, lambda: body(size)))
