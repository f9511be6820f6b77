// Package event defines the core types of Kuberelay, and builds a CloudEvent from each change of a
// Kubernetes object. It doesn't connect to a cluster or a bus.
//
// Guarantees:
//
//   - The same [Change] makes the same event, byte for byte. Attributes have a fixed order, and the
//     object is the text of the API server without the omitted parts. The id and the sequence
//     depend only on the object and its place in the resource's history, so a retry, a restart, or
//     another replica makes the same id and sequence. The Change that a retry builds can still have
//     a different time and previous state: an update lists the changed fields only if the previous
//     state is available in time.
//   - Every event is a valid CloudEvent 1.0, for every possible name of an object. A name can hold
//     any character but '/' and '%' (RBAC objects are named by path segments), so the package
//     escapes names wherever they are ambiguous. [PartitionKey] and [Resource.Path] are injective, and
//     [ParsePartitionKey] is the exact inverse of PartitionKey.
//   - A [Builder] with Reshape publishes no state in an earlier form. See package decode.
//
// Limits:
//
//   - The package does not decide whether to publish a change, or with which [Type]. It only
//     rejects a [Change] that contradicts itself.
//   - It does not track who shares an object. An [Object] is read-only, and a [Message]
//     shares its bytes.
//   - It does not encode events for a protocol. The bus packages apply the header rules of NATS and
//     Kafka.
package event
