"""The rig: a real one-node Kubernetes on this machine, with etcd, kube-apiserver, controllers,
scheduler, container runtime and kubelet.

The rig serves the cluster suite and experiments by hand. It needs the standard library only, so any
Python runs it. It knows nothing about claimd: tests, manifests and drivers do not belong here.
"""
