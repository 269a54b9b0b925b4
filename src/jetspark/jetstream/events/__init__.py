"""JetStream's advisories and metrics."""
