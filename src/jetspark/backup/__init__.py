"""Backups of streams: the folder on disk and what is in it, backing up, restoring.

Only `save` and `restore` need a server and the client.
"""

from jetspark.backup.folder import BackupProgress as BackupProgress
from jetspark.backup.folder import StreamBackup as StreamBackup
from jetspark.backup.folder import verify_backup as verify_backup
