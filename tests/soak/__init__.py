"""The soak: claimd on the rig's real cluster for minutes, while whatever it leans on is killed,
frozen and replaced.

The campaigns in tests/faults play the kubelet; here everything is real but the GPUs. No code of
plugin/ is used except the stubs of the kubelet's protocol.
"""
