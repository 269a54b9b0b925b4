"""Backup of a stream into a folder, and restore from it."""
