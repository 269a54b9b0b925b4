"""Stored messages: read without a consumer (direct gets, or from the leader), and deleted."""
