"""resource.k8s.io/v1beta2: in Kubernetes 1.37 field for field the same as v1."""

from .v1 import *  # noqa: F403
