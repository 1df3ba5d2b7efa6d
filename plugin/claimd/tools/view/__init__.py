"""`claimd view`: a page of the cluster's GPUs as they are now.

`world` keeps the cluster's objects, `rows` says what the page shows of a node, `timeline` what has
changed; `board` is all of that with versions, so that a browser is sent what is new to it.
`follow` brings changes from the API server to the board, `server` hands it out, `page/` shows it.
"""
