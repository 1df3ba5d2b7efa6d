"""`claimd explain`: why a pod or a claim gets no devices."""

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
from .exit_codes import OK

if TYPE_CHECKING:
    from claimd.kubernetes.kube import client

    from ..explain.survey import Survey

# Beside 0: the answer is no, or open. 1 and 2 are errors, as everywhere.
PENDING = 3
UNKNOWN = 4


def run(arguments: argparse.Namespace) -> int:
    """Tell, and say by the exit code what the answer is: 0 could run, 3 pending, 4 unknown."""
    _check(arguments)
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
        objects = sources.from_files(arguments.file, scope)
    else:
        objects = asyncio.run(_from_cluster(arguments, scope))
    told, verdicts = _told(arguments, objects)
    print(told, end="")
    return _exit_code(verdicts)


def _check(arguments: argparse.Namespace) -> None:
    """What the grammar of the command line cannot say."""
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
    if "pending" in verdicts:
        return PENDING
    return UNKNOWN if "unknown" in verdicts else OK


# Questions


def _told(arguments: argparse.Namespace, objects: Objects) -> tuple[str, list[Verdict]]:
    """What is to be printed, and the verdict on each that was asked about."""
    changes = what_if.apply(
        objects, arguments.namespace, arguments.without or (), arguments.as_if_free or ()
    )
    is_json = arguments.output == "json"
    if arguments.pending:
        found = _survey(arguments, objects, changes)
        verdicts = [group.verdict for group in found.groups]
        if "pods" in objects.unseen:
            # Those that are not seen may wait as well.
            verdicts.append("unknown")
        if is_json:
            return output.text_of(text.survey_data(found)), verdicts
        return text.survey_text(found), verdicts

    answers = list(_answers(arguments, objects, changes))
    verdicts = [answer.verdict for answer in answers]
    if is_json:
        documents = [text.as_data(answer) for answer in answers]
        return output.text_of(documents[0] if len(documents) == 1 else documents), verdicts
    wide = _is_wide(arguments)
    return "\n".join(text.as_text(answer, wide=wide) for answer in answers), verdicts


def _survey(arguments: argparse.Namespace, objects: Objects, changes: Sequence[str]) -> Survey:
    return survey.of(
        objects,
        namespace="" if arguments.all_namespaces else arguments.namespace,
        node=arguments.node,
        time_limit=arguments.timeout,
        changes=changes,
    )


def _answers(
    arguments: argparse.Namespace, objects: Objects, changes: Sequence[str]
) -> Iterator[Answer]:
    """One answer, or one for each pod or claim that a file would make."""
    settings: dict[str, Any] = {
        "node": arguments.node or arguments.on,
        "time_limit": arguments.timeout,
        "full": _is_wide(arguments),
    }
    if arguments.class_name:
        answer = pending.of_class(objects, arguments.class_name, **settings)
        yield pending.changed(answer, changes)
        return

    new = bool(arguments.dry)
    if new:
        made, workloads = sources.would_be_made(arguments.dry, arguments.namespace)
        objects.put(made)
        subjects = pending.would_be(made)
    else:
        workloads = []
        subjects = [pending.find(objects, arguments.name, arguments.namespace)]
    for subject in subjects:
        its_changes = list(changes)
        if arguments.on:
            subject, change = what_if.on_node(subject, arguments.on)  # noqa: PLW2901
            its_changes.append(change)
        answer = pending.report(objects, subject, new=new, **settings)
        answer = pending.of_workload(answer, subject, workloads)
        yield pending.changed(answer, its_changes)


# The cluster that kubectl would ask


async def _from_cluster(arguments: argparse.Namespace, scope: sources.Scope) -> Objects:
    async with _client(arguments) as api:
        return await sources.from_cluster(api, scope)


async def _watch(arguments: argparse.Namespace, scope: sources.Scope) -> int:
    """Tell each answer that is not the one before; returns when there is nothing to wait for."""
    from ..explain import live  # once is asked for more often

    before = ""
    async with _client(arguments) as api, live.watched(api, scope) as copy:
        while True:
            told, verdicts, is_over = _at_this_moment(arguments, copy.objects)
            if told != before:
                stamp = datetime.datetime.now().astimezone()
                rule = f"--- {stamp:%H:%M:%S} ---\n" if arguments.output != "json" else ""
                print(f"{rule}{told}", end="", flush=True)
                before = told
            if is_over:
                return _exit_code(verdicts)
            await copy.changed()


def _at_this_moment(
    arguments: argparse.Namespace, objects: Callable[[], Objects]
) -> tuple[str, list[Verdict], bool]:
    """What is to be told, the verdicts, and whether nothing is left to wait for."""
    try:
        told, verdicts = _told(arguments, objects())
    except errors.Fatal as error:
        # It may come, or come back.
        return f"{error}\n", ["unknown"], False
    is_over = bool(verdicts) and set(verdicts) == {"settled"} and not arguments.pending
    return told, verdicts, is_over


@contextlib.asynccontextmanager
async def _client(arguments: argparse.Namespace) -> AsyncIterator[client.Client]:
    from claimd.kubernetes.kube import auth, client  # files are read without them
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
