// Package terminal writes output for people and for jq. It escapes terminal control sequences,
// because errors and names come from clusters and buses that others control.
//
// The package guarantees that its output has only printable characters and line breaks, and that
// JSON keeps its meaning. It doesn't quote or align anything.
package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Escape replaces each unprintable character except newlines with \uXXXX. In JSON, these characters occur
// only inside strings, so the JSON keeps its meaning. If b has only printable ASCII characters and
// newlines, Escape returns b itself.
func Escape(b []byte) []byte {
	first := 0
	for first < len(b) && (' ' <= b[first] && b[first] <= '~' || b[first] == '\n') {
		first++
	}
	if first == len(b) {
		return b
	}
	escaped := append(make([]byte, 0, len(b)+64), b[:first]...)
	for i := first; i < len(b); {
		r, size := utf8.DecodeRune(b[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			escaped = append(escaped, `\ufffd`...)
		case r == '\n' || unicode.IsPrint(r):
			escaped = append(escaped, b[i:i+size]...)
		case r > 0xffff:
			r -= 0x10000
			escaped = fmt.Appendf(escaped, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			escaped = fmt.Appendf(escaped, `\u%04x`, r)
		}
		i += size
	}
	return escaped
}

// Line is like [Escape], but for text within a line: it also escapes newlines.
func Line(s string) string {
	return strings.ReplaceAll(string(Escape([]byte(s))), "\n", `\u000a`)
}

// OneLine replaces each run of white space, including newlines, with a single space.
func OneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// WriteJSON writes a value as indented JSON, with a newline at the end.
func WriteJSON[T any](w io.Writer, v T) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(Escape(b.Bytes()))
	return err
}
