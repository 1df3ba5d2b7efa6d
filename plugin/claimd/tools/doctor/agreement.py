"""Whether those who say what was given say the same: checkpoints, CDI files, slices, claims, kubelet.

Claims come and go while this looks. Whoever asks looks a second time at what does not agree.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from claimd.common import errors, names, timestamps
from claimd.kubernetes.api.document import Document
from claimd.kubernetes.kube import errors as kube_errors
from claimd.kubernetes.kube import resources
from claimd.node.config import Config
from claimd.node.kubelet import podresources
from claimd.node.prepare import checkpoint
from claimd.node.prepared import PreparedClaim, gpu_of
from claimd.node.publish import sharing, slices
from claimd_devices.gpu import Inventory

from .check import KEEP_RUNNING, RESTART, Check, Finding, Level, follows
from .sight import Sight

CHECKPOINTS = Check(
    name="checkpoints",
    level=Level.ERROR,
    looks_at="the files in `claims` of our folder: that each is whole, and none was set aside",
    expected="checkpoints that can be read",
    remedy="claimd sets a damaged one aside at its next start and prepares the claim anew; look for "
    "the cause: errors of the disk or the file system in `dmesg`, about the time of the file; then "
    "remove the file named *.damaged-*",
)
CDI_FILES = Check(
    name="cdi-files",
    level=Level.ERROR,
    looks_at="our files in `cdi-dir`, one for each prepared claim",
    expected="a CDI file for each checkpoint, and none besides",
    remedy="a running claimd writes it again within a second: see that it runs, and its log",
)
KUBELET_CLAIMS = Check(
    name="kubelet-claims",
    level=Level.ERROR,
    looks_at="which CDI ids of ours the kubelet has given to containers, beside the checkpoints",
    expected="a checkpoint for each claim that a container was given",
    remedy="these GPUs may be given to others: delete the pods that are named, and see in the log of "
    "claimd what became of the checkpoints",
)
CLAIMS = Check(
    name="claims",
    level=Level.WARNING,
    looks_at="the claim of each checkpoint, in the API server",
    expected="claims that are there, with the same uid, allocated to this node",
    remedy="claimd gives back what no pod uses after `garbage-grace`, two minutes by default; if it "
    "stays longer, a pod still uses it: kubectl get pods -A --field-selector spec.nodeName=NODE",
)
SLICES = Check(
    name="slices",
    level=Level.ERROR,
    looks_at="our ResourceSlices of this node, beside the GPUs that are here",
    expected="each GPU that can be given away is in a slice, and the pool is complete",
    remedy="if a setting was changed just now, such as `exclude`, let claimd start with it; "
    f"{KEEP_RUNNING}:\n"
    f"    {RESTART}\n"
    "else see why it does not write them: kubectl -n claimd-system logs POD | grep -E "
    "'not written|refuse|published'",
)
CHECKS = (CHECKPOINTS, CDI_FILES, KUBELET_CLAIMS, CLAIMS, SLICES)

_MOST_CLAIMS = 64  # that the API server is asked about
_UID = 36  # characters
_SHOWN = 4


@dataclass(frozen=True, kw_only=True)
class Facts:
    folder: str
    prepared: tuple[PreparedClaim, ...] = ()
    # There is a folder of ours: else nothing is known of what was prepared.
    is_there: bool = True
    problems: tuple[str, ...] = ()  # checkpoints that cannot be read
    damaged: tuple[str, ...] = ()  # that were set aside
    # Uids of the claims that have a CDI file; None: the folder cannot be read.
    cdi_files: frozenset[str] | None = frozenset()
    # Uids of claims whose GPUs are all here, so that they can have a CDI file.
    possible: frozenset[str] = frozenset()
    # By uid of a claim, the pods that were given it; None: the kubelet does not tell.
    given: Mapping[str, str] | None = field(default_factory=dict)
    # By title, what is wrong with the claim in the API server; None: it could not be asked.
    claims: Mapping[str, str] | None = field(default_factory=dict)
    # Names of the devices that should be published, with and without those of gates that are off;
    # and those that are. None: the slices could not be read.
    expected: frozenset[str] = frozenset()
    at_least: frozenset[str] = frozenset()
    published: Mapping[str, bool] | None = None  # by name: tainted
    incomplete: str = ""
    cdi_dir: str = ""
    driver: str = ""

    def cdi_path(self, uid: str) -> str:
        """Of a claim's CDI file, on the host."""
        return f"{self.cdi_dir}/{names.cdi_file(self.driver, uid)}"


def judge(facts: Facts, *, registered: bool = True) -> list[Finding]:
    """`registered`: a claimd that the kubelet has not registered publishes nothing."""
    return [
        *_checkpoints(facts),
        *_cdi_files(facts),
        _given(facts),
        *_claims(facts),
        *_slices(facts, registered),
    ]


