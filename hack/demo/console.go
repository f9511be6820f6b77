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

// console prints the output of the demo. It is safe for concurrent use: it writes each line as a whole.
type console struct {
	terminal, color bool

	mu sync.Mutex
	w  io.Writer
}

// newConsole returns a console. It uses colors on a terminal unless NO_COLOR is set
// (https://no-color.org).
func newConsole(f *os.File) *console {
	terminal := term.IsTerminal(int(f.Fd()))
	return &console{w: f, terminal: terminal, color: terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// Colors, as parameters of the SGR sequence.
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
	fmt.Fprintln(c.w, line) // if the pipe is closed, SIGPIPE ends the process
}

// say announces the next action, with commands that have the same effect.
func (c *console) say(what string, commands ...string) {
	text := "\n" + c.paint(bold, "→ "+what)
	for _, command := range commands {
		text += "\n" + c.paint(grey, "  $ "+command)
	}
	c.println(text)
}

// note prints a detail of the last announced action.
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
