// Package subject encodes the place of an event on the bus as a NATS subject, and decodes it.
//
// [Object] is injective. [Parse] is the exact inverse of Object and of the functions for markers. No
// object has the subject of a marker. The package does not connect to a bus.
package subject

import (
	"fmt"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Subject tokens with a special meaning. No group is encoded as controlToken, because the encoding
// escapes a '.' at the beginning of a group and every '_' in it.
const (
	coreToken         = "core"
	clusterScopeToken = "_"
	emptyToken        = "=" // alone, '=' is not a valid escape
	controlToken      = "_control"
	snapshotToken     = "snapshot"
	resolvedToken     = "resolved"
	clusterToken      = "cluster"
	claimedToken      = "claimed"
)

// Object returns the subject of the events of the object that k identifies. The subject
// always has six tokens:
//
//	<prefix>.<cluster>.<group>.<resource>.<namespace>.<name>
//
// The group token is "core" for the core group. For another group, it is the group with '_' in
// place of each '.'. The namespace token is "_" for a cluster-scoped object. A byte outside
// [A-Za-z0-9_-], including '=', is written as =XX in upper-case hex. Values that would still be
// ambiguous are escaped too, although no Kubernetes name has this form: a '_' or a leading '.' in a
// group, the first byte of a group called "core", and a namespace called "_". An empty value
// becomes a lone "=".
//
// The function is injective: no two keys of one cluster, and no keys of two clusters, share
// a subject. The prefix must be one valid token, and is not escaped.
func Object(prefix, cluster string, k event.Key) string {
	var stack [256]byte // longer subjects cost a second allocation
	b := append(stack[:0], prefix...)
	b = appendToken(append(b, '.'), cluster)
	b = appendGroupToken(append(b, '.'), k.Group)
	b = appendToken(append(b, '.'), k.Resource)
	b = appendNamespaceToken(append(b, '.'), k.Namespace)
	b = appendToken(append(b, '.'), k.Name)
	return string(b)
}

// Marker returns the subject of the snapshot markers of a resource:
//
//	<prefix>.<cluster>._control.snapshot.<group>.<resource>
//
// The tokens are encoded as in [Object]. No object has this subject.
func Marker(prefix, cluster string, r schema.GroupResource) string {
	return ofResource(prefix, cluster, snapshotToken, r)
}

// Resolved returns the subject of the consistency points of a resource:
//
//	<prefix>.<cluster>._control.resolved.<group>.<resource>
func Resolved(prefix, cluster string, r schema.GroupResource) string {
	return ofResource(prefix, cluster, resolvedToken, r)
}

func ofResource(prefix, cluster, kind string, r schema.GroupResource) string {
	var stack [256]byte
	b := append(stack[:0], prefix...)
	b = appendToken(append(b, '.'), cluster)
	b = append(b, "."+controlToken+"."+kind+"."...)
	b = appendGroupToken(b, r.Group)
	b = appendToken(append(b, '.'), r.Resource)
	return string(b)
}

// Message returns the subject of a message of a cluster.
func Message(prefix, cluster string, m *event.Message) string {
	switch {
	case m.IsClaim():
		return Claim(prefix, cluster)
	case m.IsResolved():
		return Resolved(prefix, cluster, m.Key.GroupResource())
	case m.Marker:
		return Marker(prefix, cluster, m.Key.GroupResource())
	}
	return Object(prefix, cluster, m.Key)
}

// Claim returns the subject of a cluster's claim:
//
//	<prefix>.<cluster>._control.cluster._.claimed
//
// No object has this subject.
func Claim(prefix, cluster string) string {
	b := appendToken([]byte(prefix+"."), cluster)
	return string(b) + "." + controlToken + "." + clusterToken + "." + clusterScopeToken + "." + claimedToken
}

// Cluster returns the wildcard for all subjects of a cluster, including markers.
func Cluster(prefix, cluster string) string {
	return string(appendToken([]byte(prefix+"."), cluster)) + ".>"
}

// Parse is the exact inverse of [Object], [Marker], [Resolved], and [Claim]. marker is false only
// for the subject of an object. For the markers of a resource, k has only a group and a resource.
// For a claim, k is the zero value. Any other subject is an error.
func Parse(subject string) (prefix, cluster string, k event.Key, marker bool, err error) {
	tokens := strings.Split(subject, ".")
	if len(tokens) != 6 || tokens[0] == "" {
		return "", "", event.Key{}, false, fmt.Errorf("parse subject %q: want six tokens", subject)
	}
	marker = tokens[2] == controlToken
	var again string // the subject of the result
	prefix, cluster = tokens[0], unescapeToken(tokens[1])
	switch {
	case marker && tokens[3] == clusterToken:
		again = Claim(prefix, cluster)
	case marker:
		k = event.Key{Group: parseGroupToken(tokens[4]), Resource: unescapeToken(tokens[5])}
		if again = Marker(prefix, cluster, k.GroupResource()); tokens[3] == resolvedToken {
			again = Resolved(prefix, cluster, k.GroupResource())
		}
	default:
		k = event.Key{
			Group:     parseGroupToken(tokens[2]),
			Resource:  unescapeToken(tokens[3]),
			Namespace: parseNamespaceToken(tokens[4]),
			Name:      unescapeToken(tokens[5]),
		}
		again = Object(prefix, cluster, k)
	}
	if again != subject {
		return "", "", event.Key{}, false, fmt.Errorf("parse subject %q: not in canonical form", subject)
	}
	return prefix, cluster, k, marker, nil
}

func appendToken(b []byte, s string) []byte {
	if s == "" {
		return append(b, emptyToken...)
	}
	for i := range len(s) {
		b = appendTokenByte(b, s[i], isTokenByte(s[i]))
	}
	return b
}

func appendGroupToken(b []byte, group string) []byte {
	if group == "" {
		return append(b, coreToken...)
	}
	for i := range len(group) {
		switch c := group[i]; {
		case c == '.' && i > 0:
			b = append(b, '_')
		case i == 0 && group == coreToken:
			b = appendTokenByte(b, c, false)
		default:
			b = appendTokenByte(b, c, isTokenByte(c) && c != '_')
		}
	}
	return b
}

func appendNamespaceToken(b []byte, namespace string) []byte {
	switch namespace {
	case "":
		return append(b, clusterScopeToken...)
	case clusterScopeToken:
		return appendTokenByte(b, namespace[0], false)
	}
	return appendToken(b, namespace)
}

func appendTokenByte(b []byte, c byte, plain bool) []byte {
	const hex = "0123456789ABCDEF"
	if plain {
		return append(b, c)
	}
	return append(b, '=', hex[c>>4], hex[c&15])
}

func isTokenByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

func parseGroupToken(token string) string {
	if token == coreToken {
		return ""
	}
	return unescapeToken(strings.ReplaceAll(token, "_", "."))
}

func parseNamespaceToken(token string) string {
	if token == clusterScopeToken {
		return ""
	}
	return unescapeToken(token)
}

// unescapeToken is the inverse of appendToken. For a token that appendToken does not return, escaping
// the result gives a different token, so Parse rejects the subject.
func unescapeToken(token string) string {
	if token == emptyToken {
		return ""
	}
	if !strings.Contains(token, "=") {
		return token
	}
	s, err := url.PathUnescape(strings.ReplaceAll(token, "=", "%"))
	if err != nil {
		return token
	}
	return s
}
