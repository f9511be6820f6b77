package failure

import "github.com/segmentio/kafka-go"

// kindOfCode classifies a broker's error code
// (https://kafka.apache.org/protocol#protocol_error_codes). A test verifies that it lists
// every code that kafka-go names.
func kindOfCode(code kafka.Error) Kind {
	switch code {
	// Codes that are retriable according to the protocol, and these:
	//   - unknown server errors (-1); kafka-go also returns this code if a request found no
	//     broker
	//   - a reassignment in progress
	//   - fewer live brokers than replicas, which is temporary
	//   - codes that brokers should only send to each other
	case kafka.Unknown, kafka.InvalidMessage, kafka.UnknownTopicOrPartition, kafka.LeaderNotAvailable,
		kafka.NotLeaderForPartition, kafka.RequestTimedOut, kafka.BrokerNotAvailable, kafka.ReplicaNotAvailable,
		kafka.StaleControllerEpoch, kafka.NetworkException, kafka.GroupLoadInProgress, kafka.GroupCoordinatorNotAvailable,
		kafka.NotCoordinatorForGroup, kafka.NotEnoughReplicas, kafka.NotEnoughReplicasAfterAppend, kafka.NotController,
		kafka.ConcurrentTransactions, kafka.KafkaStorageError, kafka.ReassignmentInProgress, kafka.FetchSessionIDNotFound,
		kafka.InvalidFetchSessionEpoch, kafka.ListenerNotFound, kafka.FencedLeaderEpoch, kafka.UnknownLeaderEpoch,
		kafka.StaleBrokerEpoch, kafka.OffsetNotAvailable, kafka.PreferredLeaderNotAvailable,
		kafka.EligibleLeadersNotAvailable, kafka.UnstableOffsetCommit, kafka.ThrottlingQuotaExceeded, kafka.UnknownTopicID,
		kafka.InconsistentTopicID, kafka.FetchSessionTopicIDError, kafka.InvalidReplicationFactor:
		return Retry
	case kafka.DuplicateSequenceNumber:
		return Duplicate
	case kafka.OutOfOrderSequenceNumber, kafka.InvalidProducerIDMapping, kafka.UnknownProducerId:
		return OutOfOrder
	case kafka.InvalidProducerEpoch, kafka.ProducerFenced:
		return Fenced
	// ACLs and authentication.
	case kafka.TopicAuthorizationFailed, kafka.GroupAuthorizationFailed, kafka.ClusterAuthorizationFailed,
		kafka.UnsupportedSASLMechanism, kafka.IllegalSASLState, kafka.TransactionalIDAuthorizationFailed,
		kafka.BrokerAuthorizationFailed, kafka.SASLAuthenticationFailed, kafka.DelegationTokenAuthorizationFailed,
		kafka.DelegationTokenExpired:
		return Denied
	case kafka.MessageSizeTooLarge, kafka.RecordListTooLarge:
		return TooLarge
	// The rest: invalid requests, settings, and policies, and errors of requests that the forwarder
	// does not send.
	case kafka.OffsetOutOfRange, kafka.InvalidMessageSize, kafka.OffsetMetadataTooLarge, kafka.InvalidTopic,
		kafka.InvalidRequiredAcks, kafka.IllegalGeneration, kafka.InconsistentGroupProtocol, kafka.InvalidGroupId,
		kafka.UnknownMemberId, kafka.InvalidSessionTimeout, kafka.RebalanceInProgress, kafka.InvalidCommitOffsetSize,
		kafka.InvalidTimestamp, kafka.UnsupportedVersion, kafka.TopicAlreadyExists, kafka.InvalidPartitionNumber,
		kafka.InvalidReplicaAssignment, kafka.InvalidConfiguration, kafka.InvalidRequest,
		kafka.UnsupportedForMessageFormat, kafka.PolicyViolation, kafka.InvalidTransactionState,
		kafka.InvalidTransactionTimeout, kafka.TransactionCoordinatorFenced, kafka.SecurityDisabled, kafka.LogDirNotFound,
		kafka.DelegationTokenAuthDisabled, kafka.DelegationTokenNotFound, kafka.DelegationTokenOwnerMismatch,
		kafka.DelegationTokenRequestNotAllowed, kafka.InvalidPrincipalType, kafka.NonEmptyGroup, kafka.GroupIdNotFound,
		kafka.TopicDeletionDisabled, kafka.UnsupportedCompressionType, kafka.MemberIDRequired, kafka.GroupMaxSizeReached,
		kafka.FencedInstanceID, kafka.ElectionNotNeeded, kafka.NoReassignmentInProgress, kafka.GroupSubscribedToTopic,
		kafka.InvalidRecord, kafka.ResourceNotFound, kafka.DuplicateResource, kafka.UnacceptableCredential,
		kafka.InconsistentVoterSet, kafka.InvalidUpdateVersion, kafka.FeatureUpdateFailed,
		kafka.PrincipalDeserializationFailure, kafka.SnapshotNotFound, kafka.PositionOutOfRange,
		kafka.DuplicateBrokerRegistration, kafka.BrokerIDNotRegistered, kafka.InconsistentClusterID,
		kafka.TransactionalIDNotFound:
		return Never
	}
	return Never // a code that kafka-go does not know; it requests no protocol version with such a code
}
