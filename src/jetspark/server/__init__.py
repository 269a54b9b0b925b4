"""Finds, starts, watches and stops a real nats-server."""
