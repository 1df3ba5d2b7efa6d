"""`claimd explain`: why a pod or a claim gets no devices."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Iterator

from .. import config, errors
from ..explain import pending, sources, text
from ..explain.answer import Answer
from ..explain.objects import Objects
from . import output
from .exit_codes import OK


def run(arguments: argparse.Namespace) -> int:
    if arguments.file:
        objects = sources.from_files(arguments.file)
    else:
        objects = asyncio.run(_from_cluster(arguments))

    answers = list(_answers(arguments, objects))
    if arguments.output == "json":
        documents = [text.as_data(answer) for answer in answers]
        output.document(documents[0] if len(documents) == 1 else documents, "json")
    else:
        print("\n".join(map(text.as_text, answers)), end="")
    return OK


def _answers(arguments: argparse.Namespace, objects: Objects) -> Iterator[Answer]:
    """One answer, or one for each pod or claim that a file would make."""
    node, time_limit = arguments.node, arguments.timeout
    if arguments.class_name:
        yield pending.of_class(objects, arguments.class_name, node=node, time_limit=time_limit)
        return
    if not arguments.dry:
        subject = pending.find(objects, arguments.name, arguments.namespace)
        yield pending.report(objects, subject, node=node, time_limit=time_limit)
        return

    made, workloads = sources.would_be_made(arguments.dry, arguments.namespace)
    objects.put(made)
    for subject in pending.would_be(made):
        answer = pending.report(objects, subject, node=node, new=True, time_limit=time_limit)
        yield pending.of_workload(answer, subject, workloads)


async def _from_cluster(arguments: argparse.Namespace) -> Objects:
    """The objects of the cluster that kubectl would ask."""
    from ..kube import auth, client  # files are read without them
    from ..kube import errors as kube_errors

    settings = config.load(vars(arguments))
    client_config = auth.as_kubectl(
        settings.kubeconfig, arguments.context, settings.service_account, os.environ
    )
    api = client.Client(client_config, agent="claimd-explain")
    try:
        return await sources.from_cluster(api, arguments.namespace)
    except kube_errors.ApiError as error:
        raise errors.Fatal(str(error)) from error
    finally:
        await api.close()
