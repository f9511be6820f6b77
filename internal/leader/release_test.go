package leader

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

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
			t.Errorf("the lease is %q's, %d late renewals are left", got, late)
		}
	})
}
