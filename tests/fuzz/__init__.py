"""Bytes that nobody should write, for everything that reads what others wrote.

    targets             what reads, what it may answer, and what it is fed with
    inputs              from good examples to bad ones
    test_targets        a second of each
    python -m tests.fuzz --seconds 60 [TARGET …]

An input that was found to do harm goes into tests/cases/fuzz/TARGET/, from where every run takes it.
"""
