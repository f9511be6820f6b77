package wire

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// escaped decodes escapes. An escape is a mark and two upper-case hex digits. was reports for each
// byte whether it was escaped.
func escaped(s string, mark byte) (plain string, was []bool, err error) {
	b, was := make([]byte, 0, len(s)), make([]bool, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != mark {
			b, was = append(b, s[i]), append(was, false)
			continue
		}
		if len(s)-i < 3 {
			return "", nil, fmt.Errorf("%q ends within an escape", s)
		}
		value := 0
		for _, c := range []byte(s[i+1 : i+3]) {
			switch {
			case c >= '0' && c <= '9':
				value = 16*value + int(c-'0')
			case c >= 'A' && c <= 'F':
				value = 16*value + int(c-'A') + 10
			default:
				return "", nil, fmt.Errorf("%q has the escape %q, which does not have two upper-case hex digits", s, s[i:i+3])
			}
		}
		b, was = append(b, byte(value)), append(was, true)
		i += 2
	}
	return string(b), was, nil
}

// exactly returns plain if s escapes all bytes that must be escaped, and no others. Otherwise, it
// returns an error.
func exactly(s, plain string, was []bool, must func(at int) bool) (string, error) {
	for i := range len(plain) {
		switch {
		case was[i] && !must(i):
			return "", fmt.Errorf("%q escapes %q unnecessarily", s, plain[i])
		case !was[i] && must(i):
			return "", fmt.Errorf("%q has %q, which must be escaped", s, plain[i])
		}
	}
	return plain, nil
}

// token parses one token of a subject.
func token(s string) (string, error) {
	if s == "" {
		return "", errors.New("a token is empty")
	}
	plain, was, err := escaped(s, '=')
	if err != nil {
		return "", err
	}
	return exactly(s, plain, was, func(at int) bool { return !inToken(plain[at]) })
}

func inToken(c byte) bool {
	return c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

const (
	core        = "core"
	noNamespace = "_" // for the namespace of a cluster-scoped object
	controls    = "_control"
)

// groupToken parses the token of a group: "core" means the core group, and "_" means ".".
func groupToken(s string) (string, error) {
	switch s {
	case core:
		return "", nil
	case "":
		return "", errors.New("a token is empty")
	}
	plain, was, err := escaped(s, '=')
	if err != nil {
		return "", err
	}
	group := []byte(plain)
	for i, c := range group {
		if c == '_' && !was[i] {
			group[i] = '.'
		}
	}
	// The first byte of a group named "core" is escaped.
	named := string(group) == core
	return exactly(s, string(group), was, func(at int) bool {
		switch c := group[at]; {
		case at == 0 && (named || c == '.'):
			return true
		case c == '.':
			return false
		case c == '_':
			return true
		default:
			return !inToken(c)
		}
	})
}

// namespaceToken parses the token of a namespace: "_" means no namespace.
func namespaceToken(s string) (string, error) {
	switch s {
	case noNamespace:
		return "", nil
	case "=5F":
		return noNamespace, nil
	}
	return token(s)
}

// text parses a string in which the characters that CloudEvents forbids are percent-encoded. slash
// says whether "/" must be encoded too, as in the segments of a partition key.
func text(s string, slash bool) (string, error) {
	plain, was, err := escaped(s, '%')
	if err != nil {
		return "", err
	}
	must := mustEncode(plain, slash)
	return exactly(s, plain, was, func(at int) bool { return must[at] })
}

// mustEncode reports for each byte of s whether it must be percent-encoded. These bytes must be: "%",
// the bytes of characters that section 3.1 of CloudEvents 1.0 forbids, and, if slash is set, "/".
func mustEncode(s string, slash bool) []bool {
	must := make([]bool, 0, len(s))
	for at := 0; at < len(s); {
		r, size := utf8.DecodeRuneInString(s[at:])
		forbidden := r == '%' || slash && r == '/' || r < ' ' || r >= 0x7f && r < 0xa0 ||
			r >= 0xfdd0 && r <= 0xfdef || r&0xffff >= 0xfffe || r == utf8.RuneError && size == 1
		for range size {
			must = append(must, forbidden)
		}
		at += size
	}
	return must
}

// groupSegment and namespaceSegment parse segments of a partition key in which "core" and "_" have
// a special meaning. The first byte of a real name with such a value is escaped, as is the "_" at
// the beginning of a group.
func groupSegment(s string) (string, error) {
	if s == core {
		return "", nil
	}
	return segment(s, func(plain string) bool { return plain == core || plain != "" && plain[0] == '_' })
}

func namespaceSegment(s string) (string, error) {
	if s == noNamespace {
		return "", nil
	}
	return segment(s, func(plain string) bool { return plain == noNamespace })
}

func plainSegment(s string) (string, error) {
	return segment(s, func(string) bool { return false })
}

// segment parses a segment. special reports whether the first byte of a name must be escaped.
func segment(s string, special func(plain string) bool) (string, error) {
	if s == "" {
		return "", errors.New("a segment is empty")
	}
	plain, was, err := escaped(s, '%')
	if err != nil {
		return "", err
	}
	must := mustEncode(plain, true)
	return exactly(s, plain, was, func(at int) bool { return must[at] || at == 0 && special(plain) })
}

// header parses the value of a header on NATS. Spaces, double quotes, percent signs, and all
// characters except printable ASCII are percent-encoded (CloudEvents NATS binding, section
// 3.1.3.2).
func header(s string) (string, error) {
	plain, was, err := escaped(s, '%')
	if err != nil {
		return "", err
	}
	if !utf8.ValidString(plain) {
		return "", fmt.Errorf("%q is not UTF-8", s)
	}
	return exactly(s, plain, was, func(at int) bool {
		c := plain[at]
		return c <= ' ' || c > '~' || c == '"' || c == '%'
	})
}
