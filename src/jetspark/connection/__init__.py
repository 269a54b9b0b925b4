"""One logical link to a NATS deployment."""
