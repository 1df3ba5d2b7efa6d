"""Checks that all records of a claim agree: checkpoint, CDI file, slice, API object, kubelet.

Claims come and go while these records are read. The caller looks a second time before it reports a
disagreement.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from claimd.common import errors, names, timestamps
from claimd.kubernetes.api.document import Document
from claimd.kubernetes.kube import errors as kube_errors
from claimd.kubernetes.kube import resources
from claimd.node.config import Config
from claimd.node.kubelet import podresources
from claimd.node.prepare import checkpoint, checkpoint_trouble, gone_claims
from claimd.node.prepared import PreparedClaim, gpu_of
from claimd.node.publish import sharing, slices
from claimd_devices.gpu import Inventory

from .check import KEEP_RUNNING, RESTART, Check, Finding, Level, caused_by
from .sight import Sight

CHECKPOINTS = Check(
    name="checkpoints",
    level=Level.ERROR,
    looks_at="the files in `claims` of our folder: that each is whole, and none was set aside",
    expected="checkpoints that can be read",
    remedy="a checkpoint that cannot be read costs its own claim alone: its pod runs on, its GPUs stay "
    "taken, and claimd reads it again and again. claimd sets a damaged one aside and rebuilds it from "
    "the claim's allocation, while its pod runs on; look for the cause: errors of the disk or the file "
    "system in `dmesg`, about the time of the file",
)
CDI_FILES = Check(
    name="cdi-files",
    level=Level.ERROR,
    looks_at="our files in `cdi-dir`, one for each prepared claim",
    expected="a CDI file for each checkpoint, and no others",
    remedy="a running claimd writes it again within a second: see that it runs, and its log",
)
KUBELET_CLAIMS = Check(
    name="kubelet-claims",
    level=Level.ERROR,
    looks_at="which CDI ids of ours the kubelet has given to containers, compared with the checkpoints",
    expected="a checkpoint for each claim that a container was given",
    remedy="leave the pods and their CDI files alone: they run on, and their GPUs are given to nobody "
    "else. A running claimd rebuilds the checkpoints from the claims' allocations within a minute; if "
    "it does not, its log and the Event RecordLost say why",
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
    looks_at="our ResourceSlices of this node, compared with the GPUs that are here",
    expected="each GPU that can be given away is in a slice, and the pool is complete",
    remedy="if a setting was changed just now, such as `exclude`, let claimd start with it; "
    f"{KEEP_RUNNING}:\n"
    f"    {RESTART}\n"
    "else see why it does not write them: kubectl -n claimd-system logs POD | grep -E "
    "'not written|refuse|published'",
)
CHECKS = (CHECKPOINTS, CDI_FILES, KUBELET_CLAIMS, CLAIMS, SLICES)

_MOST_CLAIMS = 64  # requests to the API server
_UID = 36  # characters of a UUID, with which the name of a CDI device begins
_SHOWN = 4  # names in a sentence; the others are counted


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The records of this node's claims and devices."""

    folder: str
    prepared: tuple[PreparedClaim, ...] = ()
    # False: our folder does not exist, so it is not known which claims are prepared.
    is_there: bool = True
    problems: tuple[str, ...] = ()  # checkpoints that cannot be read
    damaged: tuple[str, ...] = ()  # checkpoints that were set aside
    # The UIDs of the claims that have a CDI file. None: the folder cannot be read.
    cdi_files: frozenset[str] | None = frozenset()
    # The UIDs of the claims whose GPUs are all here. The others cannot have a CDI file.
    possible: frozenset[str] = frozenset()
    # The pod that uses a claim, by the claim's UID. None: the kubelet does not answer.
    given: Mapping[str, str] | None = field(default_factory=dict)
    # The faults of claims in the API server, by the claim's title. None: the server does not answer.
    claims: Mapping[str, str] | None = field(default_factory=dict)
    # The names of the devices that the slices may have, and of those that they must have: the
    # partitions of a GPU are published only if the server's gate for them is on.
    expected: frozenset[str] = frozenset()
    at_least: frozenset[str] = frozenset()
    # The published devices, and whether each is tainted. None: the slices could not be read.
    published: Mapping[str, bool] | None = None
    incomplete: str = ""
    cdi_dir: str = ""
    driver: str = ""

    def cdi_path(self, uid: str) -> str:
        """Returns the path of a claim's CDI file on the host."""
        return f"{self.cdi_dir}/{names.cdi_file(self.driver, uid)}"


