"""What is true of Kubernetes no matter who asks: objects, CEL, the allocator, scheduling, the API client.

`api` has the objects and their versions, `cel` evaluates expressions, `allocator` chooses devices
as Kubernetes' own does, `scheduling` has the scheduler's filters, and `kube` talks to the API
server. Start with `api.resource` and `kube.client`. Nothing here may know claimd's own GPUs.
"""
