"""NATS JetStream and Apache Spark from Python."""

__version__ = "0.1.0"
