package torture

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// compareReplica compares the objects that exist according to the bus with the selected objects in
// the cluster, until they are equal or settle has passed.
func (w *world) compareReplica(ctx context.Context, settle time.Duration) (problems []string, err error) {
	err = poll.Until(ctx, limit, "the bus has been read", func(ctx context.Context) error { return w.bus.CatchUp(ctx, limit) })
	if err != nil {
		return nil, err // a deleted topic may not have been recreated yet
	}
	look := func(ctx context.Context) error {
		present, err := w.user.present(ctx, w.settings.other)
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
		var found []string
		for _, cluster := range w.clusters() {
			replica, err := w.replicaOf(ctx, cluster, all)
			if err != nil {
				return err
			}
			found = append(found, w.differences(replica, inCluster(cluster, present), w.unanswerable(messagesOf(cluster, all)))...)
		}
		if problems = found; len(problems) > 0 {
			return fmt.Errorf("%d differences", len(problems))
		}
		return nil
	}
	if err := poll.Until(ctx, settle, "the replica is right", look); err != nil && len(problems) == 0 {
		return nil, err
	}
	return problems, nil
}

// replicaOf returns the last event that the bus still has of each object of a cluster, by the event's
// partitionkey.
func (w *world) replicaOf(ctx context.Context, cluster string, all []harness.Received) (map[string]harness.Received, error) {
	of := messagesOf(cluster, all)
	replica := w.replica(of)
	return replica, w.dropPurged(ctx, replica, of)
}

// replica is replicaOf without the check for purged events. For an object whose last event the bus
// has lost, it returns an earlier event, even if that event was purged.
func (w *world) replica(all []harness.Received) map[string]harness.Received {
	used := []string{""}
	if w.settings.sink == onKafka {
		used = topics(w.settings.topic)
	}
	byKey := map[string]harness.Received{}
	strays := w.strays(all)
	for _, topic := range used {
		last := map[string]harness.Received{} // by subject
		of := 0
		for _, m := range all {
			if m.Topic != topic {
				continue
			}
			if m.Life != of && !w.resumed[life{topic, m.Life}] {
				clear(last)
			}
			of = m.Life
			switch {
			case w.lost[m.Place] || isMarker(m) || m.Invalid != nil:
			case w.isForeign(m) && (!w.foreign.at[m.Place] || strays[m.Place]):
			case m.Body == nil:
				delete(last, m.Subject)
			default:
				last[m.Subject] = m
			}
		}
		for _, m := range last {
			byKey[m.Attributes["partitionkey"]] = m
		}
	}
	return byKey
}

// strays returns the foreign messages that are in another partition than the events of their objects.
// No forwarder answers them.
func (w *world) strays(all []harness.Received) map[harness.Place]bool {
	type object struct{ topic, subject string }
	home, strays := map[object]int{}, map[harness.Place]bool{}
	for _, m := range all {
		if !w.isForeign(m) {
			home[object{m.Topic, m.Subject}] = m.Partition
		}
	}
	for _, m := range all {
		of, known := home[object{m.Topic, m.Subject}]
		strays[m.Place] = w.isForeign(m) && known && of != m.Partition
	}
	return strays
}

// dropPurged removes objects whose last event the bus has lost and whose earlier events are purged.
// The bus purges them if it keeps one event of each object. The forwarder purges them after the
// retention of the lost delete.
func (w *world) dropPurged(ctx context.Context, replica map[string]harness.Received, all []harness.Received) error {
	for _, m := range all {
		key := m.Attributes["partitionkey"]
		last, ok := replica[key]
		if !ok || !w.lost[m.Place] || last.Subject != m.Subject || last.Sequence > m.Sequence {
			continue
		}
		purged, err := w.bus.purged(ctx, last)
		if err != nil {
			return err
		}
		if purged {
			delete(replica, key)
		}
	}
	return nil
}

// gone reports whether an event means that its object doesn't exist for readers.
func gone(m harness.Received) bool { return m.Kind() == "deleted" || m.Kind() == "deselected" }

