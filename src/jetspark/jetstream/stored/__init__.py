"""Stored messages: read without a consumer, deleted one by one."""
