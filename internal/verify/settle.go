package verify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/verify/report"
)

const (
	firstPause   = 50 * time.Millisecond // pause after the first round; it doubles after each round
	longestPause = time.Second
	catchUpEach  = 64 // with more candidates, the bus is read to its end instead of once for each candidate
	explained    = 20 // maximum number of problems to which explain adds the fields that differ
)

// settle reads the candidates in rounds, until each of them is known to be right or wrong.
func (v *verification) settle(ctx context.Context) error {
	for pause := firstPause; len(v.candidates) > 0; pause = min(2*pause, longestPause) {
		v.log.Debug("waiting for events in flight", "objects", len(v.candidates))
		if err := v.round(ctx); err != nil {
			return err
		}
		if len(v.candidates) == 0 {
			return nil
		}
		select {
		case <-time.After(min(pause, v.opts.Settle)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// round reads and judges every candidate, unless the selection can't be read at the moment.
func (v *verification) round(ctx context.Context) error {
	if err := v.lookAtScope(ctx); err != nil {
		return err
	}
	if len(v.unfollowed) > 0 && time.Since(v.followedAt) < v.opts.Settle {
		return nil // the next round might read everything; without all references, this round could misjudge candidates
	}
	maps.Copy(v.unlisted, v.unfollowed)
	first, err := v.look(ctx, v.keysOf(), true)
	if err != nil {
		return err
	}
	if err := v.catchUp(ctx); err != nil {
		return err
	}
	observations := map[event.Key]*observation{}
	again := map[schema.GroupResource][]event.Key{}
	for k, bus := range v.follower.Looks(maps.Keys(v.candidates)) {
		s, ok := first[k]
		if !ok { // its resource can't be listed
			delete(v.candidates, k)
			continue
		}
		o := &observation{first: s, cluster: s, bus: bus.Event, recent: bus.Recent, lastDeleted: bus.LastDeleted, point: v.pointOf(k, bus.Point)}
		observations[k] = o
		if r, _, ok := v.resourceOf(k.GroupResource()); ok {
			_, served := v.selection.as(r, o.bus)
			o.unread = !served
		}
		// An object that is deleted on the bus may have been deleted in the cluster since the first
		// read.
		if isAhead(o.bus, s) || o.point.Version != "" && s.present && !o.bus.Live() {
			again[k.GroupResource()] = append(again[k.GroupResource()], k)
		}
	}
	second, err := v.look(ctx, again, true)
	if err != nil {
		return err
	}
	for k, s := range second {
		observations[k].cluster = s
	}
	if err := v.leaveOutDeselected(ctx, observations); err != nil {
		return err
	}
	if err := v.lookBack(ctx, observations); err != nil {
		return err
	}
	v.judge(observations)
	return nil
}

func (v *verification) judge(observations map[event.Key]*observation) {
	now := time.Now()
	for k, o := range observations {
		c := v.candidates[k]
		switch c.judge(*o, now, v.opts.Settle) {
		case undecided:
			continue
		case inMotion:
			v.report.InMotion++
		case wrong:
			v.report.Problems = append(v.report.Problems, c.problem(k))
		case fine:
			if o.unread && o.cluster.present {
				v.report.OtherVersion++
			}
		}
		if c.point == "" {
			v.settled[k.GroupResource()]++
		}
		delete(v.candidates, k)
		v.follower.Unwatch(k)
	}
}

// dropPurged drops the problems of extra objects for which the bus no longer has an event. The
// forwarder purges the events of a deleted object, and verify might have read only some of them.
func (v *verification) dropPurged(ctx context.Context) error {
	purged := make([]bool, len(v.report.Problems))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxConcurrent)
	for i, p := range v.report.Problems {
		if p.Kind != report.Extra {
			continue
		}
		group.Go(func() error {
			found, err := v.follower.Has(ctx, keyOf(p))
			purged[i] = !found
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	var left []report.Problem
	for i, p := range v.report.Problems {
		if !purged[i] {
			left = append(left, p)
		}
	}
	v.report.Problems = left
	return nil
}

// leaveOutDeselected drops the candidates that exist in the cluster but no longer match the label
// and field selectors. They are out of scope.
func (v *verification) leaveOutDeselected(ctx context.Context, observations map[event.Key]*observation) error {
	if !v.cluster.selects() || v.opts.TellDeselected {
		return nil
	}
	gone := map[schema.GroupResource][]event.Key{}
	for k, o := range observations {
		if !o.cluster.present && !o.cluster.left && o.bus.Live() && v.covers(k) {
			gone[k.GroupResource()] = append(gone[k.GroupResource()], k)
		}
	}
	found, err := v.look(ctx, gone, false)
	if err != nil {
		return err
	}
	for k, s := range found {
		if s.uid == observations[k].bus.UID { // even if the filter doesn't select it
			v.report.OutOfScope++
			delete(v.candidates, k)
			delete(observations, k)
			v.follower.Unwatch(k)
		}
	}
	return nil
}

// look reads the keys from the cluster. The result omits the keys of a resource that can't be
// listed. The keys of a resource that isn't served count as absent.
func (v *verification) look(ctx context.Context, keys map[schema.GroupResource][]event.Key, selected bool) (map[event.Key]sighting, error) {
	found := map[event.Key]sighting{}
	for gr, list := range keys {
		seen, err := v.lookAt(ctx, gr, list, selected)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case isRefused(err):
			v.unlisted[gr.String()] = whatFailed(gr, err)
		default:
			return nil, errors.New(whatFailed(gr, err))
		}
		maps.Copy(found, seen)
	}
	return found, nil
}

func (v *verification) lookAt(ctx context.Context, gr schema.GroupResource, keys []event.Key, selected bool) (map[event.Key]sighting, error) {
	if !v.selection.served[gr] {
		if err := v.selectResources(ctx); err != nil { // the cluster might serve the resource again
			return nil, err
		}
	}
	if r, filtered, ok := v.resourceOf(gr); ok {
		seen, err := v.lookCovered(ctx, r, keys, selected && filtered)
		if !isUnserved(err) {
			return seen, err
		}
		if err := v.selectResources(ctx); err != nil {
			return nil, err
		}
		if r, filtered, ok := v.resourceOf(gr); ok { // the resource is served in another version
			return v.lookCovered(ctx, r, keys, selected && filtered)
		}
		if v.selection.served[gr] {
			return nil, err
		}
	}
	if err := v.selection.failed[gr.Group]; err != nil {
		v.unlisted[gr.String()] = fmt.Sprintf("discovery: %v", err)
		return nil, nil
	}
	absent := map[event.Key]sighting{}
	for _, k := range keys {
		if !v.selection.served[gr] || v.mustDeselect(k) {
			absent[k] = sighting{}
		}
	}
	return absent, nil // the rest is served, but not selected: out of scope
}

// lookCovered reads the keys that are selected. The others count as absent. A key with a namespace
// also counts as absent if the resource is cluster-scoped, and a key without a namespace if the
// resource is namespaced.
func (v *verification) lookCovered(ctx context.Context, r resource, keys []event.Key, selected bool) (map[event.Key]sighting, error) {
	var covered []event.Key
	absent := map[event.Key]sighting{}
	for _, k := range keys {
		if v.covers(k) && (k.Namespace != "") == r.Namespaced {
			covered = append(covered, k)
		} else {
			absent[k] = sighting{}
		}
	}
	found, err := v.lookInVersions(ctx, r, covered, selected)
	if err != nil {
		return nil, err
	}
	maps.Copy(absent, found)
	return absent, nil
}

// lookInVersions reads each object in the API version of its last event, if the cluster serves that
// version.
func (v *verification) lookInVersions(ctx context.Context, r resource, keys []event.Key, selected bool) (map[event.Key]sighting, error) {
	by := map[resource][]event.Key{}
	for _, k := range keys {
		as, _ := v.selection.as(r, v.follower.State(k))
		by[as] = append(by[as], k)
	}
	found := map[event.Key]sighting{}
	for as, list := range by {
		seen, err := v.cluster.look(ctx, as, list, view{selected: selected})
		if err != nil {
			return nil, err
		}
		maps.Copy(found, seen)
	}
	return found, nil
}

// catchUp reads the bus to its current end, at least for the candidates.
func (v *verification) catchUp(ctx context.Context) error {
	if len(v.candidates) > catchUpEach {
		return v.follower.CatchUp(ctx)
	}
	for k := range v.candidates {
		if err := v.follower.CatchUpWith(ctx, k); err != nil {
			return err
		}
	}
	return nil
}

// isRefused reports whether the error of a list concerns only the listed resource.
func isRefused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) ||
		apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsInternalError(err) // such as a conversion webhook that is down
}
