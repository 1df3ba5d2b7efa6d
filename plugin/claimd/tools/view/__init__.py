"""`claimd view`: a page of the cluster's GPUs as they are now.

`world` keeps the cluster's objects. `rows` and `timeline` turn them into what the page shows: the
devices of each node, and recent changes. `board` holds all of that with versions, so that a browser
gets only what is new to it. `follow` brings changes from the API server to the board, `server`
serves the board over HTTP, and `page/` is the page itself. Start with `follow`.
"""
