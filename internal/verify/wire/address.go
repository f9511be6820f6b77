package wire

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Object is the identity of an object.
type Object struct {
	Group     string // "" for the core group
	Resource  string // the plural
	Namespace string // "" for a cluster-scoped object
	Name      string
}

// Kind is the kind of a message.
type Kind int

// The kinds. Only the Object of [OfObject] identifies an object.
const (
	OfObject   Kind = iota
	OfSnapshot      // of the resource in Object.Group and Object.Resource
	OfClaim
	OfWriter   // only on Kafka
	OfResolved // of the resource in Object.Group and Object.Resource
)

var resourceMarkers = map[string]Kind{"snapshot": OfSnapshot, "resolved": OfResolved}

// Address is the parsed content of a subject or a record key.
type Address struct {
	Cluster string
	Kind    Kind
	Object  Object

	Topic     string // of a writer's marker
	Partition int
}

// ParseSubject parses a subject, whose first token must be the prefix.
func ParseSubject(prefix, subject string) (Address, error) {
	tokens := strings.Split(subject, ".")
	if len(tokens) != 6 || tokens[0] != prefix {
		return Address{}, fmt.Errorf("subject %q does not have six tokens, the first being %q", subject, prefix)
	}
	var a Address
	var err error
	read := func(to *string, s string, how func(string) (string, error)) {
		if err == nil {
			*to, err = how(s)
		}
	}
	read(&a.Cluster, tokens[1], token)
	switch {
	case tokens[2] != controls:
		read(&a.Object.Group, tokens[2], groupToken)
		read(&a.Object.Resource, tokens[3], token)
		read(&a.Object.Namespace, tokens[4], namespaceToken)
		read(&a.Object.Name, tokens[5], token)
	case tokens[3] == "snapshot", tokens[3] == "resolved":
		a.Kind = resourceMarkers[tokens[3]]
		read(&a.Object.Group, tokens[4], groupToken)
		read(&a.Object.Resource, tokens[5], token)
	case tokens[3] == "cluster" && tokens[4] == noNamespace && tokens[5] == "claimed":
		a.Kind = OfClaim
	default:
		err = errors.New("unknown marker")
	}
	if err != nil {
		return Address{}, fmt.Errorf("subject %q: %w", subject, err)
	}
	return a, nil
}

// ParseKey parses the key of a record, or the attribute partitionkey.
func ParseKey(key string) (Address, error) {
	segments := strings.Split(key, "/")
	if len(segments) != 5 {
		return Address{}, fmt.Errorf("key %q does not have five segments", key)
	}
	var a Address
	var err error
	read := func(to *string, s string, how func(string) (string, error)) {
		if err == nil {
			*to, err = how(s)
		}
	}
	read(&a.Cluster, segments[0], plainSegment)
	switch {
	case segments[1] != controls:
		read(&a.Object.Group, segments[1], groupSegment)
		read(&a.Object.Resource, segments[2], plainSegment)
		read(&a.Object.Namespace, segments[3], namespaceSegment)
		read(&a.Object.Name, segments[4], plainSegment)
	case segments[2] == "snapshot", segments[2] == "resolved":
		a.Kind = resourceMarkers[segments[2]]
		read(&a.Object.Group, segments[3], groupSegment)
		read(&a.Object.Resource, segments[4], plainSegment)
	case segments[2] == "writer":
		a.Kind = OfWriter
		read(&a.Topic, segments[3], plainSegment)
		if err == nil {
			a.Partition, err = partition(segments[4])
		}
	case segments[2] == "cluster" && segments[3] == noNamespace && segments[4] == "claimed":
		a.Kind = OfClaim
	default:
		err = errors.New("unknown marker")
	}
	if err != nil {
		return Address{}, fmt.Errorf("key %q: %w", key, err)
	}
	return a, nil
}

func partition(s string) (int, error) {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != s {
		return 0, fmt.Errorf("%q is not the number of a partition", s)
	}
	return int(n), nil
}
