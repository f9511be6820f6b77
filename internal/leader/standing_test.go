package leader

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
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
				t.Fatalf("after %s, b knows %+v, ready: %v", time.Since(began), is, b.Ready())
			}
			pass(100 * time.Millisecond)
		}
		pass(time.Minute)
		for range 100 { // to cover the time between two attempts
			for name, c := range map[string]*candidate{"a": a, "b": b} {
				is := c.Standing()
				if is.Leading || is.Holder != "" || is.Failed == nil || !strings.Contains(is.Failed.Error(), "renew the lease: no space") {
					t.Fatalf("%s knows %+v", name, is)
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
				t.Errorf("afterwards, %s knows %+v, ready: %v", name, is, c.Ready())
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
				t.Fatalf("b knows %+v, ready: %v", is, b.Ready())
			}
			pass(10 * time.Millisecond)
		}
		if is := b.Standing(); !is.Leading || is.Holder != "b" {
			t.Errorf("b knows %+v", is)
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
			t.Errorf("b knows %+v, ready: %v", is, b.Ready())
		}
	})
}
