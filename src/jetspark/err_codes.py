"""The `err_code` numbers in JetStream's error answers, each named once. Values only."""

from __future__ import annotations

from typing import Final

# -- the API -----------------------------------------------------------------------------------

CLUSTER_NOT_AVAILABLE: Final = 10008
NOT_LEADER: Final = 10009
CONSUMER_NAME_IN_USE: Final = 10013
CONSUMER_NOT_FOUND: Final = 10014
INSUFFICIENT_RESOURCES: Final = 10023
MESSAGE_NOT_FOUND: Final = 10037
NOT_ENABLED_FOR_ACCOUNT: Final = 10039
SEQUENCE_NOT_FOUND: Final = 10043
MESSAGE_TOO_LARGE: Final = 10054
MESSAGE_DELETE_FAILED: Final = 10057
STREAM_NAME_IN_USE: Final = 10058
STREAM_NOT_FOUND: Final = 10059
SUBJECT_OVERLAP: Final = 10065
NOT_ENABLED: Final = 10076
WORK_QUEUE_UNFILTERED: Final = 10099
WORK_QUEUE_OVERLAP: Final = 10100
STREAM_EXISTS_RESTORE: Final = 10130
CONSUMER_EXISTS: Final = 10148
CONSUMER_DOES_NOT_EXIST: Final = 10149
TOO_MANY_REQUESTS: Final = 10167
API_LEVEL_TOO_LOW: Final = 10185

# -- publishing --------------------------------------------------------------------------------

WRONG_LAST_MSG_ID: Final = 10070
WRONG_LAST_SEQUENCE: Final = 10071
ID_IN_PROCESS: Final = 10158
"""The replicas have not agreed yet on an earlier message with this Nats-Msg-Id."""
WRONG_LAST_SEQUENCE_CONSTANT: Final = 10164
"""The replicas have not agreed yet on an earlier message of the subject, so the server could not
compare the expected last sequence. Unlike `WRONG_LAST_SEQUENCE` it decides nothing.
"""

# -- features that the stream's configuration has to allow --------------------------------------

TTL_DISABLED: Final = 10166
COUNTERS_DISABLED: Final = 10168
ATOMIC_DISABLED: Final = 10174
SCHEDULES_DISABLED: Final = 10188
BATCHED_DISABLED: Final = 10205

# -- atomic batches and fast ingest (ADR-50) -----------------------------------------------------

ATOMIC_MISSING_SEQUENCE: Final = 10175
BATCH_INCOMPLETE: Final = 10176
ATOMIC_UNSUPPORTED_HEADER: Final = 10177
ATOMIC_INVALID_ID: Final = 10179
ATOMIC_TOO_LARGE: Final = 10199
ATOMIC_INVALID_COMMIT: Final = 10200
ATOMIC_DUPLICATE_MESSAGE: Final = 10201
BATCHED_INVALID_PATTERN: Final = 10206
BATCHED_INVALID_ID: Final = 10207
BATCH_UNKNOWN: Final = 10208
MIRROR_WITH_BATCHED: Final = 10209
TOO_MANY_BATCHES: Final = 10210
BATCHED_TOO_MANY: Final = 10211
