package page

import (
	"sync"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
)

const (
	keptEvents = 100
	// Recent counts events in spans of five seconds. It keeps the current span and the spans of the
	// last five minutes.
	spanLength = 5 * time.Second
	keptSpans  = 61
)

// Recent keeps the last acknowledged events and the rates of the last five minutes. It is safe for
// concurrent use. The zero value is ready for use.
type Recent struct {
	mu     sync.Mutex
	count  uint64                  // events so far
	events [keptEvents]publication // a ring: event n, counted from 1, is at index n-1 modulo the length
	spans  [keptSpans]span         // a ring: span n is at index n modulo the length
}

// Recents holds a [Recent] for each of several clusters. It is safe for concurrent use. The zero value
// is ready for use.
type Recents struct {
	mu  sync.Mutex
	all map[string]*Recent
}

// Of returns the Recent of a cluster, and creates it if necessary.
func (r *Recents) Of(cluster string) *Recent {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[string]*Recent{}
	}
	if r.all[cluster] == nil {
		r.all[cluster] = new(Recent)
	}
	return r.all[cluster]
}

// Forget removes the Recent of a cluster.
func (r *Recents) Forget(cluster string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, cluster)
}

// publication is an acknowledged event, without its content.
type publication struct {
	key     event.Key
	of      event.Type
	version string
	at      time.Time // time of the acknowledgement
	lag     time.Duration
}

// span counts the events of one period of [spanLength].
type span struct {
	number    int64 // number of the period, counted from 1970
	published int
	slowest   time.Duration
}

// Add records an acknowledged event. observed is the time at which the forwarder observed the change.
// Add allocates no memory.
func (r *Recent) Add(key event.Key, of event.Type, version string, observed, acknowledged time.Time) {
	lag := max(0, acknowledged.Sub(observed))
	number := spanNumber(acknowledged)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events[r.count%keptEvents] = publication{key, of, version, acknowledged, lag}
	r.count++
	s := &r.spans[number%keptSpans]
	if s.number != number {
		*s = span{number: number}
	}
	s.published++
	s.slowest = max(s.slowest, lag)
}

func spanNumber(t time.Time) int64 { return t.UnixNano() / int64(spanLength) }

// recentEvent is the JSON form of a publication.
type recentEvent struct {
	Number     uint64    `json:"number"` // identifies the event
	Time       time.Time `json:"time"`
	Type       string    `json:"type"`
	Resource   string    `json:"resource"`
	Namespace  string    `json:"namespace,omitempty"`
	Name       string    `json:"name"`
	Version    string    `json:"version"`
	LagSeconds float64   `json:"lagSeconds"`
}

// recentEvents is the list of events, newest first. Hidden means that the client may not see names.
type recentEvents struct {
	Hidden bool          `json:"hidden,omitempty"`
	Events []recentEvent `json:"events"`
}

// rates lists the counts of the last spans, oldest first. The last span is still in progress.
type rates struct {
	SpanSeconds int       `json:"spanSeconds"`
	Last        int64     `json:"last"` // the number of the last span, counted from 1970
	Published   []int     `json:"published"`
	Slowest     []float64 `json:"slowestSeconds"`
}

// counted returns the number of events so far.
func (r *Recent) counted() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}

func (r *Recent) list() recentEvents {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := recentEvents{Events: []recentEvent{}}
	for n := r.count; n > 0 && r.count-n < keptEvents; n-- {
		e := r.events[(n-1)%keptEvents]
		all.Events = append(all.Events, recentEvent{
			n, e.at.UTC().Truncate(time.Millisecond), e.of.Short(), e.key.GroupResource().String(), e.key.Namespace, e.key.Name, e.version, e.lag.Seconds(),
		})
	}
	return all
}

func (r *Recent) rates(now time.Time) rates {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := rates{SpanSeconds: int(spanLength.Seconds()), Last: spanNumber(now), Published: make([]int, keptSpans), Slowest: make([]float64, keptSpans)}
	for i := range all.Published {
		number := all.Last - keptSpans + 1 + int64(i)
		if s := r.spans[number%keptSpans]; s.number == number {
			all.Published[i], all.Slowest[i] = s.published, s.slowest.Seconds()
		}
	}
	return all
}
