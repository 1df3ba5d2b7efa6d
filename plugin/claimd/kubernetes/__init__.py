"""The knowledge of Kubernetes that the node plugin, the tools and the simulator share.

`api` has the objects and their versions. `cel` evaluates CEL expressions. `allocator` chooses
devices as Kubernetes' own allocator does. `scheduling` has the scheduler's filters. `kube` is the
client of the API server. Start reading with `api.resource` and `kube.client`.

No module of this package may know about claimd's own GPUs or its driver.
"""
