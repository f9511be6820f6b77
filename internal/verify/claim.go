package verify

import (
	"context"
	"fmt"
	"slices"

	"github.com/kuberelay/kuberelay/internal/verify/wire"
)

// compareClaim returns an error if the claim on the bus names another cluster as the owner of the
// name: there is nothing to compare then. It does nothing if the cluster's UID can't be read. It
// reports which settings differ from those of the forwarder that made the claim.
func (v *verification) compareClaim(ctx context.Context) error {
	uid, err := v.cluster.name(ctx)
	claim := v.follower.Claim()
	v.report.Settings = v.differingSettings(claim)
	if claim := claim.UID; err == nil && claim != "" && claim != uid {
		return fmt.Errorf("the name %s belongs to another cluster on this bus: its namespace kube-system has the UID %s, and this cluster's has %s; "+
			"check KUBECONFIG and KUBERELAY_CLUSTER_NAME", v.report.Cluster, claim, uid)
	}
	return ctx.Err()
}

// differingSettings returns the variables whose digest is another one in a claim. A claim of another
// release can lack some.
func (v *verification) differingSettings(claim wire.ClaimData) (differ []string) {
	if v.opts.Settings == nil || claim.Settings == nil {
		return nil
	}
	for name, ours := range v.opts.Settings(claim.UID) {
		if theirs, has := claim.Settings[name]; has && theirs != ours {
			differ = append(differ, name)
		}
	}
	slices.Sort(differ)
	return differ
}
