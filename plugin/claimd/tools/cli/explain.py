"""`claimd explain`: says why a pod or a claim gets no devices."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from claimd.common import errors
from claimd.node import config

from ..explain import pending, sources, survey, text, what_if
from ..explain.answer import Answer, Verdict
from ..explain.objects import Objects
from . import output
from .exit_codes import OK, PENDING, UNKNOWN

if TYPE_CHECKING:
    from claimd.kubernetes.kube import client

    from ..explain.survey import Survey


def run(arguments: argparse.Namespace) -> int:
    """Prints the answer. The exit code repeats it: OK if the pod could run, PENDING or UNKNOWN."""
    _check_flags(arguments)
    scope = sources.Scope(
        namespace=arguments.namespace,
        name=arguments.name or "",
        everywhere=arguments.all_namespaces,
    )
    if arguments.watch:
        with contextlib.suppress(KeyboardInterrupt):
            return asyncio.run(_watch(arguments, scope))
        return OK

    if arguments.file:
        objects = sources.read_files(arguments.file, scope)
    else:
        objects = asyncio.run(_from_cluster(arguments, scope))
    report, verdicts = _report(arguments, objects)
    print(report, end="")
    return _exit_code(verdicts)


def _check_flags(arguments: argparse.Namespace) -> None:
    """Raises UsageError for flags that exclude each other, which argparse cannot check."""
    if arguments.all_namespaces and not arguments.pending:
        raise errors.UsageError("--all-namespaces is for --pending: a pod has one namespace")
    if arguments.watch and arguments.file:
        raise errors.UsageError("--watch asks a cluster: files do not change")
    if arguments.watch and arguments.dry and str(arguments.dry) == "-":
        raise errors.UsageError(
            "--watch looks at what --dry would make again and again, and standard input can be "
            "read once: give --dry a file"
        )
    if arguments.on and arguments.pending:
        raise errors.UsageError("--on NODE is for one pod: --pending takes --node NODE")
    if arguments.on and arguments.node:
        raise errors.UsageError("--on NODE looks at that node alone: leave out --node")


def _is_wide(arguments: argparse.Namespace) -> bool:
    return arguments.output == "wide" or bool(arguments.all)


def _exit_code(verdicts: Sequence[Verdict]) -> int:
    # If several pods are asked about, one that cannot run decides the code.
    if "pending" in verdicts:
        return PENDING
    return UNKNOWN if "unknown" in verdicts else OK


# Questions


def _report(arguments: argparse.Namespace, objects: Objects) -> tuple[str, list[Verdict]]:
    """Returns the text to print, and the verdict on each pod, claim or class of the question."""
    # The changes of --without and --as-if-free hold for every question below.
    changes = what_if.apply_changes(
        objects, arguments.namespace, arguments.without or (), arguments.as_if_free or ()
    )
    is_json = arguments.output == "json"
    if arguments.pending:
        groups = _survey(arguments, objects, changes)
        verdicts = [group.verdict for group in groups.groups]
        if "pods" in objects.unseen:
            # A pod that we may not see could be waiting as well.
            verdicts.append("unknown")
        if is_json:
            return output.json_text(text.survey_data(groups)), verdicts
        return text.survey_text(groups), verdicts

    answers = list(_answers(arguments, objects, changes))
    verdicts = [answer.verdict for answer in answers]
    if is_json:
        documents = [text.as_data(answer) for answer in answers]
        return output.json_text(documents[0] if len(documents) == 1 else documents), verdicts

    wide = _is_wide(arguments)
    return "\n".join(text.as_text(answer, wide=wide) for answer in answers), verdicts


def _survey(arguments: argparse.Namespace, objects: Objects, changes: Sequence[str]) -> Survey:
    return survey.survey_pods(
        objects,
        namespace="" if arguments.all_namespaces else arguments.namespace,
        node=arguments.node,
        time_limit=arguments.timeout,
        changes=changes,
    )


def _answers(
    arguments: argparse.Namespace, objects: Objects, changes: Sequence[str]
) -> Iterator[Answer]:
    """Yields the answer. With --dry there is one for each pod or claim in the file."""
    settings: dict[str, Any] = {
        "node": arguments.node or arguments.on,
        "time_limit": arguments.timeout,
        "full": _is_wide(arguments),
    }
    if arguments.class_name:
        answer = pending.report_class(objects, arguments.class_name, **settings)
        yield pending.with_changes(answer, changes)
        return

    # The objects of --dry join those of the cluster, so that they can refer to each other.
    is_new = bool(arguments.dry)
    if is_new:
        new_objects, workloads = sources.read_manifests(arguments.dry, arguments.namespace)
        objects.merge(new_objects)
        subjects = pending.subjects_of_manifest(new_objects)
    else:
        workloads = []
        subjects = [pending.find_subject(objects, arguments.name, arguments.namespace)]

    for subject in subjects:
        its_changes = list(changes)
        if arguments.on:
            subject, change = what_if.pin_to_node(subject, arguments.on)  # noqa: PLW2901
            its_changes.append(change)
        answer = pending.report(objects, subject, new=is_new, **settings)
        answer = pending.about_workload(answer, subject, workloads)
        yield pending.with_changes(answer, its_changes)


# The cluster that kubectl would use


async def _from_cluster(arguments: argparse.Namespace, scope: sources.Scope) -> Objects:
    async with _client(arguments) as api:
        return await sources.read_cluster(api, scope)


async def _watch(arguments: argparse.Namespace, scope: sources.Scope) -> int:
    """Prints the answer whenever it changes, until the pod or claim is settled.

    Returns the exit code of the last answer. With --pending only Ctrl-C ends the watch.
    """
    # Most questions are asked once, and need no watches.
    from ..explain import live

    last_report = ""
    async with _client(arguments) as api, live.watch_cluster(api, scope) as copy:
        while True:
            report, verdicts, is_over = _current_report(arguments, copy.objects)
            if report != last_report:
                stamp = datetime.datetime.now().astimezone()
                rule = f"--- {stamp:%H:%M:%S} ---\n" if arguments.output != "json" else ""
                print(f"{rule}{report}", end="", flush=True)
                last_report = report

            if is_over:
                return _exit_code(verdicts)
            await copy.wait_for_change()


def _current_report(
    arguments: argparse.Namespace, objects: Callable[[], Objects]
) -> tuple[str, list[Verdict], bool]:
    """Returns the text to print, the verdicts, and True if the watch has nothing to wait for."""
    try:
        report, verdicts = _report(arguments, objects())
    except errors.Fatal as error:
        # An object that is missing now may be created while we watch.
        return f"{error}\n", ["unknown"], False

    is_over = bool(verdicts) and set(verdicts) == {"settled"} and not arguments.pending
    return report, verdicts, is_over


@contextlib.asynccontextmanager
async def _client(arguments: argparse.Namespace) -> AsyncIterator[client.Client]:
    # Files are read without a client.
    from claimd.kubernetes.kube import auth, client
    from claimd.kubernetes.kube import errors as kube_errors

    settings = config.load(vars(arguments))
    client_config = auth.as_kubectl(
        settings.kubeconfig, arguments.context, settings.service_account, os.environ
    )
    api = client.Client(client_config, agent="claimd-explain")
    try:
        yield api
    except kube_errors.ApiError as error:
        raise errors.Fatal(str(error)) from error
    finally:
        await api.close()
