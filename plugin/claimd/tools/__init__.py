"""What people run: the command line, `explain`, `doctor` and `view`.

`cli` has one module per command; start there. `explain` says why a pod waits, `doctor` checks a
node, and `view` serves the page. No other wing may import this one, and the simulator is imported
only by the commands that start it.
"""
