"""The simulated kubelet: registers and calls plugins, and runs the pods of one node.

It is an ordinary client of the API server, and the other end of the drivers' sockets. It trusts a
driver's answer as a real kubelet does, and knows nothing else about drivers.
"""
