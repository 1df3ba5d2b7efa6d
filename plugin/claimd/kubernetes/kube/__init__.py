"""The client of the Kubernetes API server: credentials, connections, requests and watches.

`auth` finds the API server and our identity. `client` sends requests over kept connections. `watch`
keeps a live copy of a collection. `resources` has the typed operations of a node plugin. Only this
package sends requests to the API server.
"""