def judge(facts: Facts, *, registered: bool = True) -> list[Finding]:
    """Judges whether the records agree.

    `registered` is False if the kubelet has not registered claimd, which then publishes nothing.
    """
    return [
        *_judge_checkpoints(facts),
        *_judge_cdi_files(facts),
        _judge_kubelet_claims(facts),
        *_judge_claims(facts),
        *_judge_slices(facts, registered),
    ]


def _judge_checkpoints(facts: Facts) -> list[Finding]:
    failures = [CHECKPOINTS.failure(problem) for problem in facts.problems]
    for name in facts.damaged:
        seen = f"{facts.folder}/{name} was damaged and set aside"
        remedy = _remedy_for_damaged(f"{facts.folder}/{name}")
        failures.append(CHECKPOINTS.failure(seen, level=Level.WARNING, remedy=remedy))
    return failures or [CHECKPOINTS.success(f"{len(facts.prepared)} claims are prepared")]


def _remedy_for_damaged(path: str) -> str:
    return (
        "leave the pods of the claim alone: they run on, and claimd rebuilds the checkpoint from the "
        "claim's allocation. On the node look for errors of the disk before it was set aside"
        f"{_time_set_aside(path)}:\n"
        "    dmesg -T | grep -iE 'I/O error|EXT4-fs error|XFS.*(error|corrupt)|"
        "nvme.*(timeout|reset)'\n"
        "no line: nothing is known against the disk. claimd removes the file when the claim is over. "
        "If it stays, remove it; nobody reads it:\n"
        f"    rm {path}"
    )


def _time_set_aside(name: str) -> str:
    """Returns the time at which a checkpoint was set aside, or "" if its name does not have it."""
    digits = name.rpartition("-")[2]
    if not re.fullmatch(r"[0-9]{10}([0-9]{9})?", digits):
        return ""
    return f" at {timestamps.rfc3339(int(digits[:10]))}"


def _judge_cdi_files(facts: Facts) -> list[Finding]:
    if facts.cdi_files is None:
        return [CDI_FILES.unknown("the folder cannot be read", "mend cdi-folder first")]
    if not facts.is_there:
        return [CDI_FILES.unknown(f"there is no {facts.folder}", "mend kubelet-folder first")]

    titles = {claim.uid: claim.title for claim in facts.prepared}
    missing = sorted(titles[uid] for uid in titles.keys() & facts.possible - facts.cdi_files)

    # A checkpoint that cannot be read may belong to a file that seems to be left over.
    surplus = sorted(facts.cdi_files - titles.keys()) if not facts.problems else []

    failures = []
    if missing:
        failures.append(
            CDI_FILES.failure(
                f"there is no CDI file of {_shorten(missing)}: a container that restarts finds "
                '"unresolvable CDI devices"'
            )
        )
    if surplus:
        sentences = [checkpoint_trouble.describe_lost(uid, facts.cdi_path(uid)) for uid in surplus]
        failures.append(
            CDI_FILES.failure(
                _shorten(sentences),
                level=Level.WARNING,
                remedy="leave the file alone: a pod may use it. A running claimd rebuilds the "
                "checkpoint from the claim's allocation within a minute. If it cannot, the Event "
                "RecordLost says why, and claimd removes the file when the claim is over. If the "
                "file stays and no pod uses the claim, remove it",
            )
        )
    return failures or [CDI_FILES.success("one for each prepared claim")]


def _shorten(items: Collection[str]) -> str:
    listed = list(items)
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return f"{', '.join(listed[:_SHOWN])}{more}"


def _judge_kubelet_claims(facts: Facts) -> Finding:
    if facts.given is None:
        return KUBELET_CLAIMS.unknown("the kubelet does not answer", "mend kubelet-answers first")

    known = {claim.uid for claim in facts.prepared}
    unknown = []
    for uid, pod in facts.given.items():
        if uid not in known:
            unknown.append(f"{pod} (claim uid {uid})")

    # A checkpoint that cannot be read may belong to one of these claims.
    if unknown and not facts.problems:
        return KUBELET_CLAIMS.failure(f"without a checkpoint: {_shorten(sorted(unknown))}")
    return KUBELET_CLAIMS.success(f"{len(facts.given)} claims are in use")


