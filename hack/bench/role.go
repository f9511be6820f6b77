package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"
)

// A role tells its parent what it has reached, a line of JSON each, and, when the parent
// writes a line, how much it has allocated. It ends with its standard input.

// milestone is what a role has reached.
type milestone struct {
	Reached string // "synced", "acked" or "ready"
	At      time.Time
	Bytes   int64  `json:",omitempty"` // read off the wire
	URL     string `json:",omitempty"` // of a server
	Mallocs uint64 `json:",omitempty"` // objects allocated so far
}

// memory is of the Go heap.
type memory struct {
	Live    uint64 // bytes that a forced garbage collection has left
	Mallocs uint64 // objects allocated so far
}

func tell(v any) error { return json.NewEncoder(os.Stdout).Encode(v) }

func reach(what string) milestone {
	m := milestone{Reached: what, At: time.Now()}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	m.Mallocs = stats.Mallocs
	return m
}

// answerUntilEnd tells how much memory is in use whenever it is asked.
func answerUntilEnd(ctx context.Context) error {
	lines := make(chan error)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			runtime.GC()
			runtime.GC() // pools keep what they have for one cycle more
			var stats runtime.MemStats
			runtime.ReadMemStats(&stats)
			lines <- tell(memory{Live: stats.HeapAlloc, Mallocs: stats.Mallocs})
		}
	}()
	for {
		select {
		case err, more := <-lines:
			if !more || err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// played is a role from its parent's side.
type played struct {
	*process
	in *json.Decoder
}

func (p *played) await(what string) (milestone, error) {
	var m milestone
	if err := p.read(&m); err != nil {
		return m, err
	}
	if m.Reached != what {
		return m, fmt.Errorf("%s: got to %q, want %q", p.name, m.Reached, what)
	}
	return m, nil
}

func (p *played) memory() (memory, error) {
	if _, err := io.WriteString(p.stdin, "\n"); err != nil {
		return memory{}, err
	}
	var m memory
	err := p.read(&m)
	return m, err
}

func (p *played) read(v any) error {
	err := p.in.Decode(v)
	if err == nil {
		return nil
	}
	<-time.After(100 * time.Millisecond) // until its end is known, which explains it
	if ended := p.alive(); ended != nil {
		return ended
	}
	return fmt.Errorf("%s: %w", p.name, err)
}
