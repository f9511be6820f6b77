package jsonscan

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

var texts = []string{
	``, ` `, `{}`, `[]`, ` [ ] `, `{"a":1}`, `{"a":1,}`, `{,}`, `[1,]`, `[,1]`, `[1 2]`, `{"a" 1}`, `{"a":}`, `{a:1}`, `{"a":1]`, `[1}`,
	`{"a":{"b":[1,2,{"c":null}]},"d":[[],{}]}`, `{"a":1}{"b":2}`, `{"a":1} x`, `"`, `"a`, `"a"`, `"\"`, `"\\"`, `"\u12"`, `"\u12G4"`, `"\u00e9"`, `"\x"`,
	"\"a\nb\"", "\"\x7f\xff\"", "\"\x00\"", `"0123456"`, `"01234567"`, `"012345678"`, `"01234567\"9"`, `"\\\\\\\\"`,
	`0`, `-0`, `-`, `01`, `1.`, `.1`, `1.5`, `1e`, `1e+`, `1e5`, `1E-5`, `1.5e+05`, `+1`, `1e5.5`, `--1`, `0x1`,
	`true`, `tru`, `truex`, `false`, `null`, `nul`, `[true,false,null]`, `[truefalse]`, "\ufeff{}", "[\u00a01]", "[1]\x00", "{\"a\"\t:\r\n1 ,\"b\" : 2}",
	strings.Repeat("[", 64) + strings.Repeat("]", 64), strings.Repeat("[", 65) + strings.Repeat("]", 65), strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200),
	strings.Repeat("[", 200) + strings.Repeat("]", 199), strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth), strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1),
	strings.Repeat("[", 129) + `{"a":1` + strings.Repeat("]", 129),
}

// TestSkip verifies that a text is valid if and only if encoding/json accepts it.
func TestSkip(t *testing.T) {
	for _, text := range texts {
		checkValid(t, []byte(text))
	}
}

func FuzzSkip(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text))
	}
	f.Fuzz(checkValid)
}

func checkValid(t *testing.T, text []byte) {
	t.Helper()
	s := New(text)
	s.Skip()
	if got, want := s.End() == nil, json.Valid(text); got != want {
		t.Errorf("%.100q is valid: %t, encoding/json says %t", text, got, want)
	}
	walked := New(text)
	walk(&walked)
	if got, want := walked.End() == nil, json.Valid(text); got != want {
		t.Errorf("%.100q by walk is valid: %t, encoding/json says %t", text, got, want)
	}
	// No truncated text is complete, except numbers, which have no terminator.
	if whole := bytes.TrimSpace(text); json.Valid(text) && bytes.ContainsAny(text, `{["`) {
		cut := New(whole[:len(whole)-1])
		if cut.Skip(); cut.Err() == nil {
			t.Errorf("%.100q is valid without its last byte", whole)
		}
	}
}

// walk visits every value with the exported methods.
func walk(s *Scanner) {
	switch at(s.b, space(s.b, s.i)) {
	case '{':
		for s.Object(); s.Next(); {
			s.Key()
			walk(s)
		}
	case '[':
		for s.Array(); s.NextItem(); {
			walk(s)
		}
	case '"':
		s.Text()
	case 'n':
		if !s.Null() {
			s.Skip()
		}
	default:
		s.Skip()
	}
}

// FuzzScanner compares the members of an object with those of encoding/json.
func FuzzScanner(f *testing.F) {
	f.Add([]byte(`{"a":"b","\u0061c":"\u00e9\n","d":[1,"x"],"e":{"f":null}}`))
	f.Add([]byte(` { "a" : "b" , "c" : 1 } `))
	f.Fuzz(func(t *testing.T, text []byte) {
		var want map[string]json.RawMessage
		if !utf8.Valid(text) || json.Unmarshal(text, &want) != nil || want == nil {
			return // encoding/json replaces invalid UTF-8
		}
		got := map[string]json.RawMessage{}
		s := New(text)
		for s.Object(); s.Next(); {
			name := string(s.Key())
			if text[s.KeyPosition()] != '"' {
				t.Errorf("the key %q begins with %q", name, text[s.KeyPosition()])
			}
			got[name] = s.Skip()
		}
		if err := s.End(); err != nil || len(got) != len(want) {
			t.Fatalf("got %q, %v; encoding/json has %q", got, err, want)
		}
		for name, value := range want {
			if !bytes.Equal(got[name], value) {
				t.Errorf("%q is %q, encoding/json has %q", name, got[name], value)
			}
			var wantText *string
			if json.Unmarshal(value, &wantText) != nil || wantText == nil {
				continue
			}
			v := New(value)
			if gotText := string(v.Text()); gotText != *wantText || v.End() != nil {
				t.Errorf("%q has the text %q, encoding/json has %q", value, gotText, *wantText)
			}
		}
	})
}

// TestOtherForms verifies that a value of another type is an error, and that the error stays.
func TestOtherForms(t *testing.T) {
	for name, ask := range map[string]func(*Scanner){
		"object": func(s *Scanner) { s.Object(); s.Next(); s.Skip(); s.Next() },
		"array":  func(s *Scanner) { s.Array(); s.NextItem(); s.Skip(); s.NextItem() },
		"text":   func(s *Scanner) { s.Text() },
	} {
		for _, text := range []string{`1`, `{"a":1}`, `[1]`, `"a"`, `null`, ``} {
			s := New([]byte(text))
			ask(&s)
			fits := map[string]string{"object": "{", "array": "[", "text": `"`}[name]
			if got, want := s.End() == nil, strings.HasPrefix(text, fits) && text != ""; got != want {
				t.Errorf("%s of %s: error %v", name, text, s.Err())
			}
			if s.Err() != nil && (s.Next() || s.NextItem() || s.Null() || s.Skip() != nil || s.Text() != nil || !errors.Is(s.End(), ErrSyntax)) {
				t.Errorf("%s of %s: the scanner continues after an error", name, text)
			}
		}
	}
}

func BenchmarkSkip(b *testing.B) {
	text := []byte(`{"a":[` + strings.Repeat(`{"name":"LOG_LEVEL","value":"information","nested":{"f:spec":{"f:image":{},"n":1234}}},`, 150) + `null]}`)
	b.ReportAllocs()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		s := New(text)
		s.Skip()
		if err := s.End(); err != nil {
			b.Fatal(err)
		}
	}
}
