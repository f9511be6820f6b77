package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	terminal "golang.org/x/term"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kuberelay/kuberelay/internal/longwork"
)

const (
	barInterval = 100 * time.Millisecond
	barDelay    = 500 * time.Millisecond // shorter work shows no bar
	barWidth    = 20                     // of the bar itself
	clearLine   = "\r\x1b[K"
)

// bar shows how far work has come, in the last line of a terminal.
type bar struct {
	mu    sync.Mutex // one write at a time
	w     io.Writer
	shown bool
}

// showProgress shows how far the works of a command have come while they last, if standard error
// is a terminal. Stop ends that, and leaves nothing of it; it may be called again. From now on, the
// command must write to the outputs of cmd.
func showProgress(cmd *cobra.Command, works ...longwork.Work) (stop func()) {
	stdout, stderr := cmd.OutOrStdout(), cmd.ErrOrStderr()
	file, ok := stderr.(*os.File)
	if !ok || !isTerminal(file) || os.Getenv("TERM") == "dumb" {
		return func() {}
	}
	b := &bar{w: stderr}
	cmd.SetErr(barWriter{b, file})
	if out, ok := stdout.(*os.File); ok && isTerminal(out) {
		cmd.SetOut(barWriter{b, out})
	}
	done, ended, once := make(chan struct{}), make(chan struct{}), sync.Once{}
	go func() {
		defer close(ended)
		b.follow(longwork.New(works, time.Now, slog.New(slog.DiscardHandler)), func() int { return columns(file) }, done)
	}()
	return func() {
		once.Do(func() { close(done) })
		<-ended
	}
}

func columns(f *os.File) int {
	n, _, err := terminal.GetSize(int(f.Fd()))
	if err != nil || n <= 0 {
		return 80
	}
	return n
}

// follow redraws the bar until done is closed.
func (b *bar) follow(t *longwork.Tracker, width func() int, done <-chan struct{}) {
	ticker := time.NewTicker(barInterval)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			b.draw("")
			return
		case now := <-ticker.C:
			t.Sample()
			text := ""
			if all := t.Progress(); len(all) > 0 && now.Sub(all[0].Since) >= barDelay {
				text = barLine(all[0], width())
			}
			b.draw(text)
		}
	}
}

// draw replaces the bar by a text, "" for none.
func (b *bar) draw(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clear()
	if text != "" {
		_, _ = io.WriteString(b.w, text) // a terminal that is gone
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

// barLine is the text of a bar, which fits in a line of a terminal.
func barLine(p longwork.Progress, width int) string {
	text := p.Work
	if p.Total > 0 {
		filled := int(barWidth * p.Done / p.Total)
		text += fmt.Sprintf(" [%s%s] %d%%", strings.Repeat("#", filled), strings.Repeat(".", barWidth-filled), 100*p.Done/p.Total)
		text += fmt.Sprintf(", %d of %d %s", p.Done, p.Total, p.Unit)
	} else {
		text += fmt.Sprintf(": %d %s", p.Done, p.Unit)
	}
	if p.Known {
		text += fmt.Sprintf(", %s left", duration.HumanDuration(p.Left))
	}
	return text[:min(len(text), max(0, width-1))] // without the last column, which could begin a new line
}

// barWriter is an output on the terminal of a bar.
type barWriter struct {
	bar  *bar
	file *os.File
}

// Fd is that of the terminal.
func (w barWriter) Fd() uintptr { return w.file.Fd() }

// Write removes the bar first. It comes back after the next interval.
func (w barWriter) Write(p []byte) (int, error) {
	w.bar.mu.Lock()
	defer w.bar.mu.Unlock()
	w.bar.clear()
	return w.file.Write(p)
}
