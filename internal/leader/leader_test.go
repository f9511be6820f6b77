package leader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// leases is a fake API server with one Lease. It implements the requests of leader election,
// including conflicts.
type leases struct {
	coordinationclient.LeaseInterface
	mu      sync.Mutex
	lease   *coordinationv1.Lease
	version int
	writes  int
	err     error // of every request, while err is set
	noWrite error // of every request that writes, while noWrite is set

	mayNotCreate bool
}

var resource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

func (l *leases) Leases(string) coordinationclient.LeaseInterface { return l }

func (l *leases) Get(context.Context, string, metav1.GetOptions) (*coordinationv1.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.err != nil:
		return nil, l.err
	case l.lease == nil:
		return nil, apierrors.NewNotFound(resource, "kuberelay")
	}
	return l.lease.DeepCopy(), nil
}

func (l *leases) Create(_ context.Context, lease *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.err != nil:
		return nil, l.err
	case l.noWrite != nil:
		return nil, l.noWrite
	case l.mayNotCreate:
		return nil, apierrors.NewForbidden(resource, "", errors.New("no"))
	case l.lease != nil:
		return nil, apierrors.NewAlreadyExists(resource, "kuberelay")
	}
	return l.store(lease), nil
}

func (l *leases) Update(_ context.Context, lease *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.err != nil:
		return nil, l.err
	case l.noWrite != nil:
		return nil, l.noWrite
	case l.lease == nil:
		return nil, apierrors.NewNotFound(resource, "kuberelay")
	case lease.ResourceVersion != l.lease.ResourceVersion:
		return nil, apierrors.NewConflict(resource, "kuberelay", errors.New("it has changed"))
	}
	return l.store(lease), nil
}

func (l *leases) store(lease *coordinationv1.Lease) *coordinationv1.Lease {
	l.version++
	l.writes++
	l.lease = lease.DeepCopy()
	l.lease.ResourceVersion = strconv.Itoa(l.version)
	return l.lease.DeepCopy()
}

func (l *leases) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

func (l *leases) failWrites(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noWrite = err
}

// take writes the Lease as another process.
func (l *leases) take(holder string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.lease.DeepCopy()
	seconds := int32(15)
	taken.Spec.HolderIdentity, taken.Spec.LeaseDurationSeconds = &holder, &seconds
	taken.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
	l.store(taken)
}

func (l *leases) holder() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease == nil || l.lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.lease.Spec.HolderIdentity
}

// candidate is an election with its result.
type candidate struct {
	*Election
	asked   context.CancelFunc // tells the candidate to end
	drained chan struct{}      // after ctx has ended, lead waits for a token before it returns

	mu     sync.Mutex
	terms  int
	held   context.Context
	result chan error
}

func stand(t *testing.T, on coordinationclient.LeasesGetter, name string) *candidate {
	c := newCandidate(on, name)
	c.run(t)
	return c
}

func newCandidate(on coordinationclient.LeasesGetter, name string) *candidate {
	c := &candidate{drained: make(chan struct{}, 1), result: make(chan error, 1)}
	c.drained <- struct{}{}
	c.Election = New(Config{
		Leases: on, Namespace: "apps", Name: "kuberelay", Identity: name,
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	return c
}

func (c *candidate) run(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c.asked = cancel
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.result <- c.Run(ctx, func(held context.Context) error {
			c.mu.Lock()
			c.terms++
			c.held = held
			c.mu.Unlock()
			select {
			case <-held.Done():
			case <-ctx.Done():
				select {
				case <-c.drained:
				case <-held.Done():
				}
			}
			return nil
		})
	}()
	t.Cleanup(func() { cancel(); <-ended })
}

func (c *candidate) leads() bool { return c.Permit() == nil }

func (c *candidate) led() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.terms
}

func metricsOf(t *testing.T, c *candidate) string {
	t.Helper()
	families, err := c.Registerer.(*prometheus.Registry).Gather()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			text := f.GetName()
			for _, l := range m.GetLabel() {
				text += "{" + l.GetValue() + "}"
			}
			all = append(all, fmt.Sprintf("%s=%v", text, m.GetGauge().GetValue()))
		}
	}
	return strings.Join(all, " ")
}

