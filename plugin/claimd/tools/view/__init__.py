"""`claimd view`: a page with the current state of the cluster's GPUs.

Start with `follow`, which brings changes from the API server to the board. `world` keeps the
cluster's objects. `rows` and `timeline` turn them into the content of the page: the devices of each
node, and recent changes. `board` holds all of that with versions, so that a browser gets only what
is new to it. `server` serves the board over HTTP, and `page/` is the page itself.
"""
