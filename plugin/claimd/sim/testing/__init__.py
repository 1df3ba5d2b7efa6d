"""A cluster for tests of others: of a program that is a command, and of a suite in pytest.

    words           nodes as a command line or a test names them
    command         `claimd sim … -- COMMAND`
    conversation    a cluster that a test in another process leads by lines of JSON
    operations      what such a test may ask for
    account         what the cluster saw, for a test that fails

The other end of the conversation is `claimd.sim.testing.pytest_plugin`. What a cluster is stands in
`claimd.sim.cluster`.
"""
