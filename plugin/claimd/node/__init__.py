"""The part that runs on a node: the kubelet plugin that the DaemonSet starts as `claimd run`.

Start reading in `app`, which builds every part and starts the servers. A claim then goes through
`kubelet` (gRPC), `prepare` (checkpoint and CDI), and `report` (claim status). `publish` writes the
slices. This package must not import the tools, the simulator, CEL or the allocator.
"""
