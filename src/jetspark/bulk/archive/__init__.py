"""A stream's archive as rows: backups on disk, and snapshots while they come."""
