"""The demo: tells a story from a data file on the terminal, with a simulated cluster.

It is an ordinary client of the cluster: it reads objects, and never the state of other
components.
"""