def _judge_claims(facts: Facts) -> list[Finding]:
    if facts.claims is None:
        return [
            CLAIMS.unknown("the API server could not be asked", "kubectl get resourceclaims -A")
        ]

    given = facts.given or {}
    users = {claim.title: given[claim.uid] for claim in facts.prepared if claim.uid in given}
    devices = {claim.title: claim.device_names for claim in facts.prepared}

    failures = []
    for title, trouble in sorted(facts.claims.items()):
        user = users.get(title)
        if user is None:
            failures.append(CLAIMS.failure(f"{title}: {trouble}"))
            continue
        seen = f"{title}: {trouble}, but {user} still uses {devices[title]}"
        failures.append(CLAIMS.failure(seen, remedy=_remedy_for_used(user)))
    return failures or [CLAIMS.success("as they were prepared")]


def _remedy_for_used(user: str) -> str:
    namespace, _, name = user.removeprefix("pod ").partition("/")
    return (
        "somebody removed the claim by force, or its pod. The scheduler takes its devices as free: a "
        "pod that gets them waits until this one has ended. After the first such pod the taint "
        f"{gone_claims.TAINT} keeps the others away. If the pod need not run on:\n"
        f"    kubectl delete pod -n {namespace} {name}"
    )


def _judge_slices(facts: Facts, registered: bool) -> list[Finding]:
    if facts.published is None:
        return [
            SLICES.unknown(
                "the slices could not be read",
                "kubectl get resourceslices --field-selector spec.nodeName=NODE",
            )
        ]
    if not facts.published and facts.expected:
        return [
            SLICES.failure(
                "no device of this node is published",
                remedy="" if registered else caused_by("registered"),
            )
        ]
    if facts.incomplete:
        return [SLICES.failure(facts.incomplete)]

    # A GPU that vanished stays published for a while, with a taint.
    missing = sorted(facts.at_least - facts.published.keys())
    surplus = []
    for name, is_tainted in sorted(facts.published.items()):
        if name not in facts.expected and not is_tainted:
            surplus.append(name)

    failures = []
    if missing:
        failures.append(SLICES.failure(f"not published: {_shorten(missing)}"))
    if surplus:
        failures.append(SLICES.failure(f"published, and not here: {_shorten(surplus)}"))
    return failures or [SLICES.success(f"{len(facts.published)} devices, as they are here")]


# ---------------------------------------------------------------- looking


async def look(
    sight: Sight,
    inventory: Inventory,
    ours: resources.Resources | None,
    published: list[Document] | None,
) -> Facts:
    """Reads all records of this node.

    `ours` is None if there is no API server to ask. `published` are the slices of all drivers on
    the node, and None if they could not be read.
    """
    # The checkpoints are read where they can be seen from here, and reported under the host's path.
    settings = sight.settings
    folder = sight.plugin_folder
    prepared, problems = checkpoint.read_claims(folder)
    devices, incomplete = _published_devices(published, settings.driver_name)
    whole = _devices_to_publish(settings, inventory, partitions=False)
    with_parts = _devices_to_publish(settings, inventory, partitions=True)
    return Facts(
        folder=str(names.plugin_folder(settings.kubelet_dir, settings.driver_name) / "claims"),
        is_there=folder.is_dir(),
        cdi_dir=str(settings.cdi_dir),
        driver=settings.driver_name,
        prepared=tuple(prepared),
        problems=tuple(problems),
        damaged=_damaged_files(str(folder / "claims")),
        cdi_files=_uids_with_cdi_file(str(sight.place(settings.cdi_dir)), settings.driver_name),
        possible=frozenset(claim.uid for claim in prepared if _is_whole(claim, inventory)),
        given=await _ask_kubelet(sight),
        claims=await _compare_with_api(ours, prepared, settings) if ours is not None else None,
        expected=with_parts,
        at_least=whole & with_parts,
        published=devices,
        incomplete=incomplete,
    )


def claims_by_address(prepared: Iterable[PreparedClaim]) -> dict[str, list[str]]:
    """Returns the titles of the claims that hold each GPU, by its PCI address."""
    claims: dict[str, list[str]] = {}
    for claim in prepared:
        for device in claim.devices:
            claims.setdefault(device.address, []).append(claim.title)
    return claims


def _damaged_files(folder: str) -> tuple[str, ...]:
    marker = checkpoint.DAMAGED.partition("{")[0]
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return ()
    return tuple([name for name in names if marker in name])


