"""The kubelet's part: plugins registered and called, pods of a node run, as a real kubelet does it.

To the API server it is an ordinary client, to drivers the other end of their sockets. What a driver
answers is believed as a kubelet believes it, and no more is known of drivers here.
"""
