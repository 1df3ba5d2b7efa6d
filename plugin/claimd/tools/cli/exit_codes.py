"""The exit codes of all commands."""

OK = 0
FAILED = 1
USAGE = 2  # the arguments, the settings or their values are wrong

# `claimd explain` answers with these, in addition to OK for a pod that could run.
PENDING = 3
UNKNOWN = 4

# `claimd doctor` answers with these, in addition to OK for a node with notes at most.
WARNINGS_FOUND = 3
ERRORS_FOUND = 4
