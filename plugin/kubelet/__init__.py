"""The kubelet edge, the only importer of grpc: sockets, registration, prepare and unprepare as RPCs.

No decision about a claim is made here.
"""
