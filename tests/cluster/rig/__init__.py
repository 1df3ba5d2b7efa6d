"""A real one-node Kubernetes on this machine: etcd, kube-apiserver, controllers, scheduler,
containerd and kubelet.

For the cluster suite and for trying things out by hand; the standard library alone, so that any
Python runs it. It knows nothing of claimd: no test, no manifest and no driver may appear here.
"""
