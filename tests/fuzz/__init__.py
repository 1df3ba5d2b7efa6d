"""Bytes that nobody should write, for everything that reads what others wrote.

    target              what reads, what it may answer, and what it is fed with
    targets             all of them: answers, requests, apiserver, streams, documents, notations, pages,
                        node, runtimes
    inputs              from good examples to bad ones
    reach               which lines of the product an input has reached
    test_targets        a hundred of each, the same every time
    python -m tests.fuzz --seconds 60 [TARGET …]
                        many, each of them from what reached something new before

An input that was found to do harm goes into tests/cases/fuzz/TARGET/, from where every run takes it.
"""