func pass(d time.Duration) {
	time.Sleep(d) // on the synctest clock
	synctest.Wait()
}

func TestOneLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := &leases{}
		a := stand(t, on, "a")
		pass(time.Second)
		b := stand(t, on, "b")
		pass(time.Hour)
		if !a.leads() || b.leads() || a.led() != 1 || b.led() != 0 || b.Standing().Holder != "a" {
			t.Fatalf("a leads: %v, b leads: %v, b sees %q", a.leads(), b.leads(), b.Standing().Holder)
		}
		if got := metricsOf(t, b); got != "kuberelay_leader=0 kuberelay_lease_holder{a}=1" {
			t.Errorf("the metrics of b are %s", got)
		}
		// The leader writes the Lease every two seconds, although it reads the Lease more often.
		if got := on.writes; got < 1700 || got > 1900 {
			t.Errorf("the lease was written %d times in an hour, want about 1800", got)
		}
	})
}

// TestTheLeaseIsGivenUpAfterTheDrain verifies that the lease is released after the drain, and not
// when the leader is told to stop.
func TestTheLeaseIsGivenUpAfterTheDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := &leases{}
		a := stand(t, on, "a")
		<-a.drained
		pass(time.Second)
		b := stand(t, on, "b")
		pass(time.Second)
		a.asked()
		pass(time.Minute)
		if !a.leads() || on.holder() != "a" || b.led() > 0 {
			t.Fatalf("while a drains: the holder is %q, a may write: %v, b has led %d times", on.holder(), a.leads(), b.led())
		}
		a.drained <- struct{}{}
		synctest.Wait()
		if a.leads() || on.holder() != "" {
			t.Fatalf("after the drain: the holder is %q, a may write: %v", on.holder(), a.leads())
		}
		pass(1100 * time.Millisecond) // longer than a poll with its jitter
		if !b.leads() {
			t.Error("b does not lead")
		}
	})
}

// afterAKilledLeader returns a candidate that finds the Lease of a leader that was killed.
func afterAKilledLeader(t *testing.T) *candidate {
	on := &leases{}
	a := stand(t, on, "a")
	pass(time.Second)
	a.asked()
	synctest.Wait()
	on.take("killed")
	return stand(t, on, "b")
}

func TestAKilledLeaderIsFollowedWhenItsLeaseRunsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := afterAKilledLeader(t)
		pass(15 * time.Second)
		if b.leads() {
			t.Fatal("b leads before the lease has run out")
		}
		pass(2 * time.Second)
		if !b.leads() {
			t.Error("b does not lead")
		}
	})
}

// TestALeaderThatCannotRenewStopsBeforeAnotherBegins verifies that a leader that can't renew the
// Lease stops writing before another process may lead, also if the last renewal took long. It then
// stands by.
func TestALeaderThatCannotRenewStopsBeforeAnotherBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on, updates, asked := &leases{}, 0, time.Time{}
		a := stand(t, &delayed{on, func(*coordinationv1.Lease) {
			switch updates++; {
			case updates < 3:
				asked = time.Now()
				time.Sleep(time.Second) // on the synctest clock
			case updates == 3:
				on.fail(errors.New("connection refused"))
			}
		}}, "a")
		for pass(time.Second); a.leads(); pass(10 * time.Millisecond) {
		}
		if since := time.Since(asked); since > 12*time.Second+20*time.Millisecond || since < 8*time.Second {
			t.Errorf("the leader may write for %s after the request of its last renewal", since)
		}
		pass(2 * time.Second)
		if a.held.Err() == nil {
			t.Error("the context of lead has not ended")
		}
		on.fail(nil)
		pass(20 * time.Second)
		if !a.leads() || a.led() != 2 {
			t.Errorf("a leads: %v, and has led %d times, want 2", a.leads(), a.led())
		}
	})
}

