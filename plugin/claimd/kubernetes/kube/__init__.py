"""The API server: who we are there, requests, watches, and what a node plugin asks of it. HTTP
lives here alone.
"""
