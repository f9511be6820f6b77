package binding

import (
	"errors"
	"net/url"
	"strings"
	"unicode/utf8"
)

// encodeValue percent-encodes an attribute value as the CloudEvents NATS binding requires
// (3.1.3.2). It encodes space, '"', '%', and every character outside of printable ASCII, per byte
// of the character's UTF-8, in upper-case hex. Invalid UTF-8 becomes U+FFFD, because readers must
// reject invalid UTF-8. encodeValue allocates only if it has to encode something.
func encodeValue(s string) string {
	i := 0
	for i < len(s) && isPlain(s[i]) {
		i++
	}
	if i == len(s) {
		return s
	}
	const hex = "0123456789ABCDEF"
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	b := append(make([]byte, 0, len(s)+8), s[:i]...)
	for ; i < len(s); i++ {
		if c := s[i]; isPlain(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(b)
}

func isPlain(c byte) bool { return '!' <= c && c <= '~' && c != '"' && c != '%' }

var (
	errBadEscape = errors.New("bad percent-encoding")
	errNotUTF8   = errors.New("not UTF-8")
)

// decodeValue decodes an attribute value. As the binding requires, it accepts lower-case hex and
// unnecessary encoding, removes double quotes first, and rejects a value that does not decode to
// UTF-8.
func decodeValue(s string) (string, error) {
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		s = unquote(s[1 : len(s)-1])
	}
	s, err := url.PathUnescape(s)
	switch {
	case err != nil:
		return "", errBadEscape
	case !utf8.ValidString(s):
		return "", errNotUTF8
	}
	return s, nil
}

// unquote removes the backslashes in a quoted string (RFC 7230, 3.2.6).
func unquote(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		b = append(b, s[i])
	}
	return string(b)
}
