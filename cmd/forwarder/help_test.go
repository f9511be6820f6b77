package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// TestHelpFitsAScreen verifies that the help of each command and topic fits on a screen. The list of
// variables is an exception.
func TestHelpFitsAScreen(t *testing.T) {
	const lines, columns = 40, 100
	root := newRootCommand()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range append([]*cobra.Command{root}, root.Commands()...) {
		if c.Name() == "environment" || c.Name() == "completion" || c.Name() == "help" {
			continue
		}
		var b bytes.Buffer
		c.SetOut(&b)
		if err := c.Help(); err != nil {
			t.Fatal(err)
		}
		text := strings.TrimRight(b.String(), "\n")
		if n := strings.Count(text, "\n") + 1; n > lines {
			t.Errorf("%s: %d lines:\n%s", c.Name(), n, text)
		}
		for line := range strings.Lines(text) {
			isText := !strings.HasPrefix(strings.TrimSpace(line), "-")
			if isText && utf8.RuneCountInString(strings.TrimRight(line, "\n")) > columns {
				t.Errorf("%s: %d columns: %s", c.Name(), utf8.RuneCountInString(line), line)
			}
		}
	}
}
