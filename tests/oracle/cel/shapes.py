"""The shapes that random expressions are made of, by the type that they give. Each documented
function is in one.
"""

from . import samples as e

COMMA = '","'
FIELDS = ("attributes", "capacity")
NAMES = ("cores", "memory", "model", "index", "absent")
KINDS_OF_IP = (
    "isLoopback",
    "isUnspecified",
    "isGlobalUnicast",
    "isLinkLocalUnicast",
    "isLinkLocalMulticast",
)
MACROS = ("all", "exists", "exists_one")
TYPES = ("int", "string", "list", "map", "bool", "double")
TIME_PARTS = (
    "getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getHours", "getMinutes",
    "getSeconds", "getMilliseconds",
)  # fmt: skip
ZONES = ("", "", '"-08:30"', '"Europe/Berlin"')


def BOOLS(s):
    def compared(k):
        kind = s._pick((s.int, s.string, s.double, s.uint, s.time, s.duration, s.bool))
        return f"{kind(k)} {s._pick(('==', '!=', '<', '<=', '>', '>='))} {kind(k)}"

    def equal(k):
        kind = s._pick(
            (s.ints, s.strings, s.quantity, s.version, s.map, lambda _: s.ip(), lambda _: s.cidr())
        )
        return f"({kind(k)} {s._pick(('==', '!='))} {kind(k)})"

    def dynamic(k):
        return f"(dyn({s.any(k)}) {s._pick(('==', '!=', '<', '>'))} dyn({s.any(k)}))"

    def crossed(k):
        kinds = (s.int, s.double, s.uint)
        return f"({s._pick(kinds)(k)} {s._pick(('<', '<=', '>', '>='))} {s._pick(kinds)(k)})"

    return (
        lambda k: f"({s.bool(k)} && {s.bool(k)})",
        lambda k: f"({s.bool(k)} || {s.bool(k)})",
        lambda k: f"({s.bool(k)} && {s.bool(k)} && {s.bool(k)} || {s.bool(k)})",
        lambda k: f"!{s.bool(k)}" if k < 1 else f"!({s.bool(k)})",
        lambda k: f"({s.bool(k)} ? {s.bool(k)} : {s.bool(k)})",
        compared,
        compared,
        equal,
        dynamic,
        crossed,
        lambda k: f'has(device.{s._pick(FIELDS)}["{s._pick(e.DOMAINS)}"].{s._pick(NAMES)})',
        lambda k: f'device.attributes["{s._pick(e.DOMAINS)}"].?{s._pick(NAMES)}.hasValue()',
        lambda k: f'("{s._pick(NAMES)}" in device.attributes["{s._pick(e.DOMAINS)}"])',
        lambda k: f'("{s._pick(e.DOMAINS)}" in device.attributes)',
        lambda k: "device.allowMultipleAllocations",
        *_questions(s),
        *_macros(s),
    )


def _questions(s):
    """Functions that give a bool."""
    return (
        lambda k: f"{s.string(k)}.{s._pick(('startsWith', 'endsWith', 'contains'))}({s.string(k)})",
        lambda k: f"{s.string(k)}.matches({s._pick(e.PATTERNS)})",
        lambda k: f"matches({s.string(k)}, {s._pick(e.PATTERNS)})",
        lambda k: f"({s.int(k)} in {s.ints(k)})",
        lambda k: f"({s.string(k)} in {s.strings(k)})",
        lambda k: f'({s.string(k)} in ["h100", "A100-SXM4"])',
        lambda k: f'("a" in {s.map(k)})',
        lambda k: f"{s.quantity(k)}.{s._pick(('isGreaterThan', 'isLessThan'))}({s.quantity(k)})",
        lambda k: f"{s.quantity(k)}.compareTo({s.quantity(k)}) >= 0",
        lambda k: f"{s.quantity(k)}.isInteger()",
        lambda k: f"{s.version(k)}.{s._pick(('isGreaterThan', 'isLessThan'))}({s.version(k)})",
        lambda k: f"isQuantity({s._pick((*e.QUANTITIES, *e.STRINGS))})",
        lambda k: (
            f"isSemver({s._pick((*e.VERSIONS, *e.STRINGS))}{s._pick(('', ', true', ', false'))})"
        ),
        lambda k: f"isURL({s._pick(e.URLS)})",
        lambda k: f"isIP({s._pick((*e.IPS, *e.CIDRS))})",
        lambda k: f"isCIDR({s._pick((*e.IPS, *e.CIDRS))})",
        lambda k: f"ip.isCanonical({s._pick(e.IPS)})",
        lambda k: f"{s.ip()}.{s._pick(KINDS_OF_IP)}()",
        lambda k: f"{s.cidr()}.containsIP({s._pick((s.ip(), s._pick(e.IPS)))})",
        lambda k: f"{s.cidr()}.containsCIDR({s._pick((s.cidr(), s._pick(e.CIDRS)))})",
        lambda k: f"format.{s._pick(e.FORMATS)}().validate({s.string(k)}).hasValue()",
        lambda k: f'format.named("{s._pick((*e.FORMATS, "nix"))}").hasValue()',
        lambda k: (
            f"sets.{s._pick(('contains', 'equivalent', 'intersects'))}({s.ints(k)}, {s.ints(k)})"
        ),
        lambda k: (
            f"sets.{s._pick(('contains', 'equivalent', 'intersects'))}({s.strings(k)}, {s.strings(k)})"
        ),
        lambda k: (
            f"{s._pick((s.ints, s.strings, s.any))(k)}.includes({s._pick((s.int, s.string))(k)})"
        ),
        lambda k: f"{s._pick((s.ints, s.strings))(k)}.isSorted()",
    )


