package terminal

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"
)

func TestEscape(t *testing.T) {
	for text, want := range map[string]string{
		"":                     "",
		"plain\nlines":         "plain\nlines",
		"für \"you\" & <me>":   "für \"you\" & <me>",
		"\x1b[31mred":          `\u001b[31mred`,
		"a\tb\r":               `a\u0009b\u000d`,
		"\u202ereversed\u009b": `\u202ereversed\u009b`,
		"\U000e0001":           `\udb40\udc01`,
		"not UTF-8 \xff":       `not UTF-8 \ufffd`,
	} {
		if got := string(Escape([]byte(text))); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	if got, want := Line("two\nlines\x1b"), `two\u000alines\u001b`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestWriteJSON verifies that the output parses to the original value and has no terminal control
// sequence.
func TestWriteJSON(t *testing.T) {
	const hostile = "\x1b]0;title\a <b> \u2028 \U000e0001 \n"
	var b bytes.Buffer
	if err := WriteJSON(&b, map[string]string{"a": hostile}); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsFunc(b.String(), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) || !strings.Contains(b.String(), "<b>") {
		t.Errorf("got %q", &b)
	}
	var back map[string]string
	if err := json.Unmarshal(b.Bytes(), &back); err != nil || back["a"] != hostile {
		t.Errorf("got %q, %v", back, err)
	}
}
