package event

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Tokens of a subject with a special meaning. No group is encoded as controlToken, because the
// encoding escapes a '.' at the beginning of a group and every '_' in it.
const (
	coreToken         = "core"
	clusterScopeToken = "_"
	emptyToken        = "=" // alone, '=' is not a valid escape
	controlToken      = "_control"
	snapshotToken     = "snapshot"
	resolvedToken     = "resolved"
)

// Subject returns the NATS subject of the events of the object that k identifies. The subject
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
func Subject(prefix, cluster string, k Key) string {
	var stack [256]byte // longer subjects cost a second allocation
	b := append(stack[:0], prefix...)
	b = appendToken(append(b, '.'), cluster)
	b = appendGroupToken(append(b, '.'), k.Group)
	b = appendToken(append(b, '.'), k.Resource)
	b = appendNamespaceToken(append(b, '.'), k.Namespace)
	b = appendToken(append(b, '.'), k.Name)
	return string(b)
}

// MarkerSubject returns the NATS subject of the snapshot markers of a resource:
//
//	<prefix>.<cluster>._control.snapshot.<group>.<resource>
//
// The tokens are encoded as in [Subject]. No object has this subject.
func MarkerSubject(prefix, cluster string, r schema.GroupResource) string {
	return markerSubject(prefix, cluster, snapshotToken, r)
}

// ResolvedSubject returns the NATS subject of the consistency points of a resource:
//
//	<prefix>.<cluster>._control.resolved.<group>.<resource>
func ResolvedSubject(prefix, cluster string, r schema.GroupResource) string {
	return markerSubject(prefix, cluster, resolvedToken, r)
}

func markerSubject(prefix, cluster, kind string, r schema.GroupResource) string {
	var stack [256]byte
	b := append(stack[:0], prefix...)
	b = appendToken(append(b, '.'), cluster)
	b = append(b, "."+controlToken+"."+kind+"."...)
	b = appendGroupToken(b, r.Group)
	b = appendToken(append(b, '.'), r.Resource)
	return string(b)
}

// ClusterSubjects returns the wildcard for all subjects of a cluster, including markers.
func ClusterSubjects(prefix, cluster string) string {
	return string(appendToken([]byte(prefix+"."), cluster)) + ".>"
}

// ParseSubject is the exact inverse of [Subject], [MarkerSubject], [ResolvedSubject] and
// [ClaimSubject]. marker is false only for the subject of an object. For the markers of a resource,
// k has only a group and a resource. For a claim, k is the zero value. Any other subject is an
// error.
func ParseSubject(subject string) (prefix, cluster string, k Key, marker bool, err error) {
	tokens := strings.Split(subject, ".")
	if len(tokens) != 6 || tokens[0] == "" {
		return "", "", Key{}, false, fmt.Errorf("parse subject %q: want six tokens", subject)
	}
	marker = tokens[2] == controlToken
	var again string // the subject of the result
	prefix, cluster = tokens[0], unescapeToken(tokens[1])
	switch {
	case marker && tokens[3] == clusterToken:
		again = ClaimSubject(prefix, cluster)
	case marker:
		k = Key{Group: parseGroupToken(tokens[4]), Resource: unescapeToken(tokens[5])}
		again = markerSubject(prefix, cluster, snapshotToken, k.GroupResource())
		if tokens[3] == resolvedToken {
			again = markerSubject(prefix, cluster, resolvedToken, k.GroupResource())
		}
	default:
		k = Key{
			Group:     parseGroupToken(tokens[2]),
			Resource:  unescapeToken(tokens[3]),
			Namespace: parseNamespaceToken(tokens[4]),
			Name:      unescapeToken(tokens[5]),
		}
		again = Subject(prefix, cluster, k)
	}
	if again != subject {
		return "", "", Key{}, false, fmt.Errorf("parse subject %q: not in canonical form", subject)
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

// unescapeToken is the inverse of appendToken. An invalid escape stays unchanged. Escaping the
// result then gives a different token, so ParseSubject rejects the subject.
func unescapeToken(token string) string {
	if token == emptyToken {
		return ""
	}
	return unescape(token, '=')
}

// unescape replaces each escape with its byte. An escape is the mark and two upper-case hex digits.
func unescape(s string, mark byte) string {
	i := strings.IndexByte(s, mark)
	if i < 0 {
		return s
	}
	b := append(make([]byte, 0, len(s)), s[:i]...)
	for ; i < len(s); i++ {
		if s[i] == mark && i+2 < len(s) {
			high, ok1 := unhex(s[i+1])
			low, ok2 := unhex(s[i+2])
			if ok1 && ok2 {
				b = append(b, high<<4|low)
				i += 2
				continue
			}
		}
		b = append(b, s[i])
	}
	return string(b)
}

func unhex(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}
