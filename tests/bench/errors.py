"""What the benchmark raises. A figure that is over its limit is no error."""


class BenchError(Exception):
    """What was seen, what was expected, what to do."""
