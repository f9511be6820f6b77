package verify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/verify/replica"
	"github.com/kuberelay/kuberelay/internal/verify/report"
)

// Run compares the bus with the cluster and reports the differences. It takes the time to read
// both, plus at most about twice the settle time. It changes neither the bus nor the cluster.
//
// An error means that Run could not read everything. The report then covers at most the part that
// Run could read, and proves nothing about the rest. A difference is not an error.
func Run(ctx context.Context, o Options) (report.Report, error) {
	o = o.withDefaults()
	selectors, err := parseSelectors(o)
	if err != nil {
		return report.Report{}, err
	}
	c, err := newCluster(o.Kube, o)
	if err != nil {
		return report.Report{}, err
	}
	if err := c.ready(ctx); err != nil {
		return report.Report{}, err
	}
	f, err := openFollower(ctx, o, c)
	if err != nil {
		return report.Report{}, err
	}
	defer func() { _ = f.Close() }() // it is open for reading only

	v := &verification{
		report: report.Report{Cluster: f.Cluster()},
		opts:   o, cluster: c, log: o.Logger,
		selectors: selectors, follower: f,
		listed: map[schema.GroupResource]uint32{}, candidates: map[event.Key]*candidate{}, unlisted: map[string]string{},
		atPoints: map[schema.GroupResource]bool{}, settled: map[schema.GroupResource]int{},
	}
	return v.run(ctx)
}

// verification is one run.
type verification struct {
	opts      Options
	cluster   *cluster
	selectors selectors
	follower  *replica.Follower
	log       *slog.Logger

	selection  *selection
	listings   uint32                          // number of lists so far; each marks the objects that it returns
	listed     map[schema.GroupResource]uint32 // the last list of each resource
	candidates map[event.Key]*candidate
	unlisted   map[string]string // resource to reason
	followed   map[schema.GroupResource]*followedSet
	unfollowed map[string]string             // like unlisted: what the last call of follow couldn't read
	followedAt time.Time                     // when a call of follow last read everything
	atPoints   map[schema.GroupResource]bool // resources whose differences are judged at consistency points
	settled    map[schema.GroupResource]int  // number of objects that were read again until both sides agreed or the settle time was over
	report     report.Report
}

func (v *verification) run(ctx context.Context) (report.Report, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := counted(ctx, v.opts.Progress.Reading, v.follower.Start); err != nil {
		return report.Report{}, err
	}
	followed := make(chan struct{})
	go func() { defer close(followed); v.follower.Run(ctx) }()
	defer func() { cancel(); <-followed }()

	v.log.Debug("reading the bus", "objects", v.follower.Objects())
	if err := counted(ctx, v.opts.Progress.Reading, v.follower.CatchUp); err != nil {
		return report.Report{}, err
	}
	for _, step := range []func(context.Context) error{
		v.compareClaim, v.selectResources, v.compareAll, v.settle, v.dropPurged, v.follower.ResolveDoubts, v.explain,
	} {
		if err := step(ctx); err != nil {
			return report.Report{}, err
		}
	}
	return v.finish()
}

// compareClaim returns an error if the claim on the bus names another cluster as the owner of the
// name, because the bus then has the events of that cluster. It does nothing if the cluster's UID
// can't be read.
func (v *verification) compareClaim(ctx context.Context) error {
	uid, err := v.cluster.name(ctx)
	if claim := v.follower.Claim(); err == nil && claim != "" && claim != uid {
		return fmt.Errorf("the name %s belongs to another cluster on this bus: its namespace kube-system has the UID %s, and that of this cluster has %s; "+
			"check KUBECONFIG and KUBERELAY_CLUSTER_NAME", v.report.Cluster, claim, uid)
	}
	return ctx.Err()
}

// selectResources reads which resources the cluster serves now, and applies the selectors.
func (v *verification) selectResources(ctx context.Context) error {
	if err := v.cluster.ready(ctx); err != nil {
		return err
	}
	s, err := v.selectors.selectResources(ctx, v.cluster.discovery)
	if err != nil {
		return err
	}
	v.selection = s
	for _, group := range v.selectors.undecidedGroups(s) {
		v.unlisted["*."+group] = fmt.Sprintf("discovery: %v", s.failed[group])
	}
	err = v.lookAtScope(ctx)
	maps.Copy(v.unlisted, v.unfollowed) // the selection is used although it is incomplete, so report what is missing
	return err
}

// lookAtScope reads everything else that the selection depends on: the labels of namespaces, and
// references.
func (v *verification) lookAtScope(ctx context.Context) error {
	if v.cluster.coverage.selector != nil {
		if err := v.cluster.learnNamespaces(ctx); err != nil {
			return err
		}
	}
	err := v.follow(ctx)
	if len(v.unfollowed) == 0 {
		v.followedAt = time.Now()
	}
	return err
}

