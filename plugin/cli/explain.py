"""`claimd explain`: why a pod or a claim gets no devices."""

from __future__ import annotations

import argparse
import asyncio
import os

from .. import config, errors
from ..explain import pending, sources
from ..explain.sources import Objects
from . import output
from .exit_codes import OK


def run(arguments: argparse.Namespace) -> int:
    namespace, node = arguments.namespace, arguments.node
    if arguments.file:
        objects = sources.from_files(arguments.file)
    else:
        objects = asyncio.run(_from_cluster(arguments))

    if arguments.class_name:
        report = pending.of_class(objects, arguments.class_name, node=node)
    elif arguments.dry:
        dry = sources.from_files([arguments.dry], namespace)
        objects.put(dry)
        report = pending.report(objects, pending.would_be(dry), node=node, new=True)
    else:
        subject = pending.find(objects, arguments.name, namespace)
        report = pending.report(objects, subject, node=node)

    if arguments.output == "json":
        output.document(pending.as_data(report), "json")
    else:
        print(pending.as_text(report), end="")
    return OK


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
