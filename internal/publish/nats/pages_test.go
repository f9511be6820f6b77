package nats

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/nats/reader"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
)

// paged is a bus whose server lists subjects in small pages. Objects are created or purged before the
// server reads a page.
type paged struct {
	writer *Bus // not paged
	domain string
	at     map[event.Key]uint64 // the events that Load must yield
	purged map[event.Key]bool   // the objects that Load must report as purged; they are in at too

	mu      sync.Mutex // the before function of startPaged runs in another goroutine
	offsets []int      // of the pages
}

// startPaged publishes events of objects. With limit 0, the pages are those of the server.
func startPaged(t *testing.T, limit, objects int, before func(p *paged, page int)) (s *natstest.Server, p *paged) {
	t.Helper()
	s = natstest.Start(t)
	p = &paged{at: map[event.Key]uint64{}, purged: map[event.Key]bool{}}
	p.writer = connect(t, Options{Connection: Connection{URLs: []string{s.URL}, Cluster: publishtest.Cluster}, History: 1})
	for i := range objects {
		o := web(i)
		p.writer.Publish(t.Context(), o.Message(t, 0), func(position uint64, err error) {
			if err != nil {
				t.Error(err)
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			p.at[o.Key()] = position
		})
	}
	if err := p.writer.flights.pending.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.domain = natstest.Pages(t, s.URL, limit, func(offset int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.offsets = append(p.offsets, offset)
		before(p, len(p.offsets))
	})
	return s, p
}

func web(i int) publishtest.Object {
	return publishtest.Object{Name: fmt.Sprintf("web-%06d", i), Version: 1}
}

// publish publishes the first event of an object.
func (p *paged) publish(t *testing.T, o publishtest.Object) {
	p.writer.Publish(t.Context(), o.Message(t, 0), func(position uint64, err error) {
		if err != nil {
			t.Error(err)
		}
		p.at[o.Key()] = position
	})
	if err := p.writer.flights.pending.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

// create creates an object whose subject comes before those of all others. Load need not yield it.
func (p *paged) create(t *testing.T, page int) {
	o := publishtest.Object{Name: fmt.Sprintf("a-%03d", page), Version: 1}
	p.publish(t, o)
	delete(p.at, o.Key())
}

// purge removes the events of an object, as the forwarder does after KUBERELAY_DELETE_RETENTION.
func (p *paged) purge(t *testing.T, i int) {
	k := web(i).Key()
	if err := p.writer.Purge(t.Context(), k, p.at[k]); err != nil {
		t.Errorf("purge %s: %v", k, err)
	}
	if len(p.offsets) == 1 { // after the consumer has returned all messages, and before the list
		p.purged[k] = true
	} else {
		delete(p.at, k)
	}
}

// verify loads the checkpoint and compares it with the bus.
func (p *paged) verify(t *testing.T, s *natstest.Server) {
	t.Helper()
	bus := connect(t, Options{Connection: Connection{URLs: []string{s.URL}, Cluster: publishtest.Cluster, Domain: p.domain}, History: 1})
	got := load(t, bus)
	p.mu.Lock()
	defer p.mu.Unlock()
	wrong := 0
	for k, want := range p.at {
		if p.purged[k] {
			want = 0
		}
		if a, ok := got[k]; !ok || a.Position != want {
			if wrong++; wrong <= 3 {
				t.Errorf("%s is loaded at %d (%v), want %d", k, a.Position, ok, want)
			}
		}
	}
	if len(p.offsets) < 2 || wrong > 0 {
		t.Errorf("%d of %d objects are wrong, after pages %v", wrong, len(p.at), p.offsets)
	}
}

// TestLoadPagesWhileCreating verifies that Load succeeds and finds every object if objects are
// created between the pages of the list of subjects. An earlier version requested the last page
// again until its deadline, because every created object repeats a subject at the next page.
func TestLoadPagesWhileCreating(t *testing.T) {
	s, p := startPaged(t, 10, 95, func(p *paged, page int) { p.create(t, page) })
	p.verify(t, s)
}

// TestLoadPagesWhilePurging verifies that Load reports purged objects, and no others, as purged if
// objects are purged between the pages of the list of subjects. For each purged object, an earlier
// version also reported an existing object as purged.
func TestLoadPagesWhilePurging(t *testing.T) {
	s, p := startPaged(t, 10, 95, func(p *paged, page int) {
		for i := range 3 {
			p.purge(t, 3*page+i)
		}
	})
	p.verify(t, s)
}

// TestLoadPurgedAndCreated verifies that Load yields an object that is not in the list of subjects,
// because it was purged before the server read the page, and was recreated afterwards.
func TestLoadPurgedAndCreated(t *testing.T) {
	s, p := startPaged(t, 10, 15, func(p *paged, page int) {
		switch page {
		case 1:
			p.purge(t, 0)
		case 2:
			p.publish(t, web(0))
			delete(p.purged, web(0).Key())
		}
	})
	p.verify(t, s)
}

// TestLoadInvalidSubjects verifies that Load ends even if subjects are not valid UTF-8. In an earlier
// version, it did not end after two such messages of another writer: they look the same in the list of
// subjects, so the list seemed incomplete.
func TestLoadInvalidSubjects(t *testing.T) {
	s := natstest.Start(t)
	bus := connect(t, Options{Connection: Connection{URLs: []string{s.URL}, Cluster: publishtest.Cluster}})
	want := fill(t, bus, 3, 1)
	js := observe(t, s.URL)
	for _, token := range []string{"\xf0", "\xf1"} {
		if _, err := js.Publish(t.Context(), "kuberelay.test=2Ecluster."+token, nil); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, load(t, bus), whenever); diff != "" {
		t.Errorf("loaded (-want +got):\n%s", diff)
	}
}

// TestLoadPages_Slow is like the tests above, with the pages of the server, which have 100,000
// subjects.
func TestLoadPages_Slow(t *testing.T) {
	t.Run("creating", func(t *testing.T) {
		s, p := startPaged(t, 0, 100_500, func(p *paged, page int) { p.create(t, page) })
		p.verify(t, s)
	})
	t.Run("purging", func(t *testing.T) {
		s, p := startPaged(t, 0, 100_500, func(p *paged, page int) {
			for i := range 30 {
				p.purge(t, 30*page+i)
			}
		})
		p.verify(t, s)
	})
}

// TestSubjectsPages verifies that a reader lists every subject if objects are created and purged
// between the pages.
func TestSubjectsPages(t *testing.T) {
	s, p := startPaged(t, 10, 95, func(p *paged, page int) {
		p.create(t, page)
		for i := range 3 {
			p.purge(t, 3*page+i)
		}
	})
	bus, err := reader.Connect(t.Context(), reader.Options{URLs: []string{s.URL}, Domain: p.domain})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bus.Close() })
	subjects, err := bus.Subjects(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.Sort(subjects)
	if again := slices.Compact(slices.Clone(subjects)); len(again) != len(subjects) {
		t.Errorf("%d subjects, of which %d are different", len(subjects), len(again))
	}
	for k := range p.at {
		if _, ok := slices.BinarySearch(subjects, subjectOf(k)); !ok && !p.purged[k] {
			t.Errorf("%s is missing, after pages %v", k, p.offsets)
		}
	}
}
