"""The demo: a story from a data file, told on the terminal while a simulated cluster lives through
it.

It is a client of the cluster like any other: it looks at objects, and never into the parts that
make them.
"""
