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

// console is what the user reads. Its methods may be called concurrently: lines
// come whole.
type console struct {
	terminal, color bool

	mu sync.Mutex
	w  io.Writer
}

// newConsole uses colours on a terminal, unless NO_COLOR says not to
// (https://no-color.org).
func newConsole(f *os.File) *console {
	terminal := term.IsTerminal(int(f.Fd()))
	return &console{w: f, terminal: terminal, color: terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// Parameters of the terminal's SGR sequence.
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
	fmt.Fprintln(c.w, line) // who closed the pipe has ended us
}

// say announces what is done next, and the commands with which a user would do it.
func (c *console) say(what string, commands ...string) {
	text := "\n" + c.paint(bold, "→ "+what)
	for _, command := range commands {
		text += "\n" + c.paint(grey, "  $ "+command)
	}
	c.println(text)
}

// note is for details of what was said last.
func (c *console) note(format string, args ...any) {
	c.println(c.paint(grey, "  "+fmt.Sprintf(format, args...)))
}

// done says that something was seen to be so.
func (c *console) done(format string, args ...any) {
	c.println(c.paint(boldGreen, "  ✓ ") + fmt.Sprintf(format, args...))
}

// notes is a writer whose lines become notes.
func (c *console) notes() io.Writer {
	return &lines{take: func(line string) { c.note("%s", line) }}
}

// lines is a writer that hands over line by line. Writes must not overlap.
type lines struct {
	take func(line string)
	rest []byte // the begun line
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
