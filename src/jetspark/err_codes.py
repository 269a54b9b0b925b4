"""The `err_code` numbers in JetStream's error answers, each named as in nats-server. Values only.

Made by `python scripts/error_codes.py`, which says from what.
"""

# ruff: noqa: E501

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# fmt: off
TABLE: Final[Mapping[int, tuple[str, str]]] = {
    10002: ("AccountResourcesExceeded", "resource limits exceeded for account"),
    10003: ("BadRequest", "bad request"),
    10004: ("ClusterIncomplete", "incomplete results"),
    10005: ("ClusterNoPeers", "{err}"),
    10006: ("ClusterNotActive", "JetStream not in clustered mode"),
    10007: ("ClusterNotAssigned", "JetStream cluster not assigned to this server"),
    10008: ("ClusterNotAvail", "JetStream system temporarily unavailable"),
    10009: ("ClusterNotLeader", "JetStream cluster can not handle request"),
    10010: ("ClusterRequired", "JetStream clustering support required"),
    10011: ("ClusterTags", "tags placement not supported for operation"),
    10012: ("ConsumerCreate", "{err}"),
    10013: ("ConsumerNameExist", "consumer name already in use"),
    10014: ("ConsumerNotFound", "consumer not found"),
    10015: ("SnapshotDeliverSubjectInvalid", "deliver subject not valid"),
    10016: ("ConsumerDurableNameNotInSubject", "consumer expected to be durable but no durable name set in subject"),
    10017: ("ConsumerDurableNameNotMatchSubject", "consumer name in subject does not match durable name in request"),
    10018: ("ConsumerDurableNameNotSet", "consumer expected to be durable but a durable name was not set"),
    10019: ("ConsumerEphemeralWithDurableInSubject", "consumer expected to be ephemeral but detected a durable name set in subject"),
    10020: ("ConsumerEphemeralWithDurableName", "consumer expected to be ephemeral but a durable name was set in request"),
    10021: ("StreamExternalApiOverlap", "stream external api prefix {prefix} must not overlap with {subject}"),
    10022: ("StreamExternalDelPrefixOverlaps", "stream external delivery prefix {prefix} overlaps with stream subject {subject}"),
    10023: ("InsufficientResources", "insufficient resources"),
    10024: ("StreamInvalidExternalDeliverySubj", "stream external delivery prefix {prefix} must not contain wildcards"),
    10025: ("InvalidJSON", "invalid JSON: {err}"),
    10026: ("MaximumConsumersLimit", "maximum consumers limit reached"),
    10027: ("MaximumStreamsLimit", "maximum number of streams reached"),
    10028: ("MemoryResourcesExceeded", "insufficient memory resources available"),
    10029: ("MirrorConsumerSetupFailed", "{err}"),
    10030: ("MirrorMaxMessageSizeTooBig", "stream mirror must have max message size >= source"),
    10031: ("MirrorWithSources", "stream mirrors can not also contain other sources"),
    10032: ("MirrorWithStartSeqAndTime", "stream mirrors can not have both start seq and start time configured"),
    10033: ("MirrorWithSubjectFilters", "stream mirrors can not contain filtered subjects"),
    10034: ("MirrorWithSubjects", "stream mirrors can not contain subjects"),
    10035: ("NoAccount", "account not found"),
    10036: ("ClusterUnSupportFeature", "not currently supported in clustered mode"),
    10037: ("NoMessageFound", "no message found"),
    10038: ("NotEmptyRequest", "expected an empty request payload"),
    10039: ("NotEnabledForAccount", "JetStream not enabled for account"),
    10040: ("ClusterPeerNotMember", "peer not a member"),
    10041: ("RaftGeneral", "{err}"),
    10042: ("RestoreSubscribeFailed", "JetStream unable to subscribe to restore snapshot {subject}: {err}"),
    10043: ("SequenceNotFound", "sequence {seq} not found"),
    10044: ("ClusterServerNotMember", "server is not a member of the cluster"),
    10045: ("SourceConsumerSetupFailed", "{err}"),
    10046: ("SourceMaxMessageSizeTooBig", "stream source must have max message size >= target"),
    10047: ("StorageResourcesExceeded", "insufficient storage resources available"),
    10048: ("StreamAssignment", "{err}"),
    10049: ("StreamCreate", "{err}"),
    10050: ("StreamDelete", "{err}"),
    10051: ("StreamGeneral", "{err}"),
    10052: ("StreamInvalidConfig", "{err}"),
    10053: ("StreamLimits", "{err}"),
    10054: ("StreamMessageExceedsMaximum", "message size exceeds maximum allowed"),
    10055: ("StreamMirrorNotUpdatable", "stream mirror configuration can not be updated"),
    10056: ("StreamMismatch", "stream name in subject does not match request"),
    10057: ("StreamMsgDeleteFailed", "{err}"),
    10058: ("StreamNameExist", "stream name already in use with a different configuration"),
    10059: ("StreamNotFound", "stream not found"),
    10060: ("StreamNotMatch", "expected stream does not match"),
    10061: ("StreamReplicasNotUpdatable", "Replicas configuration can not be updated"),
    10062: ("StreamRestore", "restore failed: {err}"),
    10063: ("StreamSequenceNotMatch", "expected stream sequence does not match"),
    10064: ("StreamSnapshot", "snapshot failed: {err}"),
    10065: ("StreamSubjectOverlap", "subjects overlap with an existing stream"),
    10066: ("StreamTemplateCreate", "{err}"),
    10067: ("StreamTemplateDelete", "{err}"),
    10068: ("StreamTemplateNotFound", "template not found"),
    10069: ("StreamUpdate", "{err}"),
    10070: ("StreamWrongLastMsgID", "wrong last msg ID: {id}"),
    10071: ("StreamWrongLastSequence", "wrong last sequence: {seq}"),
    10072: ("TempStorageFailed", "JetStream unable to open temp storage for restore"),
    10073: ("TemplateNameNotMatchSubject", "template name in subject does not match request"),
    10074: ("StreamReplicasNotSupported", "replicas > 1 not supported in non-clustered mode"),
    10075: ("PeerRemap", "peer remap failed"),
    10076: ("NotEnabled", "JetStream not enabled"),
    10077: ("StreamStoreFailed", "{err}"),
    10078: ("ConsumerConfigRequired", "consumer config required"),
    10079: ("ConsumerDeliverToWildcards", "consumer deliver subject has wildcards"),
    10080: ("ConsumerPushMaxWaiting", "consumer in push mode can not set max waiting"),
    10081: ("ConsumerDeliverCycle", "consumer deliver subject forms a cycle"),
    10082: ("ConsumerMaxPendingAckPolicyRequired", "consumer requires ack policy for max ack pending"),
    10083: ("ConsumerSmallHeartbeat", "consumer idle heartbeat needs to be >= 100ms"),
    10084: ("ConsumerPullRequiresAck", "consumer in pull mode requires explicit ack policy on workqueue stream"),
    10085: ("ConsumerPullNotDurable", "consumer in pull mode requires a durable name"),
    10086: ("ConsumerPullWithRateLimit", "consumer in pull mode can not have rate limit set"),
    10087: ("ConsumerMaxWaitingNegative", "consumer max waiting needs to be positive"),
    10088: ("ConsumerHBRequiresPush", "consumer idle heartbeat requires a push based consumer"),
    10089: ("ConsumerFCRequiresPush", "consumer flow control requires a push based consumer"),
    10090: ("ConsumerDirectRequiresPush", "consumer direct requires a push based consumer"),
    10091: ("ConsumerDirectRequiresEphemeral", "consumer direct requires an ephemeral consumer"),
    10092: ("ConsumerOnMapped", "consumer direct on a mapped consumer"),
    10093: ("ConsumerFilterNotSubset", "consumer filter subject is not a valid subset of the interest subjects"),
    10094: ("ConsumerInvalidPolicy", "{err}"),
    10095: ("ConsumerInvalidSampling", "failed to parse consumer sampling configuration: {err}"),
    10096: ("StreamInvalid", "stream not valid"),
    10097: ("StreamHeaderExceedsMaximum", "header size exceeds maximum allowed of 64k"),
    10098: ("ConsumerWQRequiresExplicitAck", "workqueue stream requires explicit ack"),
    10099: ("ConsumerWQMultipleUnfiltered", "multiple non-filtered consumers not allowed on workqueue stream"),
    10100: ("ConsumerWQConsumerNotUnique", "filtered consumer not unique on workqueue stream"),
    10101: ("ConsumerWQConsumerNotDeliverAll", "consumer must be deliver all on workqueue stream"),
    10102: ("ConsumerNameTooLong", "consumer name is too long, maximum allowed is {max}"),
    10103: ("ConsumerBadDurableName", "durable name can not contain '.', '*', '>'"),
    10104: ("ConsumerStoreFailed", "error creating store for consumer: {err}"),
    10105: ("ConsumerExistingActive", "consumer already exists and is still active"),
    10106: ("ConsumerReplacementWithDifferentName", "consumer replacement durable config not the same"),
    10107: ("ConsumerDescriptionTooLong", "consumer description is too long, maximum allowed is {max}"),
    10108: ("ConsumerWithFlowControlNeedsHeartbeats", "consumer with flow control also needs heartbeats"),
    10109: ("StreamSealed", "invalid operation on sealed stream"),
    10110: ("StreamPurgeFailed", "{err}"),
    10111: ("StreamRollupFailed", "{err}"),
    10112: ("ConsumerInvalidDeliverSubject", "invalid push consumer deliver subject"),
    10113: ("StreamMaxBytesRequired", "account requires a stream config to have max bytes set"),
    10114: ("ConsumerMaxRequestBatchNegative", "consumer max request batch needs to be > 0"),
    10115: ("ConsumerMaxRequestExpiresTooSmall", "consumer max request expires needs to be >= 1ms"),
    10116: ("ConsumerMaxDeliverBackoff", "max deliver is required to be > length of backoff values"),
    10117: ("StreamInfoMaxSubjects", "subject details would exceed maximum allowed"),
    10118: ("StreamOffline", "stream is offline"),
    10119: ("ConsumerOffline", "consumer is offline"),
    10120: ("NoLimits", "no JetStream default or applicable tiered limit present"),
    10121: ("ConsumerMaxPendingAckExcess", "consumer max ack pending exceeds system limit of {limit}"),
    10122: ("StreamMaxStreamBytesExceeded", "stream max bytes exceeds account limit max stream bytes"),
    10123: ("StreamMoveAndScale", "can not move and scale a stream in a single update"),
    10124: ("StreamMoveInProgress", "stream move already in progress"),
    10125: ("ConsumerMaxRequestBatchExceeded", "consumer max request batch exceeds server limit of {limit}"),
    10126: ("ConsumerReplicasExceedsStream", "consumer config replica count exceeds parent stream"),
    10127: ("ConsumerNameContainsPathSeparators", "Consumer name can not contain path separators"),
    10128: ("StreamNameContainsPathSeparators", "Stream name can not contain path separators"),
    10129: ("StreamReconfigureNotInProgress", "stream reconfiguration not in progress"),
    10130: ("StreamNameExistRestoreFailed", "stream name already in use, cannot restore"),
    10131: ("ConsumerCreateFilterSubjectMismatch", "Consumer create request did not match filtered subject from create subject"),
    10132: ("ConsumerCreateDurableAndNameMismatch", "Consumer Durable and Name have to be equal if both are provided"),
    10133: ("ReplicasCountCannotBeNegative", "replicas count cannot be negative"),
    10134: ("ConsumerReplicasShouldMatchStream", "consumer config replicas must match interest retention stream's replicas"),
    10135: ("ConsumerMetadataLength", "consumer metadata exceeds maximum size of {limit}"),
    10136: ("ConsumerDuplicateFilterSubjects", "consumer cannot have both FilterSubject and FilterSubjects specified"),
    10137: ("ConsumerMultipleFiltersNotAllowed", "consumer with multiple subject filters cannot use subject based API"),
    10138: ("ConsumerOverlappingSubjectFilters", "consumer subject filters cannot overlap"),
    10139: ("ConsumerEmptyFilter", "consumer filter in FilterSubjects cannot be empty"),
    10140: ("SourceDuplicateDetected", "duplicate source configuration detected"),
    10141: ("SourceInvalidStreamName", "sourced stream name is invalid"),
    10142: ("MirrorInvalidStreamName", "mirrored stream name is invalid"),
    10143: ("MirrorWithFirstSeq", "stream mirrors can not have first sequence configured"),
    10144: ("SourceMultipleFiltersNotAllowed", "source with multiple subject transforms cannot also have a single subject filter"),
    10145: ("SourceInvalidSubjectFilter", "source transform source: {err}"),
    10146: ("SourceInvalidTransformDestination", "source transform: {err}"),
    10147: ("SourceOverlappingSubjectFilters", "source filters can not overlap"),
    10148: ("ConsumerAlreadyExists", "consumer already exists"),
    10149: ("ConsumerDoesNotExist", "consumer does not exist"),
    10150: ("MirrorMultipleFiltersNotAllowed", "mirror with multiple subject transforms cannot also have a single subject filter"),
    10151: ("MirrorInvalidSubjectFilter", "mirror transform source: {err}"),
    10152: ("MirrorOverlappingSubjectFilters", "mirror subject filters can not overlap"),
    10153: ("ConsumerInactiveThresholdExcess", "consumer inactive threshold exceeds system limit of {limit}"),
    10154: ("MirrorInvalidTransformDestination", "mirror transform: {err}"),
    10155: ("StreamTransformInvalidSource", "stream transform source: {err}"),
    10156: ("StreamTransformInvalidDestination", "stream transform: {err}"),
    10157: ("Pedantic", "pedantic mode: {err}"),
    10158: ("StreamDuplicateMessageConflict", "duplicate message id is in process"),
    10159: ("ConsumerPriorityPolicyWithoutGroup", "Setting PriorityPolicy requires at least one PriorityGroup to be set"),
    10160: ("ConsumerInvalidPriorityGroup", "Provided priority group does not exist for this consumer"),
    10161: ("ConsumerEmptyGroupName", "Group name cannot be an empty string"),
    10162: ("ConsumerInvalidGroupName", "Valid priority group name must match A-Z, a-z, 0-9, -_/=)+ and may not exceed 16 characters"),
    10163: ("StreamExpectedLastSeqPerSubjectNotReady", "expected last sequence per subject temporarily unavailable"),
    10164: ("StreamWrongLastSequenceConstant", "wrong last sequence"),
    10165: ("MessageTTLInvalid", "invalid per-message TTL"),
    10166: ("MessageTTLDisabled", "per-message TTL is disabled"),
    10167: ("StreamTooManyRequests", "too many requests"),
    10168: ("MessageIncrDisabled", "message counters is disabled"),
    10169: ("MessageIncrMissing", "message counter increment is missing"),
    10170: ("MessageIncrPayload", "message counter has payload"),
    10171: ("MessageIncrInvalid", "message counter increment is invalid"),
    10172: ("MessageCounterBroken", "message counter is broken"),
    10173: ("MirrorWithCounters", "stream mirrors can not also calculate counters"),
    10174: ("AtomicPublishDisabled", "atomic publish is disabled"),
    10175: ("AtomicPublishMissingSeq", "atomic publish sequence is missing"),
    10176: ("AtomicPublishIncompleteBatch", "atomic publish batch is incomplete"),
    10177: ("AtomicPublishUnsupportedHeaderBatch", "atomic publish unsupported header used: {header}"),
    10178: ("ConsumerPushWithPriorityGroup", "priority groups can not be used with push consumers"),
    10179: ("AtomicPublishInvalidBatchID", "atomic publish batch ID is invalid"),
    10180: ("StreamMinLastSeq", "min last sequence"),
    10181: ("ConsumerAckPolicyInvalid", "consumer ack policy invalid"),
    10182: ("ConsumerReplayPolicyInvalid", "consumer replay policy invalid"),
    10183: ("ConsumerAckWaitNegative", "consumer ack wait needs to be positive"),
    10184: ("ConsumerBackOffNegative", "consumer backoff needs to be positive"),
    10185: ("RequiredApiLevel", "JetStream minimum api level required"),
    10186: ("MirrorWithMsgSchedules", "stream mirrors can not also schedule messages"),
    10187: ("SourceWithMsgSchedules", "stream source can not also schedule messages"),
    10188: ("MessageSchedulesDisabled", "message schedules is disabled"),
    10189: ("MessageSchedulesPatternInvalid", "message schedules pattern is invalid"),
    10190: ("MessageSchedulesTargetInvalid", "message schedules target is invalid"),
    10191: ("MessageSchedulesTTLInvalid", "message schedules invalid per-message TTL"),
    10192: ("MessageSchedulesRollupInvalid", "message schedules invalid rollup"),
    10193: ("StreamExpectedLastSeqPerSubjectInvalid", "missing sequence for expected last sequence per subject"),
    10194: ("StreamOfflineReason", "stream is offline: {err}"),
    10195: ("ConsumerOfflineReason", "consumer is offline: {err}"),
    10196: ("ConsumerPriorityGroupWithPolicyNone", "consumer can not have priority groups when policy is none"),
    10197: ("ConsumerPinnedTTLWithoutPriorityPolicyNone", "PinnedTTL cannot be set when PriorityPolicy is none"),
    10198: ("MirrorWithAtomicPublish", "stream mirrors can not also use atomic publishing"),
    10199: ("AtomicPublishTooLargeBatch", "atomic publish batch is too large: {size}"),
    10200: ("AtomicPublishInvalidBatchCommit", "atomic publish batch commit is invalid"),
    10201: ("AtomicPublishContainsDuplicateMessage", "atomic publish batch contains duplicate message id"),
    10202: ("ClusterServerMemberChangeInflight", "cluster member change is in progress"),
    10203: ("MessageSchedulesSourceInvalid", "message schedules source is invalid"),
    10204: ("ConsumerInvalidReset", "invalid reset: {err}"),
    10205: ("BatchPublishDisabled", "batch publish is disabled"),
    10206: ("BatchPublishInvalidPattern", "batch publish pattern is invalid"),
    10207: ("BatchPublishInvalidBatchID", "batch publish ID is invalid"),
    10208: ("BatchPublishUnknownBatchID", "batch publish ID unknown"),
    10209: ("MirrorWithBatchPublish", "stream mirrors can not also use batch publishing"),
    10210: ("AtomicPublishTooManyInflight", "atomic publish too many inflight"),
    10211: ("BatchPublishTooManyInflight", "batch publish too many inflight"),
    10212: ("MessageSchedulesSchedulerInvalid", "message schedules invalid scheduler"),
    10213: ("MirrorDurableConsumerCfgInvalid", "stream mirror consumer config is invalid"),
    10214: ("MirrorConsumerRequiresAckFC", "stream mirror consumer requires flow control ack policy"),
    10215: ("SourceDurableConsumerCfgInvalid", "stream source consumer config is invalid"),
    10216: ("SourceDurableConsumerDuplicateDetected", "duplicate stream source consumer detected"),
    10217: ("SourceConsumerRequiresAckFC", "stream source consumer requires flow control ack policy"),
    10218: ("ConsumerAckFCRequiresPush", "flow control ack policy requires a push based consumer"),
    10219: ("ConsumerAckFCRequiresFC", "flow control ack policy requires flow control"),
    10220: ("ConsumerAckFCRequiresMaxAckPending", "flow control ack policy requires max ack pending"),
    10221: ("ConsumerAckFCRequiresNoAckWait", "flow control ack policy requires unset ack wait"),
    10222: ("ConsumerAckFCRequiresNoMaxDeliver", "flow control ack policy requires unset max deliver"),
    10223: ("MessageSchedulesTimeZoneInvalid", "message schedules time zone is invalid"),
    10224: ("ClusterRescue", "JetStream system rescue not applied: {err}"),
    10225: ("ConsumerStreamIdentityMismatch", "consumer's stream identity does not match: {msg}"),
    10226: ("StreamReconfigureInProgress", "stream reconfiguration already in progress"),
    10227: ("MessageSourceHdrNotAllowed", "message stream source header is not allowed"),
    10228: ("SourceConsumerFlowControlStalled", "stream source consumer stalled on flow control"),
}
"""The name and the description of each number."""

