// Package binding converts events to NATS messages and back. It follows the CloudEvents NATS
// protocol binding in the version after 1.0.2, the first version with headers.
//
// In binary mode, each attribute is a header. The header of datacontenttype is ce-datacontenttype,
// because the binding uses content-type only to mark structured mode. The CloudEvents SDK reads
// ce-datacontenttype too. Header names are in lower case, because the SDK accepts no other case.
//
// In structured mode, the attributes are in the body. The SDK mistakes any message with a ce- header
// for binary mode. So Kuberelay repeats some attributes in headers of its own, such as
// kuberelay-uid, for readers that use only the headers, such as the load of the checkpoint.
//
// Removals and markers have the header KV-Operation. So a key-value bucket that mirrors the stream
// has a key for each existing object, and no other keys.
//
// The package does not check that the subject of a message belongs to its event.
package binding
