"""The commands that people run: the command line, `explain`, `doctor` and `view`.

Start in `cli`, which has one module per command. `explain` says why a pod waits, `doctor` checks a
node, and `view` serves the page. No other wing may import this one. Only the commands that start
the simulator import it.
"""
