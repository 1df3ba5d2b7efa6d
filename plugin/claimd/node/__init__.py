"""What runs on a node: the kubelet plugin that the DaemonSet starts as `claimd run`.

`app` builds every part and starts the servers: start reading there. A claim then goes through
`kubelet` (gRPC), `prepare` (checkpoint and CDI), and `report` (claim status). Slices come from
`publish`. Nothing here may import the tools, the simulator, CEL or the allocator.
"""
