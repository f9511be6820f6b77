package torture

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kuberelay/kuberelay/test/harness"
)

// compareReplica compares what who has read the bus takes for existing with what is
// selected in the cluster, until they are the same or settle is over.
func (w *world) compareReplica(ctx context.Context, settle time.Duration) (problems []string, err error) {
	err = harness.Eventually(ctx, limit, "the bus has been read", func(ctx context.Context) error { return w.bus.CatchUp(ctx, limit) })
	if err != nil {
		return nil, err // a topic that was deleted may not be there again yet
	}
	look := func(ctx context.Context) error {
		present, err := w.user.present(ctx)
		if err == nil {
			err = w.bus.CatchUp(ctx, limit)
		}
		if err != nil {
			return err
		}
		all, _, err := w.bus.All()
		if err != nil {
			return err
		}
		if problems = w.differences(replica(all, w.lost), present); len(problems) > 0 {
			return fmt.Errorf("%d differences", len(problems))
		}
		return nil
	}
	if err := harness.Eventually(ctx, settle, "the replica is right", look); err != nil && len(problems) == 0 {
		return nil, err
	}
	return problems, nil
}

// replica is the last event of each object, by the event's partitionkey, of those that
// are left on the bus.
func replica(all []harness.Received, lost map[harness.Place]bool) map[string]harness.Received {
	last := map[string]harness.Received{} // by subject
	life := 0
	for _, m := range all {
		if m.Life != life {
			clear(last)
			life = m.Life
		}
		switch {
		case lost[m.Place] || isMarker(m):
		case m.Body == nil:
			delete(last, m.Subject)
		default:
			last[m.Subject] = m
		}
	}
	byKey := map[string]harness.Received{}
	for _, m := range last {
		byKey[m.Attributes["partitionkey"]] = m
	}
	return byKey
}

// gone tells whether an event says that its object is to be dropped.
func gone(m harness.Received) bool { return m.Kind() == "deleted" || m.Kind() == "deselected" }

// differences compares a replica with the cluster.
func (w *world) differences(replica map[string]harness.Received, cluster map[string]unstructured.Unstructured) []string {
	var all []string
	labelled := map[string]bool{}
	for _, o := range cluster {
		if o.GetKind() == "Namespace" {
			labelled[o.GetName()] = o.GetLabels()[teamLabel] == w.user.team()
		}
	}
	for key, o := range cluster {
		m, ok := replica[key]
		live := ok && !gone(m)
		switch selected, tolerated := w.selects(o, labelled); {
		case selected && !live:
			all = append(all, fmt.Sprintf("replica: %s exists in version %s and is selected; the bus has %q at %s", key, o.GetResourceVersion(), m.Kind(), m.Place))
		case !selected && live && !tolerated:
			all = append(all, fmt.Sprintf("replica: %s is not selected; the bus has %q of version %s at %s", key, m.Kind(), m.Attributes["resourceversion"], m.Place))
		case selected && (m.Attributes["uid"] != string(o.GetUID()) || !w.showsVersion(m, o)):
			all = append(all, fmt.Sprintf("replica: %s is uid %s in version %s; the bus has uid %s in version %s at %s",
				key, o.GetUID(), o.GetResourceVersion(), m.Attributes["uid"], m.Attributes["resourceversion"], m.Place))
		}
	}
	for key, m := range replica {
		if _, ok := cluster[key]; !ok && !gone(m) {
			all = append(all, fmt.Sprintf("replica: %s does not exist; the bus has %q of version %s at %s", key, m.Kind(), m.Attributes["resourceversion"], m.Place))
		}
	}
	slices.Sort(all)
	return all
}

// selects tells whether an object is selected by the settings, and if not whether the bus
// may show it all the same: what has left a label selector unseen.
func (w *world) selects(o unstructured.Unstructured, labelled map[string]bool) (selected, tolerated bool) {
	s, home := w.settings, o.GetNamespace()
	switch {
	case home != "" && s.namespaces && !slices.Contains(w.homes(), home), home != "" && s.byTeam && !labelled[home]:
		return false, false
	case s.labels && o.GetLabels()[selectedLabel] != "yes":
		return false, !s.tells
	case s.shaped && isHidden(o.Object):
		return false, false
	}
	return true, false
}

// present gives everything of the watched resources, by the partitionkey of its events.
func (u *user) present(ctx context.Context) (map[string]unstructured.Unstructured, error) {
	all := map[string]unstructured.Unstructured{}
	for _, name := range slices.Concat([]string{configMaps, namespaces}, customResources) {
		items, err := u.list(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", name, err)
		}
		of := u.resource(name).Group
		if of == "" {
			of = "core"
		}
		for _, o := range items {
			home := o.GetNamespace()
			if home == "" {
				home = "_"
			}
			all[strings.Join([]string{clusterName, of, name, home, o.GetName()}, "/")] = o
		}
	}
	return all, nil
}

// uids gives the UIDs of objects.
func uids(of map[string]unstructured.Unstructured) map[string]bool {
	all := map[string]bool{}
	for o := range maps.Values(of) {
		all[string(o.GetUID())] = true
	}
	return all
}
