// Package binding converts events to NATS messages and back, as the CloudEvents NATS protocol
// binding specifies, in the version after 1.0.2, the first one with headers.
//
// In binary mode each attribute is a header. datacontenttype is ce-datacontenttype, because
// the binding uses content-type only to mark structured mode. The CloudEvents SDK reads
// ce-datacontenttype too. Header names are lower case, because the SDK looks for no other
// case.
//
// In structured mode the attributes are in the body, and the SDK takes any ce- header for
// binary mode. So the attributes that a reader of the headers needs, such as the load of the
// checkpoint, are repeated in headers of Kuberelay's own, such as kuberelay-uid.
//
// Removals and markers have the header KV-Operation. So a key-value bucket that mirrors the stream has a key
// for each existing object, and no other keys.
//
// It does not check that the subject of a message belongs to its event.
package binding
