"""Requests to an API server and what it answered, so that two servers can be compared
(tests/cases/sim/README.md).

A script (YAML) says what to send, once for all versions. A recording (JSON) is one topic on one
version: requests with references such as ${a.metadata.uid}, which each server fills in from its own
answers, and answers without what no two servers share (uids, times, versions). Which server is
asked is not known here.
"""

import base64
import copy
import datetime
import http.client
import json
import re
import ssl
import tempfile
import urllib.parse

import yaml

GROUP = "resource.k8s.io"
NAMESPACED = {
    "claims": "resourceclaims",
    "templates": "resourceclaimtemplates",
    "scheduling": "podschedulingcontexts",
    "claim-parameters": "resourceclaimparameters",
    "class-parameters": "resourceclassparameters",
}
CLUSTER = {
    "classes": "deviceclasses",
    "resource-classes": "resourceclasses",
    "slices": "resourceslices",
    "rules": "devicetaintrules",
    "pools": "resourcepoolstatusrequests",
}
CORE = {"pods": "pods", "accounts": "serviceaccounts", "maps": "configmaps"}
PATCHES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
VERSIONS = re.compile(
    r"(ResourceVersion in (?:the precondition|record) \(|esource version: |current: |version: <version> \()(\d+)"
)
NAMED = re.compile(r"<(uid|version) (\d+)>")
REFERENCE = re.compile(r"\$\{([\w-]+)((?:\.[^.{}]+)+)\}")


# ---------------------------------------------------------------- scripts


def requests_of(script, version):
    """The script's requests for one version of the API, ready to be sent and to be written down."""
    topic = script["topic"]
    namespace = f"{topic}-{version}"
    paths = {
        name: f"/apis/{GROUP}/{version}/namespaces/{namespace}/{plural}"
        for name, plural in NAMESPACED.items()
    }
    paths |= {
        f"all-{name}": f"/apis/{GROUP}/{version}/{plural}" for name, plural in NAMESPACED.items()
    }
    paths |= {name: f"/apis/{GROUP}/{version}/{plural}" for name, plural in CLUSTER.items()}
    paths |= {name: f"/api/v1/namespaces/{namespace}/{plural}" for name, plural in CORE.items()}
    paths |= {
        "namespace": namespace,
        "version": version,
        "nodes": "/api/v1/nodes",
        "namespaces": "/api/v1/namespaces",
    }
    metadata = {"name": "{namespace}"} | script.get("namespace", {})
    new = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    setup = [{"send": "POST {namespaces}", "body": new, "setup": True}]
    entries = []
    for step in setup + script["steps"]:
        if version in step.get("only", [version]):
            entries.append(_request(script, step, paths))
    return entries


def _request(script, step, paths):
    request = {"what": step["what"]} if "what" in step else {}
    if step.get("compact"):
        return request | {"compact": True}
    method, _, path = _filled(step["send"], paths).partition(" ")
    request |= {"method": method, "path": path}
    if method == "PATCH":
        request["type"] = PATCHES.get(step.get("type", "merge"), step.get("type"))
    elif "type" in step:
        request["type"] = step["type"]
    if "body" in step:
        request["body"] = _body(script, step["body"], paths)
    return request | {
        name: step[name] for name in ("save", "headers", "events", "as", "setup") if name in step
    }


def _filled(value, paths):
    if isinstance(value, str):
        return re.sub(r"(?<!\$)\{([\w-]+)\}", lambda match: paths.get(match[1], match[0]), value)
    if isinstance(value, dict):
        if set(value) == {"times", "of"}:
            return [
                _filled(copy.deepcopy(value["of"]), paths | {"i": str(i)})
                for i in range(value["times"])
            ]
        if set(value) == {"times", "text"}:
            return value["text"] * value["times"]
        if set(value) == {"times", "entry", "of"}:
            return {
                value["entry"].replace("{i}", str(i)): copy.deepcopy(value["of"])
                for i in range(value["times"])
            }
        return {_filled(name, paths): _filled(below, paths) for name, below in value.items()}
    return [_filled(item, paths) for item in value] if isinstance(value, list) else value


def _body(script, body, paths):
    if isinstance(body, dict) and "from" in body:
        by_version = script.get("objects of", {}).get(paths["version"], {})
        body_ = copy.deepcopy(by_version.get(body["from"]) or script["objects"][body["from"]])
        for path, value in body.get("set", {}).items():
            _put(body_, path.split("/") if "/" in path else path.split("."), value)
        body = body_
    body = _filled(body, paths)
    if isinstance(body, dict) and "kind" in body and "apiVersion" not in body:
        body = {"apiVersion": f"{GROUP}/{paths['version']}"} | body
    if isinstance(body, dict) and body.get("apiVersion", "").startswith(GROUP):
        body = _shaped(paths["version"], body)
    return body


