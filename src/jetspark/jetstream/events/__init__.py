"""Advisories, metrics and API audits: the events that JetStream publishes."""
