package leader

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// delayed is a fake API server that calls a function before it stores an update.
type delayed struct {
	*leases
	before func(*coordinationv1.Lease)
}

func (d *delayed) Leases(string) coordinationclient.LeaseInterface { return d }

func (d *delayed) Update(ctx context.Context, lease *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	d.before(lease)
	return d.leases.Update(ctx, lease, o)
}

// TestTheLeaseIsReleasedDespiteALateRenewal verifies that the Lease is released even if the API
// server stores the last renewal, which the end of the term canceled, in the middle of the release.
func TestTheLeaseIsReleasedDespiteALateRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on, late := &leases{}, 1
		d := &delayed{leases: on}
		d.before = func(lease *coordinationv1.Lease) {
			if holder := lease.Spec.HolderIdentity; holder != nil && *holder != "" || late == 0 {
				return // not a release
			}
			late--
			on.take("a")
		}
		a := stand(t, d, "a")
		pass(time.Second)
		a.asked()
		synctest.Wait()
		if got := on.holder(); got != "" || late > 0 {
			t.Errorf("the holder is %q, %d late renewals are left; want none", got, late)
		}
	})
}

// unanswered is a fake API server that stores a Lease but does not respond.
type unanswered struct{ *leases }

func (u unanswered) Leases(string) coordinationclient.LeaseInterface { return u }

func (u unanswered) Create(ctx context.Context, lease *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error) {
	if _, err := u.leases.Create(ctx, lease, o); err != nil {
		return nil, err
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestALeaseThatIsAcquiredAtTheEndIsReleased verifies that the Lease is released if a candidate is
// told to end while its request to acquire the Lease has no response.
func TestALeaseThatIsAcquiredAtTheEndIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := &leases{}
		a := stand(t, unanswered{on}, "a")
		synctest.Wait()
		if got := on.holder(); got != "a" {
			t.Fatalf("the holder is %q, want a", got)
		}
		a.asked()
		synctest.Wait()
		if got := on.holder(); got != "" || a.led() > 0 {
			t.Errorf("the holder is %q, and a has led %d times; want no holder, and 0", got, a.led())
		}
	})
}

// TestAReleaseThatFailsIsLogged verifies that the error of a failed release is logged even if this
// process doesn't know whether it acquired the Lease.
func TestAReleaseThatFailsIsLogged(t *testing.T) {
	for level, leading := range map[string]bool{"DEBUG": false, "WARN": true} {
		var log bytes.Buffer
		on := &leases{}
		on.fail(errors.New("no answer"))
		e := New(Config{
			Leases: on, Namespace: "apps", Name: "kuberelay", Identity: "a", RetryPeriod: time.Second,
			Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), Registerer: prometheus.NewRegistry(),
		})
		e.resign(t.Context(), &lock{Interface: e.newLock(), e: e, asked: true, leading: leading})
		if got := log.String(); !strings.Contains(got, "level="+level) || !strings.Contains(got, "no answer") {
			t.Errorf("leading is %v, and the log says %q", leading, got)
		}
	}
}

// hanging is a fake API server that does not respond.
type hanging struct {
	coordinationclient.LeaseInterface
}

func (h hanging) Leases(string) coordinationclient.LeaseInterface { return h }

func (hanging) Get(ctx context.Context, _ string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestAReleaseIsBounded verifies that the release of the Lease does not delay a shutdown for a RetryPeriod,
// which can be minutes.
func TestAReleaseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(Config{
			Leases: hanging{}, Namespace: "apps", Name: "kuberelay", Identity: "a", RetryPeriod: time.Minute,
			Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
		})
		began := time.Now()
		e.resign(t.Context(), &lock{Interface: e.newLock(), e: e, asked: true, leading: true})
		if took := time.Since(began); took > releaseTimeout { // on the synctest clock
			t.Errorf("it took %s, want at most %s", took, releaseTimeout)
		}
	})
}