// differences compares a replica with the cluster. The bus may still show an unanswerable object that
// is gone or no longer selected.
func (w *world) differences(replica map[string]harness.Received, cluster map[string]unstructured.Unstructured, unanswerable map[string]bool) []string {
	var all []string
	labeled := w.labeled(cluster)
	for key, o := range cluster {
		m, ok := replica[key]
		live := ok && !gone(m)
		switch selected, tolerated := w.selects(key, o, labeled); {
		case selected && !live:
			all = append(all, fmt.Sprintf("replica: %s exists in version %s and is selected; the bus has %q at %s", key, o.GetResourceVersion(), m.Kind(), m.Place))
		case !selected && live && !tolerated && !unanswerable[key]:
			all = append(all, fmt.Sprintf("replica: %s is not selected; the bus has %q of version %s at %s", key, m.Kind(), m.Attributes["resourceversion"], m.Place))
		case selected && (m.Attributes["uid"] != string(o.GetUID()) || !w.showsVersion(m, o) && !(w.settings.shaped && w.mayBelieve(m))): // digests of shaped objects leave out the version
			all = append(all, fmt.Sprintf("replica: %s is uid %s in version %s; the bus has uid %s in version %s at %s",
				key, o.GetUID(), o.GetResourceVersion(), m.Attributes["uid"], m.Attributes["resourceversion"], m.Place))
		case selected:
			if where := w.contentDiffers(m, o); len(where) > 0 && !w.mayBelieve(m) {
				all = append(all, fmt.Sprintf("replica: %s in version %s differs from what the bus has at %s: %q", key, o.GetResourceVersion(), m.Place, where))
			}
		}
	}
	for key, m := range replica {
		if _, ok := cluster[key]; !ok && !gone(m) && !w.leftBehind(key) && !unanswerable[key] {
			all = append(all, fmt.Sprintf("replica: %s does not exist; the bus has %q of version %s at %s", key, m.Kind(), m.Attributes["resourceversion"], m.Place))
		}
	}
	slices.Sort(all)
	return all
}

// labeled returns the namespaces with the label of the selection.
func (w *world) labeled(cluster map[string]unstructured.Unstructured) map[string]bool {
	labeled := map[string]bool{}
	for _, o := range cluster {
		if o.GetKind() == "Namespace" {
			labeled[o.GetName()] = o.GetLabels()[teamLabel] == w.user.team()
		}
	}
	return labeled
}

// selects reports whether the settings select an object and, if they don't, whether the bus may still
// show the object: nothing was published when it left the selection.
func (w *world) selects(key string, o unstructured.Unstructured, labeled map[string]bool) (selected, tolerated bool) {
	s, home := w.settings, o.GetNamespace()
	switch {
	case !w.covers(key):
		return false, w.reconfigured() && !s.tells
	case home != "" && s.byTeam && !labeled[home]:
		return false, false
	case s.labels && o.GetLabels()[selectedLabel] != "yes":
		return false, !s.tells
	case s.shaped && isHidden(o.Object):
		return false, false
	}
	return true, false
}

// covers reports whether the current configuration selects the object name in a partitionkey.
func (w *world) covers(key string) bool {
	parts := strings.Split(key, "/")
	return w.settings.covers(w.user, parts[2], parts[3], parts[4])
}

// leftBehind reports whether the bus may still show a deleted object: the current configuration
// doesn't select the object, and the forwarder publishes nothing when an object leaves the selection.
func (w *world) leftBehind(key string) bool {
	return w.reconfigured() && !w.settings.tells && !w.covers(key)
}

// present returns the objects of the watched resources, and of other if it isn't "", by the
// partitionkey of their events.
func (u *user) present(ctx context.Context, other string) (map[string]unstructured.Unstructured, error) {
	all := map[string]unstructured.Unstructured{}
	names := slices.Concat([]string{configMaps, namespaces}, customResources)
	if other != "" {
		names = append(names, other)
	}
	for _, name := range names {
		items, err := u.list(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", name, err)
		}
		for _, o := range items {
			all[u.partitionKey(name, o.GetNamespace(), o.GetName())] = o
		}
	}
	return all, nil
}

// partitionKey returns the partitionkey of an object's events. namespace and name are those in the
// cluster.
func (u *user) partitionKey(resource, namespace, name string) string {
	group := cmp.Or(u.resource(resource).Group, "core")
	return strings.Join([]string{clusterName, group, resource, cmp.Or(namespace, "_"), name}, "/")
}

// uids returns the UIDs of objects, with the keys of the objects.
func uids(of map[string]unstructured.Unstructured) map[string]string {
	all := map[string]string{}
	for key, o := range of {
		all[string(o.GetUID())] = key
	}
	return all
}
