"""Asks a Prometheus how many GPUs were free, held and sick in the last day.

The figures come from claimd's own metrics, so they count the GPUs of claimd alone.
"""

from __future__ import annotations

import base64
import math
import urllib.error
import urllib.parse
import urllib.request

import msgspec

from claimd.common import errors, plain_text

# The time that is asked for, and the time between two samples, in seconds.
HOURS = 24
STEP = 180
_TIMEOUT = 10.0
_LARGEST = 1 << 22  # bytes of an answer; a day has about 40 KiB

_STATES = ("free", "held", "sick")


def _gpus(samples: str) -> str:
    """Returns a query for the whole GPUs of these samples. A part counts for its GPU."""
    whole = f'label_replace({samples}, "gpu", "$1", "device", "(gpu(?:-[^-]+){{4}}).*")'
    return f"count by (node, gpu) ({whole})"


def _query() -> str:
    every = _gpus("claimd_device_info")
    held = _gpus('claimd_device_info{claim!=""}')
    # A part may be sick while its GPU is well, as on the page.
    sick = _gpus('claimd_device_healthy{device=~"gpu(-[^-]+){4}"} == 0')

    # A sick GPU counts as sick only. It may have vanished, so that `every` does not have it.
    counts = {
        "free": f"{every} unless on (node, gpu) {held} unless on (node, gpu) {sick}",
        "held": f"{held} unless on (node, gpu) {sick}",
        "sick": sick,
    }
    labelled = []
    for state, query in counts.items():
        labelled.append(f'label_replace(count({query}), "state", "{state}", "", "")')
    return " or ".join(labelled)


# One query for three series, with the label `state`. A state without GPUs has no sample.
QUERY = _query()


class _Series(msgspec.Struct, frozen=True):
    metric: dict[str, str]
    # Each value is a time in seconds, and a number as text.
    values: tuple[tuple[float, str], ...]


class _Data(msgspec.Struct, frozen=True):
    result: tuple[_Series, ...]


class _Answer(msgspec.Struct, frozen=True):
    status: str
    data: _Data | None = None
    error: str = ""


class PrometheusError(Exception):
    """The reason why there are no figures, as a sentence for the page."""


class Prometheus:
    """A Prometheus, or a server with the same API, such as Thanos or Mimir.

    `name` is its address for people, without the password that the URL may have.
    """

    def __init__(self, url: str) -> None:
        """Raises UsageError if the URL is not one of http or https."""
        try:
            parts = urllib.parse.urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise errors.UsageError(f"--prometheus {url}: {error}") from error
        if parts.scheme not in ("http", "https") or not host:
            raise errors.UsageError(
                f"--prometheus {url}: expected a URL such as http://localhost:9090"
            )

        authority = f"[{host}]" if ":" in host else host
        if port is not None:
            authority += f":{port}"
        self.name = f"{parts.scheme}://{authority}{parts.path.rstrip('/')}"

        self._headers = {"Accept": "application/json", "User-Agent": "claimd-view"}
        if parts.username is not None:
            user = urllib.parse.unquote(parts.username)
            password = urllib.parse.unquote(parts.password or "")
            token = base64.b64encode(f"{user}:{password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {token}"

    def read_day(self, now: float) -> list[list[float]]:
        """Returns the samples of the last day: time, free, held, sick.

        Times for which Prometheus has no metrics of claimd are left out. This blocks until the
        answer is there. Raises PrometheusError if no answer comes, or one that is not understood.
        """
        end = int(now) // STEP * STEP
        query = {
            "query": QUERY,
            "start": str(end - HOURS * 3600),
            "end": str(end),
            "step": str(STEP),
        }
        url = f"{self.name}/api/v1/query_range?{urllib.parse.urlencode(query)}"
        samples = _samples(self._decode(self._ask(url)))
        if not samples:
            raise PrometheusError(
                f"Prometheus at {self.name} has no metrics of claimd from the last day; "
                "docs/metrics.md says how to turn them on"
            )
        return samples

    def _ask(self, url: str) -> bytes:
        """Returns the body of the answer. The body of an error says the reason as well."""
        request = urllib.request.Request(url, headers=self._headers)  # noqa: S310 - http or https
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:  # noqa: S310
                body: bytes = answer.read(_LARGEST + 1)
        except urllib.error.HTTPError as error:
            with error:
                reason = _reason(error.read(_LARGEST))
            raise self._error(f"answers {error.code} {error.reason}{reason}") from error
        except OSError as error:
            cause = error.reason if isinstance(error, urllib.error.URLError) else error
            raise self._error(f"cannot be asked: {cause}") from error
        except ValueError as error:
            # The answer is not HTTP.
            raise self._error(f"cannot be asked: {error}") from error
        if len(body) > _LARGEST:
            raise self._error(f"answers with more than {_LARGEST >> 20} MiB")
        return body

    def _decode(self, body: bytes) -> _Data:
        try:
            answer = msgspec.json.decode(body, type=_Answer)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._error(
                f"answers something else than Prometheus' API does: {error}"
            ) from error
        if answer.status != "success" or answer.data is None:
            raise self._error(f"answers {answer.status}: {answer.error}")
        return answer.data

    def _error(self, what: str) -> PrometheusError:
        return PrometheusError(plain_text.one_line(f"Prometheus at {self.name} {what}"))


def _reason(body: bytes) -> str:
    """Returns the reason in the body of an error, as the rest of a sentence, or ""."""
    try:
        answer = msgspec.json.decode(body, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    return f": {answer.error}" if answer.error else ""


def _samples(data: _Data) -> list[list[float]]:
    """Returns a sample for each time at which any state has GPUs."""
    by_time: dict[float, list[float]] = {}
    for series in data.result:
        state = series.metric.get("state")
        if state not in _STATES:
            continue
        for time, text in series.values:
            number = _number(text)
            if number is not None:
                sample = by_time.setdefault(time, [round(time), 0, 0, 0])
                sample[1 + _STATES.index(state)] = number
    return [sample for _, sample in sorted(by_time.items())]


def _number(text: str) -> int | None:
    """Returns a count of GPUs, or None for a value that is no count."""
    try:
        number = float(text)
    except ValueError:
        return None
    return round(number) if math.isfinite(number) and number >= 0 else None
