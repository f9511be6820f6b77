package jsonscan

import (
	"bytes"
	"encoding/json"
	"errors"
)

// ErrSyntax means that a text is not valid JSON, is incomplete, or has a value of an
// unexpected type. It has no details, because the text can contain secrets.
var ErrSyntax = errors.New("not valid JSON, or not of the expected form")

// Scanner scans one JSON text. After an error, all methods do nothing, so that it is enough to
// check [Scanner.Err] once:
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
// Between two calls of Next, consume exactly one value with Skip, Text, Object, or Array. The zero
// value is an empty text.
type Scanner struct {
	b      []byte
	i      int
	depth  int  // open objects and arrays
	first  bool // the innermost object or array was just opened
	failed bool

	keyFrom, keyTo int // including the quotes
}

// New returns a Scanner of a text. The Scanner does not modify the text.
func New(text []byte) Scanner { return Scanner{b: text} }

// NewAt is like New, but the text counts as nested in the given number of objects and arrays. With
// -1, the outermost object or array of the text does not count, so the object in a watch event may have
// as many levels as an object on its own.
func NewAt(levels int, text []byte) Scanner { return Scanner{b: text, depth: levels} }

// Err returns [ErrSyntax] after an error, and nil otherwise.
func (s *Scanner) Err() error {
	if s.failed {
		return ErrSyntax
	}
	return nil
}

// End is like Err, but also returns an error if anything except white space is left.
func (s *Scanner) End() error {
	if s.i = space(s.b, s.i); s.i < len(s.b) {
		s.failed = true
	}
	return s.Err()
}

// Position returns the current offset: after the last value, key, or bracket.
func (s *Scanner) Position() int { return s.i }

// Between returns the text between two positions.
func (s *Scanner) Between(from, to int) []byte { return s.b[from:to] }

// Fail makes Err return [ErrSyntax]. Call it to reject valid JSON.
func (s *Scanner) Fail() { s.failed = true }

// Object enters an object. Next and Key visit its members.
func (s *Scanner) Object() { s.open('{') }

// Array enters an array. NextItem visits its items.
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

// Next moves to the next member of the innermost object. After the last member, it leaves the
// object and returns false. It also returns false after an error.
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

// NextItem is like Next, but for the items of an array.
func (s *Scanner) NextItem() bool { return s.more(']') }

// more moves to the next member or item. It returns false at the closing bracket, which it
// consumes, and after an error.
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

// Key returns the unescaped name of the member that Next moved to. The result might share the memory
// of the text.
func (s *Scanner) Key() []byte {
	raw := s.b[s.keyFrom+1 : s.keyTo-1]
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	return unquote(s.b[s.keyFrom:s.keyTo])
}

// KeyPosition returns the position of the member that Next moved to.
func (s *Scanner) KeyPosition() int { return s.keyFrom }

// Skip consumes a value of any type, and returns its text.
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

// Text consumes a string, and returns it without quotes and escapes. A value of another
// type is an error. The result is a part of the text if nothing is escaped.
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

// IsObject reports whether the next value is an object, without consuming it.
func (s *Scanner) IsObject() bool { return !s.failed && at(s.b, space(s.b, s.i)) == '{' }

// IsArray reports whether the next value is an array, without consuming it.
func (s *Scanner) IsArray() bool { return !s.failed && at(s.b, space(s.b, s.i)) == '[' }

// Null consumes the next value if it is null, and reports whether it was.
func (s *Scanner) Null() bool {
	s.i = space(s.b, s.i)
	if s.failed || word(s.b, s.i, "null") < 0 {
		return false
	}
	s.i += len("null")
	return true
}

// unquote decodes a valid JSON string with escapes.
func unquote(quoted []byte) []byte {
	var text string
	_ = json.Unmarshal(quoted, &text) // it is valid
	return []byte(text)
}
