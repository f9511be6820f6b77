package relay

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/leader"
	"github.com/kuberelay/kuberelay/internal/operations"
)

var errStarting = errors.New("starting")

// readiness is the state behind /readyz. Before the informers run, it is the reason why Run waits.
// After that, it is the state of the informers, the bus, and the lease. A standby is ready without
// a bus. The zero value is the state of a Relay that has not started.
type readiness struct {
	mu       sync.Mutex
	cluster  string           // name of the cluster; "" before Run has connected to the cluster
	waiting  func() error     // returns the reason why Run waits; nil while it does not wait
	since    time.Time        // when the current wait began; a new reason does not change it
	relay    *Relay           // nil before the informers run
	election *leader.Election // nil before the informers run, and without leader election
}

// waitFor records why Run waits. A nil why means that the wait is over.
func (s *readiness) waitFor(why func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting == nil {
		s.since = time.Now()
	}
	s.waiting = why
}

// connected is called when Run has connected to the cluster.
func (s *readiness) connected(cluster string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting, s.cluster = nil, cluster
}

// started is called right before the informers run.
func (s *readiness) started(r *Relay, e *leader.Election) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting, s.relay, s.election = nil, r, e
}

// running returns the Relay if its informers run, or nil otherwise.
func (s *readiness) running() *Relay {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.relay
}

func (s *readiness) checks(cfg config.Config) []operations.Check {
	all := []operations.Check{{Name: "informers", Check: s.informers, Note: s.incomplete}, {Name: "bus", Check: s.bus, Note: s.foreign}}
	if cfg.Leader.Election {
		all = append(all, operations.Check{Name: "lease", Check: s.lease, Note: s.leader})
	}
	if cfg.Operations.RequireMatches {
		all = append(all, operations.Check{Name: "settings", Check: s.matches})
	}
	return all
}

func (s *readiness) informers() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.relay == nil {
		return s.why()
	}
	return s.relay.informers.Ready()
}

// incomplete describes why the copy might be incomplete or stale although the informers are ready.
func (s *readiness) incomplete() string {
	r := s.running()
	if r == nil {
		return ""
	}
	var notes []string
	if err := r.informers.DiscoveryFailing()["*"]; err != nil {
		notes = append(notes, fmt.Sprintf("discovery fails: %v", err))
	}
	health := append(r.informers.Health(), r.informers.NamespaceWatch()...)
	if failing, all, err := health.Failing(); failing > 0 {
		notes = append(notes, fmt.Sprintf("lists or watches of %d of %d resources fail: %v", failing, all, err))
	}
	if forbidden, all := health.Forbidden(); forbidden > 0 {
		notes = append(notes, fmt.Sprintf("access denied to %d of %d resources", forbidden, all))
	}
	if unmatched, _ := r.allUnmatched(); len(unmatched) > 0 {
		notes = append(notes, fmt.Sprintf("%d entries of settings match nothing", len(unmatched)))
	}
	return strings.Join(notes, ", ")
}

func (s *readiness) bus() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.relay == nil || s.waiting != nil {
		return s.why()
	}
	if t := s.relay.term.Load(); t != nil {
		return t.bus.Ready()
	}
	return nil
}

// foreign returns a note with the number of repaired foreign events in this term. The log names
// their objects.
func (s *readiness) foreign() string {
	r := s.running()
	if r == nil {
		return ""
	}
	t := r.term.Load()
	if t == nil || t.forwarder.ForeignEvents() == 0 {
		return ""
	}
	return fmt.Sprintf("%d foreign events repaired", t.forwarder.ForeignEvents())
}

// why returns the reason why Run waits.
func (s *readiness) why() error {
	if s.waiting != nil {
		if err := s.waiting(); err != nil {
			return err
		}
	}
	return errStarting
}

func (s *readiness) lease() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.election == nil {
		return nil
	}
	return s.election.Ready()
}

// leader describes which process is the leader.
func (s *readiness) leader() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.election == nil || !isLeaseKnown(s.election) {
		return ""
	}
	switch is := s.election.Standing(); {
	case is.Leading:
		return "leading"
	case is.Failed != nil:
		return fmt.Sprintf("standing by, nobody is known to lead: %v", is.Failed)
	case is.Holder == "":
		return "standing by, nobody leads"
	default:
		return "standing by, the leader is " + is.Holder
	}
}
