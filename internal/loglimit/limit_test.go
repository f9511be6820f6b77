package loglimit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// written is a logger and its output.
type written struct {
	*slog.Logger
	handler *Handler

	mu   sync.Mutex
	text bytes.Buffer
}

func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

func open() *written {
	w := &written{}
	w.handler = New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
	w.Logger = slog.New(w.handler)
	return w
}

type line struct {
	Level, Msg, Name, Resource, Err string
	Suppressed                      int
}

func (w *written) lines(t *testing.T) (all []line) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for text := range strings.Lines(w.text.String()) {
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	return all
}

// total returns the number of records that the lines represent.
func total(all []line) int {
	n := len(all)
	for _, l := range all {
		n += l.Suppressed
	}
	return n
}

var errAck = errors.New("no acknowledgement")

// TestAHungBus verifies that 30 objects that fail every second for 30 s count as one cause.
func TestAHungBus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := open()
		objects := make([]*slog.Logger, 30)
		for i := range objects {
			objects[i] = log.With("resource", "pods", "name", fmt.Sprint("pod-", i))
		}
		for second := range 30 {
			for i, object := range objects {
				object.Warn("publish failed, retrying", "err", fmt.Errorf("publish %d, %d: %w", i, second, errAck))
			}
			time.Sleep(999 * time.Millisecond) // not at the end of an interval
		}
		time.Sleep(interval / 2)
		all := log.lines(t)
		if want := burst + 3; len(all) != want || total(all) != 900 {
			t.Fatalf("%d lines for %d warnings, want %d for 900: %+v", len(all), total(all), want, all)
		}
		for i, l := range all {
			if (l.Suppressed > 0) != (i >= burst) || l.Name == "" || l.Resource != "pods" {
				t.Errorf("line %d is %+v", i, l)
			}
		}
		if last := all[len(all)-1]; last.Name != "pod-29" || !strings.HasPrefix(last.Err, "publish 29, 29: ") {
			t.Errorf("the last line is %+v", last)
		}
		time.Sleep(2 * interval)
		if got := log.lines(t); len(got) != len(all) {
			t.Errorf("%d lines after the end", len(got)-len(all))
		}
		objects[0].Warn("publish failed, retrying", "err", errAck)
		if got := log.lines(t); len(got) != len(all)+1 || got[len(all)].Suppressed != 0 {
			t.Errorf("after a silence: %+v", got[len(all):])
		}
		time.Sleep(2 * interval) // until the timers have ended
	})
}

// TestNothingIsLost verifies that Flush writes the counted warnings at the end of the process.
func TestNothingIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := open()
		for range 100 {
			log.Warn("retrying")
		}
		if all := log.lines(t); total(all) != burst {
			t.Fatalf("%d warnings were written", total(all))
		}
		log.handler.Flush()
		if all := log.lines(t); len(all) != burst+1 || total(all) != 100 {
			t.Errorf("after the flush: %+v", all)
		}
		log.handler.Flush()
		time.Sleep(2 * interval)
		if all := log.lines(t); total(all) != 100 {
			t.Errorf("in the end: %+v", all)
		}
	})
}

// TestTheOthersPass verifies that records at the levels Debug, Info and Error are always written.
func TestTheOthersPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := open()
		for range 100 {
			log.Debug("event acknowledged")
			log.Info("informer synced")
			log.Error("object stays unpublished")
		}
		if all := log.lines(t); len(all) != 300 {
			t.Errorf("%d lines, want 300", len(all))
		}
	})
}

func TestCauses(t *testing.T) {
	const n = 20 // of each
	object := func(i int) []any { return []any{"resource", "pods", "name", fmt.Sprint(i)} }
	for name, c := range map[string]struct {
		warn  func(log *slog.Logger, i int)
		lines int
	}{
		"objects": {func(log *slog.Logger, i int) { log.Warn("m", append(object(i), "err", errAck)...) }, burst + 1},
		"another error": {func(log *slog.Logger, i int) {
			log.Warn("m", append(object(i), "err", []error{errAck, errors.New("full")}[i%2])...)
		}, 2 * (burst + 1)},
		"joined errors": {func(log *slog.Logger, i int) {
			log.Warn("m", append(object(i), "err", fmt.Errorf("%d: %w: %w", i, errors.New("not sent"), errAck))...)
		}, burst + 1},
		"errors of each": {func(log *slog.Logger, i int) { log.Warn("m", append(object(i), "err", fmt.Errorf("object %d", i))...) }, maxKinds + burst + 1},
		"another message": {func(log *slog.Logger, i int) {
			if i%2 == 0 {
				log.Warn("m", object(i)...)
			} else {
				log.Warn("n", object(i)...)
			}
		}, 2 * (burst + 1)},
		"resources":        {func(log *slog.Logger, i int) { log.Warn("m", "resource", fmt.Sprint(i), "err", errAck) }, n},
		"a resource":       {func(log *slog.Logger, i int) { log.Warn("m", "resource", "pods", "attempt", i) }, burst + 1},
		"attributes first": {func(log *slog.Logger, i int) { log.With(object(i)...).Warn("m", "err", errAck) }, burst + 1},
		"foreign events": {func(log *slog.Logger, i int) {
			log.Warn("m", append(object(i), "foreign_position", i, "type", "updated")...)
		}, burst + 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := open()
				for i := range n {
					c.warn(log.Logger, i)
				}
				time.Sleep(3 * interval)
				if all := log.lines(t); len(all) != c.lines || total(all) != n {
					t.Errorf("%d lines for %d warnings, want %d for %d: %+v", len(all), total(all), c.lines, n, all)
				}
			})
		})
	}
}

// TestMemoryIsBounded verifies that all causes beyond maxCauses share one cause.
func TestMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := open()
		const n = 3 * maxCauses
		for i := range n {
			log.Warn("m", "topic", fmt.Sprint(i))
		}
		remembered := func() (causes, messages int) {
			l := log.handler.limits
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.causes), len(l.kinds)
		}
		if causes, _ := remembered(); causes > maxCauses+1 {
			t.Errorf("%d causes are remembered", causes)
		}
		time.Sleep(3 * interval)
		if all := log.lines(t); total(all) != n {
			t.Errorf("%d lines stand for %d warnings, want %d", len(all), total(all), n)
		}
		if causes, messages := remembered(); causes+messages > 0 {
			t.Errorf("%d causes and %d messages are remembered after a silence", causes, messages)
		}
	})
}
