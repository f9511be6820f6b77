package leader

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestNobodyLeadsWhileTheLeaseCannotBeWritten verifies that nobody leads while the Lease can be
// read but not written, as when etcd has no space. The Lease still contains the name of the old
// leader.
func TestNobodyLeadsWhileTheLeaseCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := &leases{}
		a := stand(t, on, "a")
		pass(time.Second)
		b := stand(t, on, "b")
		pass(time.Minute)
		began := time.Now()
		on.failWrites(errors.New("no space"))
		for time.Since(began) < 13*time.Second { // the Lease is valid for longer
			if is := b.Standing(); is.Holder != "a" || is.Failed != nil || b.Ready() != nil {
				t.Fatalf("after %s, the standing of b is %+v, ready: %v", time.Since(began), is, b.Ready())
			}
			pass(100 * time.Millisecond)
		}
		pass(time.Minute)
		for range 100 { // to cover the time between two attempts
			for name, c := range map[string]*candidate{"a": a, "b": b} {
				is := c.Standing()
				if is.Leading || is.Holder != "" || is.Failed == nil || !strings.Contains(is.Failed.Error(), "renew the lease: no space") {
					t.Fatalf("the standing of %s is %+v", name, is)
				}
				if age := began.Sub(is.Renewed); age < -3*time.Second || age > 3*time.Second { // b reads a renewal after a wrote it
					t.Errorf("%s: the last renewal was %s before the failure", name, age)
				}
				if err := c.Ready(); err == nil || !strings.Contains(err.Error(), "nobody leads: renew the lease: no space") {
					t.Errorf("%s: ready: %v", name, err)
				}
			}
			pass(time.Second / 7)
		}
		if got := metricsOf(t, b); got != "kuberelay_leader=0" {
			t.Errorf("the metrics of b are %s", got)
		}
		on.failWrites(nil)
		pass(20 * time.Second)
		if a.leads() == b.leads() {
			t.Errorf("a leads: %v, b leads: %v", a.leads(), b.leads())
		}
		for name, c := range map[string]*candidate{"a": a, "b": b} {
			if is := c.Standing(); is.Holder != on.holder() || is.Failed != nil || c.Ready() != nil {
				t.Errorf("after the fault, the standing of %s is %+v, ready: %v", name, is, c.Ready())
			}
		}
	})
}

// TestATakeoverIsNotAFault verifies that a standby stays ready until the Lease of a killed leader
// expires and another process leads.
func TestATakeoverIsNotAFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := afterAKilledLeader(t)
		pass(time.Second)
		for !b.leads() {
			if is := b.Standing(); is.Holder != "killed" || b.Ready() != nil {
				t.Fatalf("the standing of b is %+v, ready: %v", is, b.Ready())
			}
			pass(10 * time.Millisecond)
		}
		if is := b.Standing(); !is.Leading || is.Holder != "b" {
			t.Errorf("the standing of b is %+v", is)
		}
	})
}

// TestALeaseThatCannotBeRead verifies that a standby that can't read the Lease does not know who
// leads, and stays ready.
func TestALeaseThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := &leases{}
		stand(t, on, "a")
		pass(time.Second)
		b := stand(t, on, "b")
		pass(time.Second)
		on.fail(errors.New("connection refused"))
		pass(time.Minute)
		is := b.Standing()
		if is.Holder != "" || is.Failed == nil || !strings.Contains(is.Failed.Error(), "read the lease: connection refused") || b.Ready() != nil {
			t.Errorf("the standing of b is %+v, ready: %v", is, b.Ready())
		}
	})
}

// TestALeaderThatMayNotRenew verifies that a leader that can read but not renew the Lease stays unready
// and logs the failure once in each candidacy. In an earlier version, each read cleared the failure, so
// each attempt caused two log lines and two changes of /readyz.
func TestALeaderThatMayNotRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		on := &leases{}
		a := newCandidate(on, "a")
		a.Logger = slog.New(slog.NewTextHandler(&log, nil))
		a.run(t)
		pass(time.Second)
		on.failWrites(apierrors.NewForbidden(resource, "kuberelay", errors.New("no")))
		for pass(3 * time.Second); a.leads(); pass(100 * time.Millisecond) {
			if a.Ready() == nil {
				t.Error("ready")
			}
		}
		on.failWrites(nil)
		pass(20 * time.Second)
		if err := a.Ready(); err != nil || !a.leads() {
			t.Errorf("after a renewal: ready: %v, leads: %v", err, a.leads())
		}
		a.asked()
		<-a.result
		// Each candidacy logs the failure: this one, and the one after its leadership has ended.
		for message, want := range map[string]int{"lease access denied": 2, "lease can be read and renewed again": 1} {
			if n := strings.Count(log.String(), message); n != want {
				t.Errorf("%q is logged %d times, want %d:\n%s", message, n, want, &log)
			}
		}
	})
}