def _put(place, way, value):
    *before, last = way
    for step in before:
        place = place[int(step)] if isinstance(place, list) else place.setdefault(step, {})
    key = int(last) if isinstance(place, list) else last
    if value == "(absent)":
        del place[key]
    elif isinstance(place, list) and key == len(place):
        place.append(value)
    else:
        place[key] = value


def _shaped(version, body):
    """Scripts are written in the shape of v1; older versions wrap less and more."""
    if version not in ("v1beta1", "v1alpha3") or not isinstance(body.get("spec"), dict):
        return body
    spec = body["spec"]
    if body.get("kind") == "ResourceSlice" and isinstance(spec.get("devices"), list):
        spec["devices"] = [_with_basic(version, device) for device in spec["devices"]]
    claim = spec.get("spec", spec) if body.get("kind") == "ResourceClaimTemplate" else spec
    if isinstance(claim.get("devices"), dict) and isinstance(
        claim["devices"].get("requests"), list
    ):
        claim["devices"]["requests"] = [
            {name: value for name, value in request.items() if name != "exactly"}
            | (request.get("exactly") or {})
            for request in claim["devices"]["requests"]
        ]
    return body


def _with_basic(version, device):
    rest = {name: value for name, value in device.items() if name != "name"}
    if version == "v1alpha3" and "capacity" in rest:
        rest["capacity"] = {name: value.get("value") for name, value in rest["capacity"].items()}
    return {name: device[name] for name in ("name",) if name in device} | (
        {"basic": rest} if rest else {}
    )


# ---------------------------------------------------------------- sending


