"""Clusters for the tests of other projects: for any command, and for pytest suites.

words           parses nodes from a command line or a test
    command         runs `claimd sim … -- COMMAND`
    conversation    runs a cluster that a test controls by lines of JSON
    operations      implements the operations of such a test
    account         describes the cluster's state for a failed test

The client of the conversation is `claimd.sim.testing.pytest_plugin`. `claimd.sim.cluster` builds
the cluster.
"""