def _macros(s):
    def optional():
        return f'device.attributes["{s._pick(e.DOMAINS)}"].?{s._pick(NAMES)}'

    return (
        lambda k: s.each(
            f"{{list}}.{s._pick(MACROS)}({{v}}, {{body}})", s._pick(("int", "string")), s.bool, k
        ),
        lambda k: s.each("{list}.all({v}i, {v}, {body})", "int", s.bool, k),
        lambda k: s.each("{list}.exists({v}i, {v}, {v}i > 0 && {body})", "string", s.bool, k),
        lambda k: s.each("{list}.existsOne({v}i, {v}, {body})", "int", s.bool, k),
        lambda k: f'{{"a": {s.int(k)}}}.all(k, v, k != "a" || v > {s.int(k)})',
        lambda k: bound(s, k),
        lambda k: f"{optional()}.optMap(o, o > {s.int(k)}).orValue({s.bool(k)})",
        lambda k: (
            f"{optional()}.optFlatMap(o, o > 1 ? optional.of(o) : optional.none()).hasValue()"
        ),
        lambda k: f"(type({s.any(k)}) == {s._pick(TYPES)})",
        lambda k: f"optional.ofNonZeroValue({s.any(k)}).hasValue()",
        lambda k: f"({s.ints(k)}.first() == {s.ints(k)}.last())",
        lambda k: f"({s.ints(k)}[?{s.int(k)}] == optional.of({s.int(k)}))",
        lambda k: f'(b"ab" == bytes({s.string(k)}))',
        lambda k: f'(url({s._pick(e.URLS)}).getQuery() == {{"x": ["1", "3"], "y": ["2"]}})',
    )


def bound(s, k):
    kind = s._pick(("int", "string", "bool"))
    value = {"int": s.int, "string": s.string, "bool": s.bool}[kind](k)
    name = f"b{len(s._names)}"
    return f"cel.bind({name}, {value}, {s._with(name, kind, lambda: s.bool(k))})"


def NUMBERS(s):
    return (
        lambda k: f"({s.int(k)} {s._pick('+-*/%')} {s.int(k)})",
        lambda k: f"({s.int(k)} {s._pick('+-*/%')} {s.int(k)})",
        lambda k: f"(-{s.int(k)})",
        lambda k: f"({s.bool(k)} ? {s.int(k)} : {s.int(k)})",
        lambda k: f"{s._pick((s.string, s.ints, s.strings, s.map))(k)}.size()",
        lambda k: f"size({s._pick((s.string, s.ints, s.strings))(k)})",
        lambda k: f'size(device.attributes["{s._pick(e.DOMAINS)}"])',
        lambda k: f"{s.ints(k)}[{s.int(0)}]",
        lambda k: f"{s.map(k)}.{s._pick(('a', 'b'))}",
        lambda k: f"{s.ints(k)}.{s._pick(('sum', 'min', 'max'))}()",
        lambda k: f"{s.ints(k)}.{s._pick(('indexOf', 'lastIndexOf'))}({s.int(k)})",
        lambda k: (
            f"{s.string(k)}.{s._pick(('indexOf', 'lastIndexOf'))}({s.string(k)}{s._pick(('', ', 1', f', {s.int(0)}'))})"
        ),
        lambda k: f"int({s._pick((s.double, s.string, s.uint, s.time, s.duration))(k)})",
        lambda k: f"{s.quantity(k)}.asInteger()",
        lambda k: f"sign({s.quantity(k)})",
        lambda k: f"{s.quantity(k)}.compareTo({s.quantity(k)})",
        lambda k: f"{s.version(k)}.compareTo({s.version(k)})",
        lambda k: f"{s.version(k)}.{s._pick(('major', 'minor', 'patch'))}()",
        lambda k: f"{s.ip()}.family()",
        lambda k: f"{s.cidr()}.prefixLength()",
        lambda k: f"{s.time(k)}.{s._pick(TIME_PARTS)}({s._pick(ZONES)})",
        lambda k: (
            f"{s.duration(k)}.{s._pick(('getHours', 'getMinutes', 'getSeconds', 'getMilliseconds'))}()"
        ),
    )