class Server:
    """An API server at an address: https with a kubeconfig's certificates, or http with a token."""

    def __init__(self, address, context=None, token="", compact=None):
        self.address, self.context, self.token = urllib.parse.urlsplit(address), context, token
        self.compact = compact or (lambda: None)

    @classmethod
    def of_kubeconfig(cls, path, compact=None):
        config = yaml.safe_load(path.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
        context, anonymous = (
            ssl.create_default_context(cadata=ca),
            ssl.create_default_context(cadata=ca),
        )
        with tempfile.NamedTemporaryFile() as both:
            both.write(
                b"".join(
                    base64.b64decode(user[f"client-{part}-data"]) for part in ("certificate", "key")
                )
            )
            both.flush()
            context.load_cert_chain(both.name)
        session = cls(cluster["server"], context, compact=compact)
        session.anonymous = anonymous
        return session

    def connect(self, credentials=True):
        if self.address.scheme == "https":
            context = self.context if credentials else self.anonymous
            return http.client.HTTPSConnection(
                self.address.hostname, self.address.port, context=context, timeout=60
            )
        return http.client.HTTPConnection(self.address.hostname, self.address.port, timeout=60)

    def headers(self, request):
        headers = {"Accept": "application/json", "User-Agent": "exchanges"} | request.get(
            "headers", {}
        )
        if "body" in request:
            headers["Content-Type"] = request.get("type", "application/json")
        if request.get("as") == "stranger":
            headers["Authorization"] = "Bearer unknown"
        elif self.token and request.get("as") != "nobody":
            headers["Authorization"] = f"Bearer {self.token}"
        return headers


class Session:
    """One topic on one server: what was saved of its answers, and names for what only this server
    has.
    """

    def __init__(self, server):
        self.server = server
        self.saved, self.raw = {}, None
        self.uids, self.versions, self.generated = {}, {}, {}
        self.counts = {"uid": 0, "version": 0}
        self.now = datetime.datetime.now(datetime.UTC)

    def ask(self, request):
        """The answer as it is written down."""
        if request.get("compact"):
            self.server.compact()
            return {}
        request = self._resolved(request)
        connection = self.server.connect(credentials=not request.get("as"))
        try:
            body = request.get("body")
            sent = (
                None
                if body is None
                else body.encode()
                if isinstance(body, str)
                else json.dumps(body).encode()
            )
            connection.request(
                request["method"], request["path"], sent, self.server.headers(request)
            )
            response = connection.getresponse()
            events = request.get("events") if response.status == 200 else None
            got = self._events(response, events) if events is not None else response.read().decode()
        finally:
            connection.close()
        kind = response.headers.get_content_type()
        answer = {"code": response.status} | ({} if kind == "application/json" else {"type": kind})
        warnings = response.headers.get_all("Warning") or []
        answer |= {"warnings": warnings} if warnings else {}
        if events is not None:
            self.raw = answer | {"events": got}
            return answer | {"events": [self.plain(event) for event in got]}
        if "application/json" not in kind:
            return answer | {"body": got}
        parsed = json.loads(got)
        if "save" in request:
            self.saved[request["save"]] = parsed
        self.raw = answer | {"body": parsed}
        return answer | {"body": self.plain(parsed)}

    @staticmethod
    def _events(response, count):
        entries = []
        while len(entries) < count and (line := response.readline()):
            entries.append(json.loads(line))
        return entries

    def _resolved(self, value):
        if isinstance(value, str):
            return REFERENCE.sub(lambda match: self._saved(match[1], match[2]), value)
        if isinstance(value, dict):
            return {name: self._resolved(below) for name, below in value.items()}
        return [self._resolved(item) for item in value] if isinstance(value, list) else value

    def _saved(self, name, path):
        value = self.saved[name]
        for step in path.split(".")[1:]:
            value = value[int(step)] if isinstance(value, list) else value[step]
        return urllib.parse.quote(str(value), safe="-_=:") if not isinstance(value, str) else value

    # ------------------------------------------------------------ what no two servers share

    def plain(self, value, name=""):
        if isinstance(value, dict):
            if "resourceVersion" in value and "continue" not in value and not value.get("name"):
                value = (
                    value | {"resourceVersion": "<of the list>"}
                    if value["resourceVersion"]
                    else value
                )
            if value.get("generateName") and value.get("name", "").startswith(
                value["generateName"]
            ):
                self.generated.setdefault(
                    value["name"], f"{value['generateName']}<{len(self.generated) + 1}>"
                )
            return {key: self.plain(below, key) for key, below in value.items()}
        if isinstance(value, list):
            items = sorted(value, key=_writer) if name == "managedFields" else value
            return [self.plain(item) for item in items]
        return self._text(value, name) if isinstance(value, str) else value

    def _text(self, text, name):
        if name == "resourceVersion" and text.isdigit():
            return self._name("version", self.versions, text)
        if name == "continue" and text:
            return "<continue>"
        for generated, short in self.generated.items():
            text = text.replace(generated, short)
        text = UUID.sub(lambda match: self._uid(match[0]), text)
        text = TIME.sub(lambda match: "<now>" if self._is_now(match[0]) else match[0], text)
        return (
            VERSIONS.sub(r"\1<version>", text) if name == "message" and "ersion" in text else text
        )

    def _uid(self, uid):
        if len(set(uid)) < 5:
            return uid  # made up by a script
        return self._name("uid", self.uids, uid)

    def _name(self, what, names, value):
        if value not in names:
            self.counts[what] += 1
            names[value] = f"<{what} {self.counts[what]}>"
        return names[value]

    def align(self, expected, raw):
        """Calls what only this server has as the other answer does, as far as they have the same
        places.
        """
        if isinstance(expected, dict) and isinstance(raw, dict):
            for name in set(expected) & set(raw):
                self.align(expected[name], raw[name])
        elif isinstance(expected, list) and isinstance(raw, list):
            for ours, other in zip(expected, raw, strict=False):
                self.align(ours, other)
        elif (
            isinstance(expected, str)
            and isinstance(raw, str)
            and (match := NAMED.fullmatch(expected))
        ):
            (self.uids if match[1] == "uid" else self.versions)[raw] = expected

    def count(self, answer):
        """Names that the other answer has given are not given again."""
        for what, number in NAMED.findall(json.dumps(answer)):
            self.counts[what] = max(self.counts[what], int(number))

    def _is_now(self, text):
        return abs(datetime.datetime.fromisoformat(text) - self.now) < datetime.timedelta(hours=2)


def _writer(entry):
    return [entry.get(name, "") for name in ("operation", "manager", "subresource", "apiVersion")]


# ---------------------------------------------------------------- recordings


def written(recording):
    """The text of a file: a line for each exchange."""
    head = {name: value for name, value in recording.items() if name != "exchanges"}
    lines = ",\n".join(json.dumps(exchange, sort_keys=True) for exchange in recording["exchanges"])
    return f'{json.dumps(head)[:-1]}, "exchanges": [\n{lines}\n]}}\n'


def replay(server, recording):
    """The exchanges that went otherwise, by their number: (expected, got)."""
    session = Session(server)
    differences = {}
    for number, exchange in enumerate(recording["exchanges"]):
        before = [dict(names) for names in (session.uids, session.versions, session.generated)]
        counts = dict(session.counts)
        answer = session.ask(exchange["request"])
        expected = exchange.get("answer", answer)
        if answer != expected:
            differences[number] = (expected, answer)
            (session.uids, session.versions, session.generated), session.counts = before, counts
            session.align(expected, session.raw)
        session.count(expected)
    return differences
