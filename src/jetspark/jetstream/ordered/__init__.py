"""Ordered consumers, and watching what a stream's subjects hold."""