def _uids_with_cdi_file(folder: str, driver: str) -> frozenset[str] | None:
    prefix = names.cdi_prefix(driver)
    try:
        entries = os.listdir(folder)
    except OSError:
        return None

    # Other drivers write into the same folder.
    uids = set()
    for entry in entries:
        if entry.startswith(prefix) and entry.endswith(".json"):
            uids.add(entry.removeprefix(prefix).removesuffix(".json"))
    return frozenset(uids)


def _is_whole(claim: PreparedClaim, inventory: Inventory) -> bool:
    """Returns True if all GPUs of the claim are there."""
    try:
        for device in claim.devices:
            gpu_of(device, inventory)
    except errors.ClaimError:
        return False
    return True


async def _ask_kubelet(sight: Sight) -> dict[str, str] | None:
    """Returns the pod of each claim, by UID, whose CDI devices the kubelet gave to a container."""
    socket = names.pod_resources_socket(sight.place(sight.settings.kubelet_dir))
    if not socket.exists():
        return None
    try:
        pods = await podresources.pods(socket)
    except ConnectionError:
        return None

    # A CDI id is KIND=DEVICE, and the names of our devices begin with the claim's UID.
    pods_by_claim = {}
    for (namespace, name), claims in pods.items():
        for id_ in itertools.chain.from_iterable(claims.values()):
            kind, _, device = id_.partition("=")
            if kind == names.CDI_KIND:
                pods_by_claim[device[:_UID]] = f"pod {namespace}/{name}"
    return pods_by_claim


async def _compare_with_api(
    ours: resources.Resources, prepared: list[PreparedClaim], settings: Config
) -> dict[str, str] | None:
    """Returns the fault of each claim, by title, or None if the API server does not answer."""
    troubles = {}
    for known in prepared[:_MOST_CLAIMS]:
        try:
            claim = await ours.claim(known.namespace, known.name)
        except kube_errors.NotFound:
            troubles[known.title] = "it is prepared here, and there is no such claim any more"
            continue
        except kube_errors.ApiError:
            return None

        # Another UID under the same name is another claim.
        if claim.metadata.uid != known.uid:
            troubles[known.title] = "it is prepared here, and was deleted and created again since"
            continue

        # The pool of a result is the node that has the device.
        allocation = claim.status.allocation
        results = allocation.devices.results if allocation else []
        is_here = False
        for result in results:
            if result.driver == settings.driver_name and result.pool == settings.node_name:
                is_here = True
        if settings.node_name and not is_here:
            troubles[known.title] = "it is prepared here, and not allocated to this node any more"
    return troubles


def _devices_to_publish(
    settings: Config, inventory: Inventory, *, partitions: bool
) -> frozenset[str]:
    """Returns the names of the devices in the slices that `claimd run` would build."""
    options = slices.Options(
        partitions=partitions,
        numa_list=settings.numa_list,
        sharing=sharing.parse(settings.share),
    )
    built, _ = slices.build(inventory, settings.driver_name, settings.node_name or "node", options)

    names_of_devices: set[str] = set()
    for slice_ in built:
        names_of_devices.update(device.name for device in slice_.spec.devices)
    return frozenset(names_of_devices)


def _published_devices(
    published: list[Document] | None, driver: str
) -> tuple[dict[str, bool] | None, str]:
    """Returns our published devices, with True for a tainted one, and what the pool lacks.

    The second value is a sentence, or "" if the pool is complete.
    """
    if published is None:
        return None, ""

    specs = []
    for slice_ in published:
        if slice_["spec"].get("driver") == driver:
            specs.append(slice_["spec"])

    newest, lack = newest_generation(specs)
    devices = {}
    for spec in newest:
        for device in spec.get("devices") or ():
            devices[device["name"]] = bool(device.get("taints"))
    return devices, lack


def newest_generation(specs: Sequence[Document]) -> tuple[list[Document], str]:
    """Returns the specs of the newest generation of a pool, and a sentence if some are missing.

    The scheduler takes a pool only if it has all slices of its newest generation. Older slices do
    not count.
    """
    newest: list[Document] = []
    newest_number = 0
    for spec in specs:
        number = spec["pool"].get("generation", 0)
        if not newest or number > newest_number:
            newest, newest_number = [], number
        if number == newest_number:
            newest.append(spec)

    counts = [spec["pool"].get("resourceSliceCount", 0) for spec in newest]
    count = max(counts, default=0)
    if len(newest) >= count:
        return newest, ""
    lack = f"the pool has {len(newest)} of {count} slices: no scheduler takes a device of it"
    return newest, lack
