"""The edge to the kubelet, with sockets, registration, and prepare and unprepare as RPCs.

The only importer of grpc. No decision about a claim is made here.
"""
