// Package event defines the nouns of Kuberelay, and turns a change of a Kubernetes object
// into a CloudEvent. It talks to no cluster and no bus.
//
// Guarantees:
//
//   - The same [Change] makes the same event, byte for byte: attributes have a fixed order,
//     and the object is the text of the API server without the omitted parts. The
//     id and the sequence depend only on the object and its place in the resource's
//     history, so a retry, a restart or another replica makes the same ones. Their
//     changes may differ in the time and in the previous state: an update lists what
//     changed only if the previous state is available in time.
//   - Every event is a valid CloudEvent 1.0, for every possible name of an object. A name can
//     hold any character but '/' and '%' (RBAC objects are named by path segments), so
//     names are escaped wherever they are ambiguous. [Subject], [PartitionKey] and
//     [Resource.Path] are injective, and the first two have exact inverses.
//   - An [Object] that a [Converter] made holds no value of a Secret and no field that its
//     [Shape] hashes or drops, so no cache does. A [Builder] brings every other state into
//     this form, so no event has more. A keyed hash replaces each value, so that a change is
//     visible.
//
// Limits:
//
//   - The package does not decide whether to publish a change, or as which [Type]. It only
//     rejects a [Change] that contradicts itself.
//   - It does not track who shares an object. An [Object] is read-only, and a [Message]
//     shares its bytes.
//   - Without a [Shape], it redacts only core Secrets. A token in a ConfigMap, in an
//     annotation of another type or in a custom resource is published unchanged.
//   - It does not encode for a protocol. The packages of the buses follow the rules for
//     headers of NATS and Kafka.
package event
