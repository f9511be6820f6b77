package event

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Partition key segments with a special meaning. No group is encoded as controlToken, because a '_'
// at the beginning of a group is escaped.
const (
	coreToken         = "core"
	clusterScopeToken = "_"
	controlToken      = "_control"
	snapshotToken     = "snapshot"
	resolvedToken     = "resolved"
)

// PartitionKey returns a text that identifies an object, without its API version:
//
//	<cluster>/<group or core>/<resource>/<namespace or _>/<name>
//
// The text is the attribute partitionkey and the key of Kafka records. PartitionKey percent-encodes
// '/', '%', and the characters that a CloudEvents string must not hold: control characters,
// noncharacters, and invalid UTF-8. Of all these, a Kubernetes name can hold only control
// characters and noncharacters. Ambiguous values are escaped as well: a group called "core" or
// beginning with '_', and a namespace called "_". The function is injective.
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
	cluster = unescape(segments[0])
	k = Key{Resource: unescape(segments[2]), Name: unescape(segments[4])}
	if segments[1] != coreToken {
		k.Group = unescape(segments[1])
	}
	if segments[3] != clusterScopeToken {
		k.Namespace = unescape(segments[3])
	}
	if PartitionKey(cluster, k) != s {
		return "", Key{}, fmt.Errorf("parse partition key %q: not in canonical form", s)
	}
	return cluster, k, nil
}

// MarkerPartitionKey returns the partition key of a resource's snapshot markers. No object has this
// key, because no group is encoded as "_control".
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

// text returns s as a valid CloudEvents string (CloudEvents 1.0, section 3.1). It percent-encodes
// '%' and the characters that this section forbids, so that percent-decoding returns s. All other
// strings stay unchanged.
func text(s string) string {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '%' {
			return string(appendText(nil, s, false))
		}
	}
	return s
}

// appendText appends text(s). If slash is set, it also percent-encodes '/'.
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

// isForbidden reports whether CloudEvents forbids r in a string. It forbids control characters and
// the noncharacters of Unicode.
func isForbidden(r rune) bool {
	return r < 0x20 || 0x7f <= r && r <= 0x9f || 0xfdd0 <= r && r <= 0xfdef || r&0xfffe == 0xfffe
}

// ParseMarkerPartitionKey is the exact inverse of [MarkerPartitionKey], [ResolvedPartitionKey],
// [WriterPartitionKey], and [ClaimPartitionKey]. For the first two, k has only a group and a
// resource. For the others, k is the zero value. Any other key is an error.
func ParseMarkerPartitionKey(s string) (cluster string, k Key, err error) {
	segments := strings.Split(s, "/")
	if len(segments) != 5 || segments[1] != controlToken {
		return "", Key{}, fmt.Errorf("parse partition key %q: not the key of a marker", s)
	}
	cluster = unescape(segments[0])
	again := ""
	switch segments[2] {
	case snapshotToken, resolvedToken:
		k.Resource = unescape(segments[4])
		if segments[3] != coreToken {
			k.Group = unescape(segments[3])
		}
		again = markerPartitionKey(cluster, segments[2], k.GroupResource())
	case writerToken:
		if partition, err := strconv.Atoi(segments[4]); err == nil && segments[3] != "" {
			again = WriterPartitionKey(cluster, unescape(segments[3]), partition)
		}
	case clusterToken:
		again = ClaimPartitionKey(cluster)
	}
	if again != s {
		return "", Key{}, fmt.Errorf("parse partition key %q: not in canonical form", s)
	}
	return cluster, k, nil
}

// unescape replaces each escape with its byte. An escape is '%' and two upper-case hex digits.
func unescape(s string) string {
	i := strings.IndexByte(s, '%')
	if i < 0 {
		return s
	}
	b := append(make([]byte, 0, len(s)), s[:i]...)
	for ; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
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
