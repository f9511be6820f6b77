package verify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

const (
	firstPause   = 50 * time.Millisecond // between two looks at the candidates; it doubles
	longestPause = time.Second
	catchUpEach  = 64 // candidates that are caught up with one by one
	explained    = 20 // objects with other data, of which it is said where they differ
)

// settle looks at the candidates again and again, until it is known of each
// whether it is wrong.
func (v *verification) settle(ctx context.Context) error {
	for pause := firstPause; len(v.candidates) > 0; pause = min(2*pause, longestPause) {
		v.log.Debug("waiting for what is in flight", "objects", len(v.candidates))
		if err := v.round(ctx); err != nil {
			return err
		}
		if len(v.candidates) == 0 {
			return nil
		}
		timer := time.NewTimer(min(pause, v.opts.Settle))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
	return nil
}

// round looks once at every candidate.
func (v *verification) round(ctx context.Context) error {
	if err := v.lookAtScope(ctx); err != nil {
		return err
	}
	first, err := v.look(ctx, v.keysOf(), true)
	if err != nil {
		return err
	}
	if err := v.catchUp(ctx); err != nil {
		return err
	}
	glimpses := v.follower.glimpses(v.candidates)
	again := map[schema.GroupResource][]event.Key{}
	for k, g := range glimpses {
		s, ok := first[k]
		if !ok { // its resource cannot be looked at
			delete(v.candidates, k)
			delete(glimpses, k)
			continue
		}
		g.first, g.cluster = s, s
		if r, _, ok := v.resourceOf(k.GroupResource()); ok {
			_, served := v.selection.as(r, g.bus)
			g.unread = !served
		}
		if isAhead(g.bus, s) {
			again[k.GroupResource()] = append(again[k.GroupResource()], k)
		}
	}
	second, err := v.look(ctx, again, true)
	if err != nil {
		return err
	}
	for k, s := range second {
		glimpses[k].cluster = s
	}
	if err := v.leaveOutDeselected(ctx, glimpses); err != nil {
		return err
	}
	v.judge(glimpses)
	return nil
}

func (v *verification) judge(glimpses map[event.Key]*glimpse) {
	now := time.Now()
	for k, g := range glimpses {
		c := v.candidates[k]
		switch c.judge(*g, now, v.opts.Settle) {
		case undecided:
			continue
		case inMotion:
			v.report.InMotion++
		case wrong:
			v.report.Problems = append(v.report.Problems, c.problem(k))
		case fine:
			if g.unread && g.cluster.present {
				v.report.OtherVersion++
			}
		}
		delete(v.candidates, k)
		v.follower.unwatch(k)
	}
}

// leaveOutDeselected finds the objects that exist, but that labels and fields do
// not select any more: what the bus has of them is not looked at.
func (v *verification) leaveOutDeselected(ctx context.Context, glimpses map[event.Key]*glimpse) error {
	if !v.cluster.selects() || v.opts.TellDeselected {
		return nil
	}
	gone := map[schema.GroupResource][]event.Key{}
	for k, g := range glimpses {
		if !g.cluster.present && g.bus.live() && v.covers(k) {
			gone[k.GroupResource()] = append(gone[k.GroupResource()], k)
		}
	}
	found, err := v.look(ctx, gone, false)
	if err != nil {
		return err
	}
	for k, s := range found {
		if s.present && s.uid == glimpses[k].bus.UID {
			v.report.OutOfScope++
			delete(v.candidates, k)
			delete(glimpses, k)
			v.follower.unwatch(k)
		}
	}
	return nil
}

// look asks the cluster for the keys, by resource. Those of a resource that cannot
// be looked at are not in the result; those of one that is not served are absent.
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
		for k, s := range seen {
			found[k] = s
		}
	}
	return found, nil
}

func (v *verification) lookAt(ctx context.Context, gr schema.GroupResource, keys []event.Key, selected bool) (map[event.Key]sighting, error) {
	if !v.selection.served[gr] {
		if err := v.selectResources(ctx); err != nil { // it may be back
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
		if r, filtered, ok := v.resourceOf(gr); ok { // only a version of it has gone
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
		if !v.selection.served[gr] || v.mustGo(k) {
			absent[k] = sighting{}
		}
	}
	return absent, nil // the others are served, but not selected: out of scope
}

// lookCovered looks at the keys that are selected; the others are to be absent.
func (v *verification) lookCovered(ctx context.Context, r resource, keys []event.Key, selected bool) (map[event.Key]sighting, error) {
	var covered []event.Key
	absent := map[event.Key]sighting{}
	for _, k := range keys {
		if v.covers(k) {
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

// lookInVersions looks at each object in the version of the API that its last event is
// written in, if that is served.
func (v *verification) lookInVersions(ctx context.Context, r resource, keys []event.Key, selected bool) (map[event.Key]sighting, error) {
	by := map[resource][]event.Key{}
	for _, k := range keys {
		as, _ := v.selection.as(r, v.follower.state(k))
		by[as] = append(by[as], k)
	}
	found := map[event.Key]sighting{}
	for as, list := range by {
		seen, err := v.cluster.look(ctx, as, list, selected)
		if err != nil {
			return nil, err
		}
		maps.Copy(found, seen)
	}
	return found, nil
}

// catchUp reads on to the present end of the bus, at least as far as the
// candidates are concerned.
func (v *verification) catchUp(ctx context.Context) error {
	if len(v.candidates) > catchUpEach {
		return v.follower.catchUp(ctx)
	}
	for k := range v.candidates {
		if err := v.follower.catchUpWith(ctx, k); err != nil {
			return err
		}
	}
	return nil
}

// isRefused tells which errors of a list concern its resource alone.
func isRefused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) ||
		apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsInternalError(err) // as where a conversion webhook is down
}

// explain says of objects with other data where these differ, where the two can
// still be had.
func (v *verification) explain(ctx context.Context) error {
	for i, n := 0, 0; i < len(v.report.Problems) && n < explained; i++ {
		p := &v.report.Problems[i]
		if p.Kind != Different {
			continue
		}
		n++
		if where := v.whereDifferent(ctx, p); where != "" {
			p.Detail += ": " + where
		}
	}
	return ctx.Err()
}

// whereDifferent is of no consequence for what is wrong, so its errors are not
// either.
func (v *verification) whereDifferent(ctx context.Context, p *Problem) string {
	gr := schema.ParseGroupResource(p.Resource)
	k := event.Key{Group: gr.Group, Resource: gr.Resource, Namespace: p.Namespace, Name: p.Name}
	r, filtered, ok := v.resourceOf(gr)
	if !ok {
		return ""
	}
	r, _ = v.selection.as(r, v.follower.state(k))
	s, err := v.cluster.lookOne(ctx, r, k, filtered)
	if err != nil || s.version != p.Cluster {
		return ""
	}
	stored, err := v.follower.bus.At(ctx, k, p.Position)
	if err != nil || stored.Object == nil {
		return ""
	}
	if stored.Object.Body.None() {
		return "the event holds metadata only"
	}
	body, err := stored.Object.Body.JSON()
	if err != nil {
		return err.Error()
	}
	t, err := decode(body)
	if err != nil {
		return err.Error()
	}
	v.cluster.form.ofBus(k, t)
	return differences(s.tree, t)
}
