"""resource.k8s.io/v1beta2, as Kubernetes 1.37 serves it. Its fields are those of v1."""

from .v1 import *  # noqa: F403