def _checkpoints(facts: Facts) -> list[Finding]:
    found = [CHECKPOINTS.failed(problem) for problem in facts.problems]
    found += [
        CHECKPOINTS.failed(
            f"{facts.folder}/{name} was damaged and set aside; its claim was prepared anew",
            level=Level.WARNING,
            remedy="no pod is affected. On the node look for errors of the disk before it was set aside"
            f"{_at(name)}:\n    dmesg -T | grep -iE 'I/O error|EXT4-fs error|XFS.*(error|corrupt)|"
            "nvme.*(timeout|reset)'\n"
            "no line: nothing is known against the disk. Then remove the file, which nobody reads:\n"
            f"    rm {facts.folder}/{name}",
        )
        for name in facts.damaged
    ]
    return found or [CHECKPOINTS.well(f"{len(facts.prepared)} claims are prepared")]


def _at(name: str) -> str:
    """When a checkpoint was set aside, as its name has it; empty if it does not say."""
    digits = name.rpartition("-")[2]
    if not re.fullmatch(r"[0-9]{10}([0-9]{9})?", digits):
        return ""
    return f" at {timestamps.rfc3339(int(digits[:10]))}"


def _cdi_files(facts: Facts) -> list[Finding]:
    if facts.cdi_files is None:
        return [CDI_FILES.unseen("the folder cannot be read", "mend cdi-folder first")]
    if not facts.is_there:
        return [CDI_FILES.unseen(f"there is no {facts.folder}", "mend kubelet-folder first")]

    titles = {claim.uid: claim.title for claim in facts.prepared}
    missing = sorted(titles[uid] for uid in titles.keys() & facts.possible - facts.cdi_files)
    # A checkpoint that cannot be read may well be the file's.
    surplus = sorted(facts.cdi_files - titles.keys()) if not facts.problems else []
    found = []
    if missing:
        found.append(
            CDI_FILES.failed(
                f"there is no CDI file of {_some(missing)}: a container that restarts finds "
                '"unresolvable CDI devices"'
            )
        )
    if surplus:
        found.append(
            CDI_FILES.failed(
                f"there is no checkpoint for {_some([facts.cdi_path(uid) for uid in surplus])}",
                level=Level.WARNING,
                remedy="see that claimd runs, which removes it by itself, or remove it",
            )
        )
    return found or [CDI_FILES.well("one for each prepared claim")]


def _some(items: Collection[str]) -> str:
    listed = list(items)
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return f"{', '.join(listed[:_SHOWN])}{more}"


def _given(facts: Facts) -> Finding:
    if facts.given is None:
        return KUBELET_CLAIMS.unseen("the kubelet does not answer", "mend kubelet-answers first")
    known = {claim.uid for claim in facts.prepared}
    unknown = sorted(
        f"{pod} (claim uid {uid})" for uid, pod in facts.given.items() if uid not in known
    )
    if unknown and not facts.problems:
        return KUBELET_CLAIMS.failed(f"without a checkpoint: {_some(unknown)}")
    return KUBELET_CLAIMS.well(f"{len(facts.given)} claims are in use")


def _claims(facts: Facts) -> list[Finding]:
    if facts.claims is None:
        return [CLAIMS.unseen("the API server could not be asked", "kubectl get resourceclaims -A")]
    found = [
        CLAIMS.failed(f"{title}: {trouble}") for title, trouble in sorted(facts.claims.items())
    ]
    return found or [CLAIMS.well("as they were prepared")]


def _slices(facts: Facts, registered: bool) -> list[Finding]:
    if facts.published is None:
        return [
            SLICES.unseen(
                "the slices could not be read",
                "kubectl get resourceslices --field-selector spec.nodeName=NODE",
            )
        ]
    if not facts.published and facts.expected:
        return [
            SLICES.failed(
                "no device of this node is published",
                remedy="" if registered else follows("registered"),
            )
        ]
    if facts.incomplete:
        return [SLICES.failed(facts.incomplete)]

    found = []
    missing = sorted(facts.at_least - facts.published.keys())
    surplus = sorted(
        name
        for name, tainted in facts.published.items()
        if name not in facts.expected and not tainted
    )
    if missing:
        found.append(SLICES.failed(f"not published: {_some(missing)}"))
    if surplus:
        found.append(SLICES.failed(f"published, and not here: {_some(surplus)}"))
    return found or [SLICES.well(f"{len(facts.published)} devices, as they are here")]


# ---------------------------------------------------------------- looking