// TestPermitGoesByTheClock verifies that a process that wakes up has no permit, even before any of
// its timers fires.
func TestPermitGoesByTheClock(t *testing.T) {
	for name, c := range map[string]struct {
		monotonic, wall time.Duration // since the renewal
		want            error
	}{
		"after 11 s":                 {11 * time.Second, 11 * time.Second, nil},
		"stopped":                    {13 * time.Second, 13 * time.Second, ErrNotHeld},
		"asleep":                     {0, 13 * time.Second, ErrNotHeld},
		"the wall clock is set back": {13 * time.Second, -time.Hour, ErrNotHeld},
	} {
		t.Run(name, func(t *testing.T) {
			e := New(Config{
				Identity: "a", LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
				Registerer: prometheus.NewRegistry(),
			})
			e.grant(time.Now())
			e.granted.Monotonic, e.granted.Wall = e.granted.Monotonic.Add(-c.monotonic), e.granted.Wall.Add(-c.wall)
			if err := e.Permit(); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

// TestALeadershipThatAnotherInterruptedIsOver verifies that leadership ends even if the other
// leader has already released the Lease, because the state of this process is stale. It also verifies
// that the end of the leadership does not release the Lease of the other leader, and that the log does
// not say that access is denied: an earlier version said so after the Lease was deleted.
func TestALeadershipThatAnotherInterruptedIsOver(t *testing.T) {
	for name, interrupt := range map[string]func(*leases){
		"another leads":           func(l *leases) { l.take("b") },
		"another led and gave up": func(l *leases) { l.take("b"); l.take("") },
		"the lease was deleted":   func(l *leases) { l.mu.Lock(); defer l.mu.Unlock(); l.lease = nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				on, a := &leases{}, newCandidate(nil, "a")
				var log bytes.Buffer
				a.Leases, a.Logger = on, slog.New(slog.NewTextHandler(&log, nil))
				a.run(t)
				pass(time.Second)
				held := a.held
				interrupt(on)
				other := on.holder()
				pass(3 * time.Second) // a renewal is due
				if held.Err() == nil {
					t.Error("the context of lead has not ended")
				}
				if got := on.holder(); other != "" && got != other {
					t.Errorf("the holder is %q, want %q", got, other)
				}
				pass(30 * time.Second)
				if a.led() != 2 || !a.leads() {
					t.Errorf("a has led %d times, want 2", a.led())
				}
				if text := log.String(); !strings.Contains(text, "lease lost") || strings.Contains(text, "denied") {
					t.Errorf("the log is %s", text)
				}
			})
		})
	}
}

func TestWhatLeadFailsWithEndsTheElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on, wrong := &leases{}, errors.New("wrong")
		c := New(Config{
			Leases: on, Namespace: "apps", Name: "kuberelay", Identity: "a",
			LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
			Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
		})
		if err := c.Run(t.Context(), func(context.Context) error { return wrong }); !errors.Is(err, wrong) {
			t.Errorf("got %v", err)
		}
		if on.holder() != "" {
			t.Errorf("the holder is %q, want none", on.holder())
		}
	})
}

func TestReadyUnlessTheLeaseIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := &leases{}
		on.fail(errors.New("connection refused"))
		a := stand(t, on, "a")
		pass(time.Minute)
		if err := a.Ready(); err != nil {
			t.Errorf("without an API server: %v", err)
		}
		on.fail(apierrors.NewForbidden(resource, "kuberelay", errors.New("no")))
		pass(time.Minute)
		if err := a.Ready(); err == nil || !strings.Contains(err.Error(), "apps/kuberelay") {
			t.Errorf("access denied: got %v", err)
		}
		on.fail(nil)
		on.mu.Lock()
		on.mayNotCreate = true
		on.mu.Unlock()
		for range 100 {
			pass(time.Second / 3)
			if err := a.Ready(); err == nil {
				t.Fatal("ready although the Lease may not be created")
			}
		}
		on.mu.Lock()
		on.mayNotCreate = false
		on.mu.Unlock()
		pass(time.Minute)
		if err := a.Ready(); err != nil || !a.leads() {
			t.Errorf("ready: %v; leads: %v", err, a.leads())
		}
	})
}
