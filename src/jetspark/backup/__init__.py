"""Backups of streams: the folder on disk and what is in it, backing up, restoring.

`folder` and `archive` need neither a server nor the client; `save` and `restore` do.
"""

from jetspark.backup.folder import BackupProgress as BackupProgress
from jetspark.backup.folder import StreamBackup as StreamBackup
from jetspark.backup.folder import verify_backup as verify_backup
