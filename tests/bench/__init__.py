"""The benchmark: any DRA driver against a real kube-apiserver, with the benchmark in the kubelet's
place.

No figure of another machine, and no knowledge of claimd except in `ours`: whatever serves the
kubelet can be measured.
"""
