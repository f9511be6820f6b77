package event

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// PartitionKey is the identity of the object that k names, its version left out:
//
//	<cluster>/<group or core>/<resource>/<namespace or _>/<name>
//
// It is the attribute partitionkey and the key of Kafka's records. What a
// CloudEvents string may not hold (control characters, noncharacters, bad UTF-8),
// '/' and '%' are percent-encoded; of these a Kubernetes name can hold only
// control characters and noncharacters. As in [Subject], what could be taken for
// something else is escaped as well: a group called "core" or beginning with '_',
// a namespace called "_". It is injective.
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

// ParsePartitionKey is the exact inverse of [PartitionKey]; it refuses what
// PartitionKey does not write, the partition key of a marker among it.
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

// MarkerPartitionKey is the partition key of a resource's snapshot markers. It is no
// object's, as no group is written "_control".
func MarkerPartitionKey(cluster string, r schema.GroupResource) string {
	b := appendText(nil, cluster, true)
	b = append(b, "/"+controlToken+"/"+snapshotToken+"/"...)
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

// text makes s a valid CloudEvents string (CloudEvents 1.0, section 3.1): the
// characters forbidden there are percent-encoded, and '%' with them, so that
// percent-decoding gives s back. All other strings stay as they are.
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

// isForbidden tells which characters a CloudEvents string may not hold:
// controls and Unicode's noncharacters.
func isForbidden(r rune) bool {
	return r < 0x20 || 0x7f <= r && r <= 0x9f || 0xfdd0 <= r && r <= 0xfdef || r&0xfffe == 0xfffe
}
