"""What the exit codes of all commands mean."""

OK = 0
FAILED = 1
USAGE = 2