ACCOUNT_RESOURCES_EXCEEDED: Final = 10002
BAD_REQUEST: Final = 10003
CLUSTER_INCOMPLETE: Final = 10004
CLUSTER_NO_PEERS: Final = 10005
CLUSTER_NOT_ACTIVE: Final = 10006
CLUSTER_NOT_ASSIGNED: Final = 10007
CLUSTER_NOT_AVAIL: Final = 10008
CLUSTER_NOT_LEADER: Final = 10009
CLUSTER_REQUIRED: Final = 10010
CLUSTER_TAGS: Final = 10011
CONSUMER_CREATE: Final = 10012
CONSUMER_NAME_EXIST: Final = 10013
CONSUMER_NOT_FOUND: Final = 10014
SNAPSHOT_DELIVER_SUBJECT_INVALID: Final = 10015
CONSUMER_DURABLE_NAME_NOT_IN_SUBJECT: Final = 10016
CONSUMER_DURABLE_NAME_NOT_MATCH_SUBJECT: Final = 10017
CONSUMER_DURABLE_NAME_NOT_SET: Final = 10018
CONSUMER_EPHEMERAL_WITH_DURABLE_IN_SUBJECT: Final = 10019
CONSUMER_EPHEMERAL_WITH_DURABLE_NAME: Final = 10020
STREAM_EXTERNAL_API_OVERLAP: Final = 10021
STREAM_EXTERNAL_DEL_PREFIX_OVERLAPS: Final = 10022
INSUFFICIENT_RESOURCES: Final = 10023
STREAM_INVALID_EXTERNAL_DELIVERY_SUBJ: Final = 10024
INVALID_JSON: Final = 10025
MAXIMUM_CONSUMERS_LIMIT: Final = 10026
MAXIMUM_STREAMS_LIMIT: Final = 10027
MEMORY_RESOURCES_EXCEEDED: Final = 10028
MIRROR_CONSUMER_SETUP_FAILED: Final = 10029
MIRROR_MAX_MESSAGE_SIZE_TOO_BIG: Final = 10030
MIRROR_WITH_SOURCES: Final = 10031
MIRROR_WITH_START_SEQ_AND_TIME: Final = 10032
MIRROR_WITH_SUBJECT_FILTERS: Final = 10033
MIRROR_WITH_SUBJECTS: Final = 10034
NO_ACCOUNT: Final = 10035
CLUSTER_UN_SUPPORT_FEATURE: Final = 10036
NO_MESSAGE_FOUND: Final = 10037
NOT_EMPTY_REQUEST: Final = 10038
NOT_ENABLED_FOR_ACCOUNT: Final = 10039
CLUSTER_PEER_NOT_MEMBER: Final = 10040
RAFT_GENERAL: Final = 10041
RESTORE_SUBSCRIBE_FAILED: Final = 10042
SEQUENCE_NOT_FOUND: Final = 10043
CLUSTER_SERVER_NOT_MEMBER: Final = 10044
SOURCE_CONSUMER_SETUP_FAILED: Final = 10045
SOURCE_MAX_MESSAGE_SIZE_TOO_BIG: Final = 10046
STORAGE_RESOURCES_EXCEEDED: Final = 10047
STREAM_ASSIGNMENT: Final = 10048
STREAM_CREATE: Final = 10049
STREAM_DELETE: Final = 10050
STREAM_GENERAL: Final = 10051
STREAM_INVALID_CONFIG: Final = 10052
STREAM_LIMITS: Final = 10053
STREAM_MESSAGE_EXCEEDS_MAXIMUM: Final = 10054
STREAM_MIRROR_NOT_UPDATABLE: Final = 10055
STREAM_MISMATCH: Final = 10056
STREAM_MSG_DELETE_FAILED: Final = 10057
STREAM_NAME_EXIST: Final = 10058
STREAM_NOT_FOUND: Final = 10059
STREAM_NOT_MATCH: Final = 10060
STREAM_REPLICAS_NOT_UPDATABLE: Final = 10061
STREAM_RESTORE: Final = 10062
STREAM_SEQUENCE_NOT_MATCH: Final = 10063
STREAM_SNAPSHOT: Final = 10064
STREAM_SUBJECT_OVERLAP: Final = 10065
STREAM_TEMPLATE_CREATE: Final = 10066
STREAM_TEMPLATE_DELETE: Final = 10067
STREAM_TEMPLATE_NOT_FOUND: Final = 10068
STREAM_UPDATE: Final = 10069
STREAM_WRONG_LAST_MSG_ID: Final = 10070
STREAM_WRONG_LAST_SEQUENCE: Final = 10071
TEMP_STORAGE_FAILED: Final = 10072
TEMPLATE_NAME_NOT_MATCH_SUBJECT: Final = 10073
STREAM_REPLICAS_NOT_SUPPORTED: Final = 10074
PEER_REMAP: Final = 10075
NOT_ENABLED: Final = 10076
STREAM_STORE_FAILED: Final = 10077
CONSUMER_CONFIG_REQUIRED: Final = 10078
CONSUMER_DELIVER_TO_WILDCARDS: Final = 10079
CONSUMER_PUSH_MAX_WAITING: Final = 10080
CONSUMER_DELIVER_CYCLE: Final = 10081
CONSUMER_MAX_PENDING_ACK_POLICY_REQUIRED: Final = 10082
CONSUMER_SMALL_HEARTBEAT: Final = 10083
CONSUMER_PULL_REQUIRES_ACK: Final = 10084
CONSUMER_PULL_NOT_DURABLE: Final = 10085
CONSUMER_PULL_WITH_RATE_LIMIT: Final = 10086
CONSUMER_MAX_WAITING_NEGATIVE: Final = 10087
CONSUMER_HB_REQUIRES_PUSH: Final = 10088
CONSUMER_FC_REQUIRES_PUSH: Final = 10089
CONSUMER_DIRECT_REQUIRES_PUSH: Final = 10090
CONSUMER_DIRECT_REQUIRES_EPHEMERAL: Final = 10091
CONSUMER_ON_MAPPED: Final = 10092
CONSUMER_FILTER_NOT_SUBSET: Final = 10093
CONSUMER_INVALID_POLICY: Final = 10094
CONSUMER_INVALID_SAMPLING: Final = 10095
STREAM_INVALID: Final = 10096
STREAM_HEADER_EXCEEDS_MAXIMUM: Final = 10097
CONSUMER_WQ_REQUIRES_EXPLICIT_ACK: Final = 10098
CONSUMER_WQ_MULTIPLE_UNFILTERED: Final = 10099
CONSUMER_WQ_CONSUMER_NOT_UNIQUE: Final = 10100
CONSUMER_WQ_CONSUMER_NOT_DELIVER_ALL: Final = 10101
CONSUMER_NAME_TOO_LONG: Final = 10102
CONSUMER_BAD_DURABLE_NAME: Final = 10103
CONSUMER_STORE_FAILED: Final = 10104
CONSUMER_EXISTING_ACTIVE: Final = 10105
CONSUMER_REPLACEMENT_WITH_DIFFERENT_NAME: Final = 10106
CONSUMER_DESCRIPTION_TOO_LONG: Final = 10107
CONSUMER_WITH_FLOW_CONTROL_NEEDS_HEARTBEATS: Final = 10108
STREAM_SEALED: Final = 10109
STREAM_PURGE_FAILED: Final = 10110
STREAM_ROLLUP_FAILED: Final = 10111
CONSUMER_INVALID_DELIVER_SUBJECT: Final = 10112
STREAM_MAX_BYTES_REQUIRED: Final = 10113
CONSUMER_MAX_REQUEST_BATCH_NEGATIVE: Final = 10114
CONSUMER_MAX_REQUEST_EXPIRES_TOO_SMALL: Final = 10115
CONSUMER_MAX_DELIVER_BACKOFF: Final = 10116
STREAM_INFO_MAX_SUBJECTS: Final = 10117
STREAM_OFFLINE: Final = 10118
CONSUMER_OFFLINE: Final = 10119
NO_LIMITS: Final = 10120
CONSUMER_MAX_PENDING_ACK_EXCESS: Final = 10121
STREAM_MAX_STREAM_BYTES_EXCEEDED: Final = 10122
STREAM_MOVE_AND_SCALE: Final = 10123
STREAM_MOVE_IN_PROGRESS: Final = 10124
CONSUMER_MAX_REQUEST_BATCH_EXCEEDED: Final = 10125
CONSUMER_REPLICAS_EXCEEDS_STREAM: Final = 10126
CONSUMER_NAME_CONTAINS_PATH_SEPARATORS: Final = 10127
STREAM_NAME_CONTAINS_PATH_SEPARATORS: Final = 10128
STREAM_RECONFIGURE_NOT_IN_PROGRESS: Final = 10129
STREAM_NAME_EXIST_RESTORE_FAILED: Final = 10130
CONSUMER_CREATE_FILTER_SUBJECT_MISMATCH: Final = 10131
CONSUMER_CREATE_DURABLE_AND_NAME_MISMATCH: Final = 10132
REPLICAS_COUNT_CANNOT_BE_NEGATIVE: Final = 10133
CONSUMER_REPLICAS_SHOULD_MATCH_STREAM: Final = 10134
CONSUMER_METADATA_LENGTH: Final = 10135
CONSUMER_DUPLICATE_FILTER_SUBJECTS: Final = 10136
CONSUMER_MULTIPLE_FILTERS_NOT_ALLOWED: Final = 10137
CONSUMER_OVERLAPPING_SUBJECT_FILTERS: Final = 10138
CONSUMER_EMPTY_FILTER: Final = 10139
SOURCE_DUPLICATE_DETECTED: Final = 10140
SOURCE_INVALID_STREAM_NAME: Final = 10141
MIRROR_INVALID_STREAM_NAME: Final = 10142
MIRROR_WITH_FIRST_SEQ: Final = 10143
SOURCE_MULTIPLE_FILTERS_NOT_ALLOWED: Final = 10144
SOURCE_INVALID_SUBJECT_FILTER: Final = 10145
SOURCE_INVALID_TRANSFORM_DESTINATION: Final = 10146
SOURCE_OVERLAPPING_SUBJECT_FILTERS: Final = 10147
CONSUMER_ALREADY_EXISTS: Final = 10148
CONSUMER_DOES_NOT_EXIST: Final = 10149
MIRROR_MULTIPLE_FILTERS_NOT_ALLOWED: Final = 10150
MIRROR_INVALID_SUBJECT_FILTER: Final = 10151
MIRROR_OVERLAPPING_SUBJECT_FILTERS: Final = 10152
CONSUMER_INACTIVE_THRESHOLD_EXCESS: Final = 10153
MIRROR_INVALID_TRANSFORM_DESTINATION: Final = 10154
STREAM_TRANSFORM_INVALID_SOURCE: Final = 10155
STREAM_TRANSFORM_INVALID_DESTINATION: Final = 10156
PEDANTIC: Final = 10157
STREAM_DUPLICATE_MESSAGE_CONFLICT: Final = 10158
CONSUMER_PRIORITY_POLICY_WITHOUT_GROUP: Final = 10159
CONSUMER_INVALID_PRIORITY_GROUP: Final = 10160
CONSUMER_EMPTY_GROUP_NAME: Final = 10161
CONSUMER_INVALID_GROUP_NAME: Final = 10162
STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_NOT_READY: Final = 10163
STREAM_WRONG_LAST_SEQUENCE_CONSTANT: Final = 10164
MESSAGE_TTL_INVALID: Final = 10165
MESSAGE_TTL_DISABLED: Final = 10166
STREAM_TOO_MANY_REQUESTS: Final = 10167
MESSAGE_INCR_DISABLED: Final = 10168
MESSAGE_INCR_MISSING: Final = 10169
MESSAGE_INCR_PAYLOAD: Final = 10170
MESSAGE_INCR_INVALID: Final = 10171
MESSAGE_COUNTER_BROKEN: Final = 10172
MIRROR_WITH_COUNTERS: Final = 10173
ATOMIC_PUBLISH_DISABLED: Final = 10174
ATOMIC_PUBLISH_MISSING_SEQ: Final = 10175
ATOMIC_PUBLISH_INCOMPLETE_BATCH: Final = 10176
ATOMIC_PUBLISH_UNSUPPORTED_HEADER_BATCH: Final = 10177
CONSUMER_PUSH_WITH_PRIORITY_GROUP: Final = 10178
ATOMIC_PUBLISH_INVALID_BATCH_ID: Final = 10179
STREAM_MIN_LAST_SEQ: Final = 10180
CONSUMER_ACK_POLICY_INVALID: Final = 10181
CONSUMER_REPLAY_POLICY_INVALID: Final = 10182
CONSUMER_ACK_WAIT_NEGATIVE: Final = 10183
CONSUMER_BACK_OFF_NEGATIVE: Final = 10184
REQUIRED_API_LEVEL: Final = 10185
MIRROR_WITH_MSG_SCHEDULES: Final = 10186
SOURCE_WITH_MSG_SCHEDULES: Final = 10187
MESSAGE_SCHEDULES_DISABLED: Final = 10188
MESSAGE_SCHEDULES_PATTERN_INVALID: Final = 10189
MESSAGE_SCHEDULES_TARGET_INVALID: Final = 10190
MESSAGE_SCHEDULES_TTL_INVALID: Final = 10191
MESSAGE_SCHEDULES_ROLLUP_INVALID: Final = 10192
STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID: Final = 10193
STREAM_OFFLINE_REASON: Final = 10194
CONSUMER_OFFLINE_REASON: Final = 10195
CONSUMER_PRIORITY_GROUP_WITH_POLICY_NONE: Final = 10196
CONSUMER_PINNED_TTL_WITHOUT_PRIORITY_POLICY_NONE: Final = 10197
MIRROR_WITH_ATOMIC_PUBLISH: Final = 10198
ATOMIC_PUBLISH_TOO_LARGE_BATCH: Final = 10199
ATOMIC_PUBLISH_INVALID_BATCH_COMMIT: Final = 10200
ATOMIC_PUBLISH_CONTAINS_DUPLICATE_MESSAGE: Final = 10201
CLUSTER_SERVER_MEMBER_CHANGE_INFLIGHT: Final = 10202
MESSAGE_SCHEDULES_SOURCE_INVALID: Final = 10203
CONSUMER_INVALID_RESET: Final = 10204
BATCH_PUBLISH_DISABLED: Final = 10205
BATCH_PUBLISH_INVALID_PATTERN: Final = 10206
BATCH_PUBLISH_INVALID_BATCH_ID: Final = 10207
BATCH_PUBLISH_UNKNOWN_BATCH_ID: Final = 10208
MIRROR_WITH_BATCH_PUBLISH: Final = 10209
ATOMIC_PUBLISH_TOO_MANY_INFLIGHT: Final = 10210
BATCH_PUBLISH_TOO_MANY_INFLIGHT: Final = 10211
MESSAGE_SCHEDULES_SCHEDULER_INVALID: Final = 10212
MIRROR_DURABLE_CONSUMER_CFG_INVALID: Final = 10213
MIRROR_CONSUMER_REQUIRES_ACK_FC: Final = 10214
SOURCE_DURABLE_CONSUMER_CFG_INVALID: Final = 10215
SOURCE_DURABLE_CONSUMER_DUPLICATE_DETECTED: Final = 10216
SOURCE_CONSUMER_REQUIRES_ACK_FC: Final = 10217
CONSUMER_ACK_FC_REQUIRES_PUSH: Final = 10218
CONSUMER_ACK_FC_REQUIRES_FC: Final = 10219
CONSUMER_ACK_FC_REQUIRES_MAX_ACK_PENDING: Final = 10220
CONSUMER_ACK_FC_REQUIRES_NO_ACK_WAIT: Final = 10221
CONSUMER_ACK_FC_REQUIRES_NO_MAX_DELIVER: Final = 10222
MESSAGE_SCHEDULES_TIME_ZONE_INVALID: Final = 10223
CLUSTER_RESCUE: Final = 10224
CONSUMER_STREAM_IDENTITY_MISMATCH: Final = 10225
STREAM_RECONFIGURE_IN_PROGRESS: Final = 10226
MESSAGE_SOURCE_HDR_NOT_ALLOWED: Final = 10227
SOURCE_CONSUMER_FLOW_CONTROL_STALLED: Final = 10228