// compareAll lists the cluster and turns each difference into a candidate.
func (v *verification) compareAll(ctx context.Context) error {
	all := maps.Clone(v.selection.selected)
	for gr, set := range v.followed {
		all[gr] = set.resource
	}
	progress := v.opts.Progress.Comparing
	progress.Begin()
	defer progress.End()
	progress.Expect(int64(len(all)))
	for _, gr := range sortedResources(all) {
		found, err := v.compareResource(ctx, all[gr])
		progress.Add(1)
		switch {
		case err == nil:
			v.listed[gr] = v.listings
			v.report.Resources = append(v.report.Resources, found)
			v.report.Objects += found.Objects
			if replica.Newer(found.ResourceVersion, v.report.ResourceVersion) || v.report.ResourceVersion == "" {
				v.report.ResourceVersion = found.ResourceVersion
			}
		case isUnserved(err):
			// The resource was removed after discovery. findExtra handles its objects on the bus.
			if err := v.selectResources(ctx); err != nil {
				return err
			}
			if v.selection.served[gr] {
				v.unlisted[gr.String()] = whatFailed(gr, err)
			}
		case ctx.Err() != nil:
			return ctx.Err()
		case isRefused(err):
			v.unlisted[gr.String()] = whatFailed(gr, err)
		default:
			return errors.New(whatFailed(gr, err))
		}
	}
	v.findExtra()
	return nil
}

// compareResource lists one resource and compares each object on arrival.
func (v *verification) compareResource(ctx context.Context, r resource) (report.Resource, error) {
	found := report.Resource{Resource: r.GroupResource().String(), Version: r.Version}
	unread := 0
	point := v.follower.Point(r.GroupResource()) // before the list, so that the list isn't earlier
	begin := func() { v.listings++; found.Objects, unread = 0, 0 }
	_, filtered, _ := v.resourceOf(r.GroupResource())
	version, err := v.cluster.listAll(ctx, r, view{selected: filtered}, begin, func(i item) error {
		if !v.covers(i.key) {
			return nil
		}
		s := v.cluster.see(r, i)
		if !s.present {
			return nil // not selected by its content, so an event of it is extra
		}
		found.Objects++
		e := v.follower.Mark(i.key, v.listings)
		_, served := v.selection.as(r, e)
		switch {
		case isSame(s, e) && !served:
			unread++
		case !isSame(s, e) || !sameData(s, e):
			v.suspect(i.key)
		}
		return nil
	})
	v.report.OtherVersion += unread
	found.ResourceVersion = version
	if err == nil {
		if found.NoPoint = v.whyNoPoint(ctx, r, point, version); found.NoPoint == "" {
			v.atPoints[r.GroupResource()] = true
			found.Point = &report.Point{ResourceVersion: point.Version, Time: point.AsOf, Age: max(0, time.Since(point.AsOf).Seconds())}
		}
		v.log.Debug("resource listed", "resource", found.Resource, "objects", found.Objects, "resource_version", version)
	}
	return found, err
}

// findExtra turns each object on the bus that no list returned into a candidate, unless the object
// is out of scope. It also turns each object whose resource the cluster does not serve into a
// candidate. If the discovery of a group failed, it records the group's resources as unlisted instead.
func (v *verification) findExtra() {
	v.follower.Live(func(k event.Key, mark uint32) {
		gr := k.GroupResource()
		listing, listed := v.listed[gr]
		switch {
		case listed:
			if mark != listing && (v.covers(k) || v.mustDeselect(k)) {
				v.suspect(k)
			}
		case v.selection.served[gr]: // not selected, or in unlisted
			if _, _, ok := v.resourceOf(gr); !ok && v.mustDeselect(k) {
				v.suspect(k)
			}
		case v.selection.failed[gr.Group] != nil:
			v.unlisted[gr.String()] = fmt.Sprintf("discovery: %v", v.selection.failed[gr.Group])
		default:
			v.suspect(k)
		}
	})
}

func (v *verification) suspect(k event.Key) {
	if v.candidates[k] == nil {
		v.candidates[k] = &candidate{returns: v.canReturn()}
		v.follower.Watch(k)
	}
}

// finish completes the report.
func (v *verification) finish() (report.Report, error) {
	r := &v.report
	v.follower.Report(r)
	r.Unmatched = v.selection.unmatched
	for i := range r.Resources {
		r.Resources[i].Settled = v.settled[schema.ParseGroupResource(r.Resources[i].Resource)]
	}
	v.follower.Live(func(k event.Key, _ uint32) {
		_, _, selected := v.resourceOf(k.GroupResource())
		if v.selection.served[k.GroupResource()] && (!selected || !v.covers(k)) && !v.mustDeselect(k) {
			r.OutOfScope++
		}
	})
	for at, err := range v.cluster.coverage.refused {
		v.unlisted[at.resource.String()+" in "+at.namespace] = whatFailed(at.resource, err)
	}
	for resource, reason := range v.unlisted {
		r.Unlisted = append(r.Unlisted, report.Unlisted{Resource: resource, Reason: reason})
	}
	r.Sort()
	v.follower.FormatPositions(r)
	if len(r.Unlisted) == 0 {
		return *r, nil
	}
	reasons := make([]string, len(r.Unlisted))
	for i, u := range r.Unlisted {
		reasons[i] = u.Reason
	}
	return *r, fmt.Errorf("not everything could be read: %s", strings.Join(reasons, "; "))
}

// keysOf returns the keys of the candidates, grouped by resource.
func (v *verification) keysOf() map[schema.GroupResource][]event.Key {
	keys := map[schema.GroupResource][]event.Key{}
	for k := range v.candidates {
		keys[k.GroupResource()] = append(keys[k.GroupResource()], k)
	}
	return keys
}
