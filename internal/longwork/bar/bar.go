// Package bar shows a progress bar in the last line of a terminal.
//
// It guarantees that output never mixes with the bar, and that the bar is removed at the end.
// Without a terminal, it shows nothing. If several kinds of work are in progress, it shows only the
// first.
package bar

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	terminal "golang.org/x/term"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kuberelay/kuberelay/internal/longwork"
)

const (
	interval  = 100 * time.Millisecond
	delay     = 500 * time.Millisecond // shorter work shows no bar
	length    = 20                     // number of characters of the bar itself
	clearLine = "\r\x1b[K"
)

// bar shows the progress of work in the last line of a terminal.
type bar struct {
	mu    sync.Mutex // one write at a time
	w     io.Writer
	shown bool
}

// Show shows the progress of each kind of work while it runs, if standard error is a terminal. From then on,
// write only to the returned outputs. stop removes the bar. Calling stop again has no effect.
func Show(stdout, stderr io.Writer, works ...longwork.Work) (out, errs io.Writer, stop func()) {
	file, ok := stderr.(*os.File)
	if !ok || !isTerminal(file) || os.Getenv("TERM") == "dumb" {
		return stdout, stderr, func() {}
	}
	b := &bar{w: stderr}
	if f, ok := stdout.(*os.File); ok && isTerminal(f) {
		stdout = writer{b, f}
	}
	done, ended, once := make(chan struct{}), make(chan struct{}), sync.Once{}
	go func() {
		defer close(ended)
		b.run(longwork.New(works, time.Now, slog.New(slog.DiscardHandler)), func() int { return columns(file) }, done)
	}()
	return stdout, writer{b, file}, func() {
		once.Do(func() { close(done) })
		<-ended
	}
}

func isTerminal(f *os.File) bool { return terminal.IsTerminal(int(f.Fd())) }

func columns(f *os.File) int {
	n, _, err := terminal.GetSize(int(f.Fd()))
	if err != nil || n <= 0 {
		return 80
	}
	return n
}

// run redraws the bar until done is closed.
func (b *bar) run(t *longwork.Tracker, width func() int, done <-chan struct{}) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			b.draw("")
			return
		case now := <-ticker.C:
			t.Sample()
			text := ""
			if all := t.Progress(); len(all) > 0 && now.Sub(all[0].Since) >= delay {
				text = line(all[0], width())
			}
			b.draw(text)
		}
	}
}

// draw replaces the bar with text. If text is "", it only removes the bar.
func (b *bar) draw(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clear()
	if text != "" {
		_, _ = io.WriteString(b.w, text) // an error means that the terminal is gone
		b.shown = true
	}
}

// clear removes the bar. The caller holds the lock.
func (b *bar) clear() {
	if b.shown {
		_, _ = io.WriteString(b.w, clearLine)
		b.shown = false
	}
}

// line returns the text of a bar. The text fits in one line of the terminal.
func line(p longwork.Progress, width int) string {
	text := p.Work
	if p.Total > 0 {
		filled := int(length * p.Done / p.Total)
		text += fmt.Sprintf(" [%s%s] %d%%", strings.Repeat("#", filled), strings.Repeat(".", length-filled), 100*p.Done/p.Total)
		text += fmt.Sprintf(", %d of %d %s", p.Done, p.Total, p.Unit)
	} else {
		text += fmt.Sprintf(": %d %s", p.Done, p.Unit)
	}
	if p.Known {
		text += fmt.Sprintf(", %s left", duration.HumanDuration(p.Left))
	}
	return text[:min(len(text), max(0, width-1))] // without the last column, which could begin a new line
}

// writer writes to the terminal that shows a bar.
type writer struct {
	bar  *bar
	file *os.File
}

// Fd returns the file descriptor of the terminal.
func (w writer) Fd() uintptr { return w.file.Fd() }

// Write removes the bar before it writes. The bar reappears after the next interval.
func (w writer) Write(p []byte) (int, error) {
	w.bar.mu.Lock()
	defer w.bar.mu.Unlock()
	w.bar.clear()
	return w.file.Write(p)
}