def TEXT(s):
    return (
        lambda k: f"({s.string(k)} + {s.string(k)})",
        lambda k: f"({s.bool(k)} ? {s.string(k)} : {s.string(k)})",
        lambda k: (
            f"string({s._pick((s.int, s.double, s.bool, s.uint, s.time, s.duration, s.string))(k)})"
        ),
        lambda k: f"string({s._pick((s.ip(), s.cidr()))})",
        lambda k: f"{s.string(k)}.{s._pick(('lowerAscii', 'upperAscii', 'trim'))}()",
        lambda k: f"{s.string(k)}.charAt({s.int(0)})",
        lambda k: (
            f"{s.string(k)}.substring({s._pick(('0', '1', '2'))}{s._pick(('', ', 3', f', {s.int(0)}'))})"
        ),
        lambda k: (
            f"{s.string(k)}.replace({s.string(k)}, {s.string(k)}{s._pick(('', ', 1', ', 0'))})"
        ),
        lambda k: f"{s.strings(k)}.join({s._pick(('', s.string(0)))})",
        lambda k: f"{s.string(k)}.find({s._pick(e.PATTERNS)})",
        lambda k: f"strings.quote({s.string(k)})",
        lambda k: f'"%s/%s".format([{s.string(k)}, {s.string(k)}])',
        lambda k: f'"%d %x %o %b".format([{s.int(k)}, {s.int(k)}, {s.int(k)}, {s.int(k)}])',
        lambda k: f'"%{s._pick(("f", ".2f", "e", ".1e", "s"))}".format([{s.double(k)}])',
        lambda k: (
            f'"%s".format([{s._pick((s.ints, s.strings, s.map, s.time, s.duration, s.bool, s.double))(k)}])'
        ),
        lambda k: f"{s.strings(k)}[{s.int(0)}]",
        lambda k: (
            f"url({s._pick(e.URLS)}).{s._pick(('getScheme', 'getHost', 'getHostname', 'getPort', 'getEscapedPath'))}()"
        ),
        lambda k: "device.driver",
        lambda k: f"cel.bind(t, {s.string(k)}, t + t)",
    )


def _lists(s, kind, single, many):
    return (
        lambda k: f"[{single(k)}, {single(k)}]",
        lambda k: f"({many(k)} + {many(k)})",
        lambda k: f"[?{s._pick(('optional.none()', f'optional.of({single(k)})'))}, {single(k)}]",
        lambda k: s.each("{list}.map({v}, {body})", kind, single, k),
        lambda k: s.each("{list}.map({v}, {v} != {v}, {body})", kind, single, k),
        lambda k: s.each("{list}.filter({v}, {body})", kind, s.bool, k),
        lambda k: s.each("{list}.transformList({v}i, {v}, {body})", kind, single, k),
        lambda k: s.each("{list}.transformList({v}i, {v}, {v}i > 0, {body})", kind, single, k),
        lambda k: s.each("{list}.sortBy({v}, {body})", kind, s.int, k),
        lambda k: f"{many(k)}.{s._pick(('sort', 'reverse', 'distinct'))}()",
        lambda k: f"{many(k)}.slice({s._pick(('0', '1'))}, {s._pick(('1', '2', '9'))})",
        lambda k: f"[{many(k)}, {many(k)}].flatten()",
        lambda k: f"{s.bool(k)} ? {many(k)} : {many(k)}".join("()"),
        lambda k: f"optional.unwrap([optional.of({single(k)}), optional.none()])",
    )


def INT_LISTS(s):
    return (
        *_lists(s, "int", s.int, s.ints),
        lambda k: f"lists.range({s._pick(('0', '3', '-1', '20'))})",
    )


def STRING_LISTS(s):
    return (
        *_lists(s, "string", s.string, s.strings),
        lambda k: (
            f"{s.string(k)}.split({s._pick((s.string(0), COMMA))}{s._pick(('', ', 2', ', 0', ', -1'))})"
        ),
        lambda k: f"{s.string(k)}.findAll({s._pick(e.PATTERNS)}{s._pick(('', ', 1'))})",
        lambda k: '["x"].map(m, m)',
    )