async def look(
    sight: Sight,
    inventory: Inventory,
    ours: resources.Resources | None,
    published: list[Document] | None,
) -> Facts:
    """`ours` is None where no API server is asked; `published` are slices of all drivers here."""
    settings = sight.settings
    folder = names.plugin_folder(sight.place(settings.kubelet_dir), settings.driver_name)
    prepared, problems = checkpoint.read_claims(folder)
    devices, incomplete = _of_ours(published, settings.driver_name)
    return Facts(
        folder=str(names.plugin_folder(settings.kubelet_dir, settings.driver_name) / "claims"),
        is_there=folder.is_dir(),
        cdi_dir=str(settings.cdi_dir),
        driver=settings.driver_name,
        prepared=tuple(prepared),
        problems=tuple(problems),
        damaged=_damaged(str(folder / "claims")),
        cdi_files=_cdi_uids(str(sight.place(settings.cdi_dir)), settings.driver_name),
        possible=frozenset(claim.uid for claim in prepared if _is_whole(claim, inventory)),
        given=await _given_by_kubelet(sight),
        claims=await _in_api(ours, prepared, settings) if ours is not None else None,
        expected=_expected(settings, inventory, partitions=True),
        at_least=_expected(settings, inventory, partitions=False)
        & _expected(settings, inventory, partitions=True),
        published=devices,
        incomplete=incomplete,
    )


def holders(prepared: Iterable[PreparedClaim]) -> dict[str, list[str]]:
    """By PCI address the claims that have the GPU."""
    found: dict[str, list[str]] = {}
    for claim in prepared:
        for device in claim.devices:
            found.setdefault(device.address, []).append(claim.title)
    return found


def _damaged(folder: str) -> tuple[str, ...]:
    marker = checkpoint.DAMAGED.partition("{")[0]
    try:
        return tuple(sorted(name for name in os.listdir(folder) if marker in name))
    except OSError:
        return ()


def _cdi_uids(folder: str, driver: str) -> frozenset[str] | None:
    prefix = names.cdi_prefix(driver)
    try:
        entries = os.listdir(folder)
    except OSError:
        return None
    return frozenset(
        entry.removeprefix(prefix).removesuffix(".json")
        for entry in entries
        if entry.startswith(prefix) and entry.endswith(".json")
    )


def _is_whole(claim: PreparedClaim, inventory: Inventory) -> bool:
    try:
        for device in claim.devices:
            gpu_of(device, inventory)
    except errors.ClaimError:
        return False
    return True


async def _given_by_kubelet(sight: Sight) -> dict[str, str] | None:
    socket = names.pod_resources_socket(sight.place(sight.settings.kubelet_dir))
    if not socket.exists():
        return None
    try:
        pods = await podresources.pods(socket)
    except ConnectionError:
        return None
    given = {}
    for (namespace, name), claims in pods.items():
        for ids in claims.values():
            for id_ in ids:
                kind, _, device = id_.partition("=")
                if kind == names.CDI_KIND:
                    given[device[:_UID]] = f"pod {namespace}/{name}"
    return given


async def _in_api(
    ours: resources.Resources, prepared: list[PreparedClaim], settings: Config
) -> dict[str, str] | None:
    """What is wrong with the claims; None if the API server does not tell."""
    troubles = {}
    for known in prepared[:_MOST_CLAIMS]:
        try:
            claim = await ours.claim(known.namespace, known.name)
        except kube_errors.NotFound:
            troubles[known.title] = "it is prepared here, and there is no such claim any more"
            continue
        except kube_errors.ApiError:
            return None
        if claim.metadata.uid != known.uid:
            troubles[known.title] = "it is prepared here, and was deleted and created anew since"
            continue
        allocation = claim.status.allocation
        results = allocation.devices.results if allocation else []
        pools = {result.pool for result in results if result.driver == settings.driver_name}
        if settings.node_name and settings.node_name not in pools:
            troubles[known.title] = "it is prepared here, and not allocated to this node any more"
    return troubles


def _expected(settings: Config, inventory: Inventory, *, partitions: bool) -> frozenset[str]:
    options = slices.Options(
        partitions=partitions,
        numa_list=settings.numa_list,
        sharing=sharing.parse(settings.share),
    )
    built, _ = slices.build(inventory, settings.driver_name, settings.node_name or "node", options)
    return frozenset(device.name for slice_ in built for device in slice_.spec.devices)


def _of_ours(published: list[Document] | None, driver: str) -> tuple[dict[str, bool] | None, str]:
    """Our devices, with whether they are tainted; and what the pool lacks."""
    if published is None:
        return None, ""
    specs = [slice_["spec"] for slice_ in published if slice_["spec"].get("driver") == driver]
    generation = max((spec["pool"].get("generation", 0) for spec in specs), default=0)
    newest = [spec for spec in specs if spec["pool"].get("generation", 0) == generation]
    count = max((spec["pool"].get("resourceSliceCount", 0) for spec in newest), default=0)
    incomplete = ""
    if len(newest) < count:
        incomplete = (
            f"the pool has {len(newest)} of {count} slices: no scheduler takes a device of it"
        )
    devices = {
        device["name"]: bool(device.get("taints"))
        for spec in newest
        for device in spec.get("devices") or ()
    }
    return devices, incomplete
