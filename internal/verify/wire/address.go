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

// Kind says whether a message is an event of an object or a marker, and which kind of marker.
type Kind int

// The kinds. Only the Object of [OfObject] identifies an object.
const (
	OfObject   Kind = iota
	OfSnapshot      // a snapshot marker of the resource in Object.Group and Object.Resource
	OfClaim
	OfWriter   // a writer's marker, only on Kafka
	OfResolved // a consistency point of the resource in Object.Group and Object.Resource
)

// Address is the parsed content of a subject or a record key.
type Address struct {
	Cluster string
	Kind    Kind
	Object  Object

	Topic     string // topic that a writer's marker names
	Partition int
}

// ParseSubject parses a subject, whose first token must be the prefix.
func ParseSubject(prefix, subject string) (Address, error) {
	tokens := strings.Split(subject, ".")
	if len(tokens) != 6 || tokens[0] != prefix {
		return Address{}, fmt.Errorf("subject %q does not have six tokens, or the first is not %q", subject, prefix)
	}
	a, err := parseAddress(tokens[1:], token, groupToken, namespaceToken)
	if err == nil && a.Kind == OfWriter {
		err = errUnknownMarker
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
	a, err := parseAddress(segments, plainSegment, groupSegment, namespaceSegment)
	if err != nil {
		return Address{}, fmt.Errorf("key %q: %w", key, err)
	}
	return a, nil
}

var errUnknownMarker = errors.New("unknown marker")

// parseAddress parses the five parts that a subject and a key have in common. Each function parses
// one part: a plain one, a group, or a namespace.
func parseAddress(parts []string, plain, group, namespace func(string) (string, error)) (a Address, err error) {
	read := func(to *string, part string, parse func(string) (string, error)) {
		if err == nil {
			*to, err = parse(part)
		}
	}
	read(&a.Cluster, parts[0], plain)
	if parts[1] != controls {
		read(&a.Object.Group, parts[1], group)
		read(&a.Object.Resource, parts[2], plain)
		read(&a.Object.Namespace, parts[3], namespace)
		read(&a.Object.Name, parts[4], plain)
		return a, err
	}
	switch parts[2] {
	case "snapshot", "resolved":
		a.Kind = OfSnapshot
		if parts[2] == "resolved" {
			a.Kind = OfResolved
		}
		read(&a.Object.Group, parts[3], group)
		read(&a.Object.Resource, parts[4], plain)
	case "writer":
		a.Kind = OfWriter
		read(&a.Topic, parts[3], plain)
		if err == nil {
			a.Partition, err = partition(parts[4])
		}
	case "cluster":
		a.Kind = OfClaim
		if parts[3] != noNamespace || parts[4] != "claimed" {
			err = errUnknownMarker
		}
	default:
		err = errUnknownMarker
	}
	return a, err
}

func partition(s string) (int, error) {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != s {
		return 0, fmt.Errorf("%q is not the number of a partition", s)
	}
	return int(n), nil
}
