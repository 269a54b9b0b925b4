"""The NATS client protocol as bytes: parse and build, no I/O."""
