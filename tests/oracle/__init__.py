"""Kubernetes' own code beside ours, for comparison only; each folder is a Go program with a go.mod
of its own.
"""
