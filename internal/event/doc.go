// Package event holds the nouns of Kuberelay and the one place where a change of
// a Kubernetes object becomes a CloudEvent. It talks to no cluster and no bus.
//
// What it guarantees:
//
//   - The same change makes the same event, byte for byte but for its time: ids
//     depend on the object alone, attributes have a fixed order, and the object is
//     what the API server wrote, byte for byte, less what is cut out. A retry, a
//     restart or another replica changes nothing.
//   - Every event is a valid CloudEvent 1.0, whatever the object is called. A
//     name can hold any character but '/' and '%' (RBAC objects are named by path
//     segments), so a name is escaped wherever it could be taken for something
//     else: [Subject], [PartitionKey] and [Resource.Path] are each injective, and
//     the first two have exact inverses.
//   - No value of a Secret's data is in an [Object] that a [Converter] made, and so
//     in no event, log or cache. A keyed hash stands in for it, so that a change is
//     visible.
//
// What it does not:
//
//   - It does not decide. Whether a change is to be published, and as which
//     [Type], is the caller's business; it only refuses a [Change] that contradicts
//     itself.
//   - It does not know who else holds an object. An [Object] is read-only, and a
//     [Message] shares its bytes.
//   - It hides only core Secrets, and of those neither names nor labels. A token in
//     a ConfigMap, in an annotation of another type or in a custom resource is
//     published as it is.
//   - It does not encode for a protocol. Headers of NATS and Kafka have rules of
//     their own, which the packages of the buses follow.
package event
