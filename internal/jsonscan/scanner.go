package jsonscan

import (
	"bytes"
	"encoding/json"
	"errors"
)

// ErrSyntax is that a text is not valid JSON, not complete, or not of the form that was
// asked for. It has no more to say, as the text may hold what is secret.
var ErrSyntax = errors.New("not valid JSON, or not of the expected form")

// Scanner goes through one JSON text. After an error every method does nothing, so that
// [Scanner.Err] need be asked only once:
//
//	s := jsonscan.New(text)
//	for s.Object(); s.Next(); {
//		switch string(s.Key()) {
//		case "name":
//			name = s.Text()
//		default:
//			s.Skip()
//		}
//	}
//	if err := s.End(); err != nil {
//
// Between two calls of Next exactly one value has to be consumed: by Skip, Text, or an
// Object or Array of its own. The zero value is an empty text.
type Scanner struct {
	b      []byte
	i      int
	depth  int  // objects and arrays that are open
	first  bool // the innermost has just been opened
	failed bool

	keyFrom, keyTo int // with its quotes
}

// New makes a Scanner of a text, which it only reads.
func New(text []byte) Scanner { return Scanner{b: text} }

// Err is [ErrSyntax] or nil.
func (s *Scanner) Err() error {
	if s.failed {
		return ErrSyntax
	}
	return nil
}

// End is Err, and an error if anything but white space is left.
func (s *Scanner) End() error {
	if s.i = space(s.b, s.i); s.i < len(s.b) {
		s.failed = true
	}
	return s.Err()
}

// Position is where the Scanner stands: after the last value, key or bracket.
func (s *Scanner) Position() int { return s.i }

// Between is a part of the text, by two positions.
func (s *Scanner) Between(from, to int) []byte { return s.b[from:to] }

// Fail has Err be [ErrSyntax]: the caller found what JSON allows and it does not.
func (s *Scanner) Fail() { s.failed = true }

// Object goes into an object, whose members follow by Next and Key.
func (s *Scanner) Object() { s.open('{') }

// Array goes into an array, whose items follow by NextItem.
func (s *Scanner) Array() { s.open('[') }

func (s *Scanner) open(bracket byte) {
	s.i = space(s.b, s.i)
	if s.depth++; s.failed || at(s.b, s.i) != bracket || s.depth > maxDepth {
		s.failed = true
		return
	}
	s.i++
	s.first = true
}

// Next goes to the next member of the innermost object. After the last one it leaves the
// object and is false, as it is after an error.
func (s *Scanner) Next() bool {
	if !s.more('}') {
		return false
	}
	from := s.i
	to := key(s.b, from)
	if to < 0 {
		s.failed = true
		return false
	}
	s.keyFrom = from
	s.keyTo = bytes.LastIndexByte(s.b[from:to], '"') + from + 1
	s.i = to
	return true
}

// NextItem is Next for an array.
func (s *Scanner) NextItem() bool { return s.more(']') }

// more goes to the beginning of a member or an item.
func (s *Scanner) more(bracket byte) bool {
	if s.failed {
		return false
	}
	first := s.first
	s.first = false
	s.i = space(s.b, s.i)
	switch c := at(s.b, s.i); {
	case c == bracket:
		s.i++
		s.depth--
		return false
	case first:
	case c == ',':
		s.i = space(s.b, s.i+1)
		if at(s.b, s.i) == bracket {
			s.failed = true
		}
	default:
		s.failed = true
	}
	return !s.failed
}

// Key is the name of the member that Next went to, escapes undone. It is valid until the
// text is.
func (s *Scanner) Key() []byte {
	raw := s.b[s.keyFrom+1 : s.keyTo-1]
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	return unquote(s.b[s.keyFrom:s.keyTo])
}

// KeyPosition is where the member that Next went to begins.
func (s *Scanner) KeyPosition() int { return s.keyFrom }

// Skip consumes a value of any kind, and gives its text.
func (s *Scanner) Skip() []byte {
	s.i = space(s.b, s.i)
	if s.failed {
		return nil
	}
	from := s.i
	to := skip(s.b, from, s.depth)
	if to < 0 {
		s.failed = true
		return nil
	}
	s.i = to
	return s.b[from:to]
}

// Text consumes a string, and gives it without its quotes and escapes. It is an error if
// the value is of another kind. What it gives is a part of the text where nothing is
// escaped.
func (s *Scanner) Text() []byte {
	v := s.Skip()
	if s.failed || v[0] != '"' {
		s.failed = true
		return nil
	}
	if raw := v[1 : len(v)-1]; bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	return unquote(v)
}

// IsObject tells whether the value that comes next is an object, without consuming it.
func (s *Scanner) IsObject() bool { return !s.failed && at(s.b, space(s.b, s.i)) == '{' }

// Null consumes a null, and tells whether there was one.
func (s *Scanner) Null() bool {
	s.i = space(s.b, s.i)
	if s.failed || word(s.b, s.i, "null") < 0 {
		return false
	}
	s.i += len("null")
	return true
}

// unquote is of a valid string with escapes.
func unquote(quoted []byte) []byte {
	var text string
	_ = json.Unmarshal(quoted, &text) // it is valid
	return []byte(text)
}
