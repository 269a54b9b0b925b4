"""Blocking links to a server: sockets, requests, and who leads a stream. No event loop."""
