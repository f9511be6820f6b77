package event

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// PartitionKey returns the identity of the object of k, without its version:
//
//	<cluster>/<group or core>/<resource>/<namespace or _>/<name>
//
// It is the attribute partitionkey and the key of Kafka records. Characters that a
// CloudEvents string must not hold (control characters, noncharacters, invalid UTF-8), '/'
// and '%' are percent-encoded. Of these, a Kubernetes name can hold only control characters
// and noncharacters. As in [Subject], ambiguous values are escaped as well: a group called
// "core" or beginning with '_', and a namespace called "_". The function is injective.
func PartitionKey(cluster string, k Key) string {
	var stack [256]byte // longer keys cost a second allocation
	b := appendText(stack[:0], cluster, true)
	b = appendGroupSegment(append(b, '/'), k.Group)
	b = appendText(append(b, '/'), k.Resource, true)
	switch k.Namespace {
	case "":
		b = append(b, "/_"...)
	case "_":
		b = append(b, "/%5F"...)
	default:
		b = appendText(append(b, '/'), k.Namespace, true)
	}
	b = appendText(append(b, '/'), k.Name, true)
	return string(b)
}

// ParsePartitionKey is the exact inverse of [PartitionKey]. Any other key is an error,
// including the key of a marker.
func ParsePartitionKey(s string) (cluster string, k Key, err error) {
	segments := strings.Split(s, "/")
	if len(segments) != 5 {
		return "", Key{}, fmt.Errorf("parse partition key %q: want five segments", s)
	}
	cluster = unescape(segments[0], '%')
	k = Key{Resource: unescape(segments[2], '%'), Name: unescape(segments[4], '%')}
	if segments[1] != coreToken {
		k.Group = unescape(segments[1], '%')
	}
	if segments[3] != clusterScopeToken {
		k.Namespace = unescape(segments[3], '%')
	}
	if PartitionKey(cluster, k) != s {
		return "", Key{}, fmt.Errorf("parse partition key %q: not in canonical form", s)
	}
	return cluster, k, nil
}

// MarkerPartitionKey returns the partition key of a resource's snapshot markers. No object
// has this key, because no group is written "_control".
func MarkerPartitionKey(cluster string, r schema.GroupResource) string {
	return markerPartitionKey(cluster, snapshotToken, r)
}

// ResolvedPartitionKey returns the partition key of a resource's consistency points. No
// object has this key.
func ResolvedPartitionKey(cluster string, r schema.GroupResource) string {
	return markerPartitionKey(cluster, resolvedToken, r)
}

func markerPartitionKey(cluster, kind string, r schema.GroupResource) string {
	b := appendText(nil, cluster, true)
	b = append(b, "/"+controlToken+"/"+kind+"/"...)
	b = appendGroupSegment(b, r.Group)
	return string(appendText(append(b, '/'), r.Resource, true))
}

func appendGroupSegment(b []byte, group string) []byte {
	switch {
	case group == "":
		return append(b, coreToken...)
	case group == coreToken:
		return append(b, "%63ore"...)
	case group[0] == '_':
		return appendText(append(b, "%5F"...), group[1:], true)
	}
	return appendText(b, group, true)
}

// text makes s a valid CloudEvents string (CloudEvents 1.0, section 3.1). It
// percent-encodes the characters that are forbidden there, and '%', so that
// percent-decoding returns s. All other strings stay unchanged.
func text(s string) string {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '%' {
			return string(appendText(nil, s, false))
		}
	}
	return s
}

// appendText appends text(s), with '/' percent-encoded too if slash is set.
func appendText(b []byte, s string, slash bool) []byte {
	const hex = "0123456789ABCDEF"
	for i := 0; i < len(s); {
		size, plain := 1, false
		if c := s[i]; c < utf8.RuneSelf {
			plain = ' ' <= c && c <= '~' && c != '%' && !(slash && c == '/')
		} else {
			var r rune
			r, size = utf8.DecodeRuneInString(s[i:])
			plain = !isForbidden(r) && !(r == utf8.RuneError && size == 1)
		}
		for ; size > 0; size-- {
			if plain {
				b = append(b, s[i])
			} else {
				b = append(b, '%', hex[s[i]>>4], hex[s[i]&15])
			}
			i++
		}
	}
	return b
}

// isForbidden reports whether a CloudEvents string must not hold r: control characters and
// the noncharacters of Unicode.
func isForbidden(r rune) bool {
	return r < 0x20 || 0x7f <= r && r <= 0x9f || 0xfdd0 <= r && r <= 0xfdef || r&0xfffe == 0xfffe
}
