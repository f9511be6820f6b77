package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/term"
)

// console prints what the user reads. Its methods may be called concurrently: each line is written
// whole.
type console struct {
	terminal, color bool

	mu sync.Mutex
	w  io.Writer
}

// newConsole uses colors on a terminal unless NO_COLOR is set (https://no-color.org).
func newConsole(f *os.File) *console {
	terminal := term.IsTerminal(int(f.Fd()))
	return &console{w: f, terminal: terminal, color: terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// Parameters of the terminal's SGR sequence
const (
	bold      = "1"
	boldRed   = "1;31"
	boldGreen = "1;32"
	grey      = "90"
)

func (c *console) paint(color, text string) string {
	if !c.color || text == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

func (c *console) println(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintln(c.w, line) // a closed pipe ends the process by SIGPIPE
}

// say announces the next action and the commands with which a user would do the same.
func (c *console) say(what string, commands ...string) {
	text := "\n" + c.paint(bold, "→ "+what)
	for _, command := range commands {
		text += "\n" + c.paint(grey, "  $ "+command)
	}
	c.println(text)
}

// note prints details of the last announcement.
func (c *console) note(format string, args ...any) {
	c.println(c.paint(grey, "  "+fmt.Sprintf(format, args...)))
}

// done reports a result that the demo has checked.
func (c *console) done(format string, args ...any) {
	c.println(c.paint(boldGreen, "  ✓ ") + fmt.Sprintf(format, args...))
}

// notes returns a writer that prints each line as a note.
func (c *console) notes() io.Writer {
	return &lines{take: func(line string) { c.note("%s", line) }}
}

// lines is a writer that calls take for each line. Writes must not overlap.
type lines struct {
	take func(line string)
	rest []byte // the unfinished line
}

func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		line, rest, whole := bytes.Cut(l.rest, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		l.take(strings.TrimSuffix(string(line), "\r"))
		l.rest = bytes.Clone(rest)
	}
}
