"""What random expressions and devices are filled with: ordinary values, edges, and some that are
wrong.
"""

DOMAINS = ("gpu.example.com", "claimd.dev", "missing.example.com")
IDS = {
    "int": ("cores", "index", "absent"),
    "bool": ("healthy", "shared"),
    "string": ("model", "vendor", "text", "absent"),
    "version": ("driverVersion", "firmware"),
    "ints": ("numbers",),
    "strings": ("features", "empties"),
    "quantity": ("memory", "slots", "absent"),
}
INTS = ("0", "1", "2", "3", "-1", "7", "9223372036854775807", "-9223372036854775808", "0x10", "100")
STRINGS = (
    '""',
    '"a"',
    '"A100"',
    '"h100"',
    '"nvidia"',
    '"a,b,c"',
    '"é☃"',
    "'x\\ty'",
    'r"\\d+"',
    '"true"',
    '"12"',
    '" pad "',
)
PATTERNS = (
    '"^a"',
    '"[0-9]+"',
    '"h\\\\d{3}"',
    '"(a|b)+"',
    '"x*"',
    '"(?i)NVIDIA"',
    '"."',
    '"$"',
    '"[[:alpha:]]+"',
    '"(?=a)"',
)
DOUBLES = ("0.0", "1.5", "-2.25", "1e3", "3.0", "1e308", ".5")
UINTS = ("0u", "1u", "7u", "18446744073709551615u")
QUANTITIES = (
    '"80Gi"',
    '"40Gi"',
    '"1"',
    '"1k"',
    '"1000m"',
    '"500m"',
    '"-3"',
    '"1.5Gi"',
    '"1e3"',
    '"bogus"',
)
VERSIONS = ('"1.2.3"', '"1.2.3-rc.1"', '"2.0.0"', '"1.2.3+build"', '"v1.2"', '"1"', '"01.2.3"')
IPS = (
    '"10.0.0.1"',
    '"::1"',
    '"fe80::1"',
    '"300.1.1.1"',
    '"224.0.0.5"',
    '"2001:DB8::1"',
    '"0.0.0.0"',
)
CIDRS = ('"10.0.0.0/8"', '"10.1.2.3/16"', '"fd00::/8"', '"10.0.0.0/33"', '"192.168.0.0/24"')
URLS = (
    '"https://a.example:8443/p%20q/r?x=1&y=2&x=3"',
    '"/path"',
    '"mailto:a@b"',
    '"http://[::1]:80/"',
    '"nope"',
    '""',
)
TIMES = ('"2024-02-29T12:30:45.5Z"', '"1970-01-01T00:00:00+02:00"', '"9999-12-31T23:59:59Z"')
DURATIONS = ('"1h30m"', '"-2.5s"', '"1ms"', '"0"', '"10000h"')
FORMATS = (
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "qualifiedName",
    "labelValue",
    "uuid",
    "byte",
    "date",
    "datetime",
)
TEXTS = ("gpu", "A100-SXM4", "", "a.b-c", "x" * 64, "tRUE", "nvidia", "10.0.0.1", "1.2.3")
