"""Containers that get a GPU: real runtimes, images of several kinds, drivers of every layout.

Each test makes a machine of its own, a mount namespace whose root is this one's with a driver laid
over it. claimd's CDI spec is built there, merged by the library that containerd uses, and run.
Needs root, runc or crun, gcc, Go and Debian's packages: `make containers`.
"""
