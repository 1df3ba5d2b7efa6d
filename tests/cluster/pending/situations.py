"""Pods that wait for one reason each, and a few that do not, in the order of their recording."""

from tests.cluster.pending import (
    situations_of_devices,
    situations_of_neighbours,
    situations_of_pods,
)

SITUATIONS = (
    *situations_of_pods.SITUATIONS,
    *situations_of_devices.SITUATIONS,
    *situations_of_neighbours.SITUATIONS,
)
