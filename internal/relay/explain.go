package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/explain"
	"github.com/kuberelay/kuberelay/internal/informers/health"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/references"
	"github.com/kuberelay/kuberelay/internal/shape"
	"github.com/kuberelay/kuberelay/internal/status"
)

// unmatched returns the entries of settings that match nothing, ordered by setting. complete is
// false until the resources and namespaces of the cluster are known.
//
// Several clusters can share a configuration that excludes names that only some of them have. So an exclusion
// that matches nothing counts only if the cluster has a similar name. Such an entry is probably misspelled,
// and the forwarder publishes objects that the user wanted to exclude.
func (r *Relay) unmatched() (all []status.Unmatched, complete bool) {
	all = []status.Unmatched{}
	add := func(setting string, similar map[string]string, only func(similar string) bool) {
		for _, entry := range slices.Sorted(maps.Keys(similar)) {
			if only(similar[entry]) {
				all = append(all, status.Unmatched{Setting: setting, Entry: entry, Suggestion: similar[entry]})
			}
		}
	}
	always, hasSimilar := func(string) bool { return true }, func(similar string) bool { return similar != "" }
	u, complete := r.informers.Unmatched()
	add("KUBERELAY_RESOURCES", u.Resources, always)
	add("KUBERELAY_EXCLUDE_RESOURCES", u.ExcludedResources, hasSimilar)
	add("KUBERELAY_NAMESPACES", u.Namespaces, always)
	add("KUBERELAY_EXCLUDE_NAMESPACES", u.ExcludedNamespaces, hasSimilar)
	entries := func(setting string, entries ...string) {
		for _, entry := range entries {
			all = append(all, status.Unmatched{Setting: setting, Entry: entry})
		}
	}
	if u.NamespaceSelector != "" {
		entries("KUBERELAY_NAMESPACE_SELECTOR", u.NamespaceSelector)
	}
	if watched := r.informers.Resources(); len(watched) > 0 {
		drop, hash, filtered := r.shape.Unmatched(watched)
		entries("KUBERELAY_DROP_FIELDS", drop...)
		entries("KUBERELAY_HASH_FIELDS", hash...)
		entries("KUBERELAY_FOLLOW", references.Unmatched(r.Settings.Watch.Follow, r.informers.Referring())...)
		entries("KUBERELAY_FILTER", filtered...)
	}
	if t := r.term.Load(); t != nil && t.bus.ReplacesNobody() {
		entries("KUBERELAY_CLUSTER_REPLACES", r.Settings.Event.ClusterReplaces)
	}
	return all, complete
}

// allUnmatched returns the entries of [Relay.unmatched] and, if no object is selected, the label and
// field selectors.
func (r *Relay) allUnmatched() (all []status.Unmatched, complete bool) {
	all, complete = r.unmatched()
	w := r.Settings.Watch
	if w.LabelSelector+w.FieldSelector == "" || !selectsNothing(r.informers.Status()) {
		return all, complete
	}
	for _, u := range []status.Unmatched{{Setting: "KUBERELAY_LABEL_SELECTOR", Entry: w.LabelSelector}, {Setting: "KUBERELAY_FIELD_SELECTOR", Entry: w.FieldSelector}} {
		if u.Entry != "" {
			all = append(all, u)
		}
	}
	return all, complete
}

// selectsNothing reports whether every first list is complete, and no object is selected. A watch that
// fails after the list keeps its objects.
func selectsNothing(all health.Report) bool {
	return len(all) > 0 && !slices.ContainsFunc(all, func(s health.Status) bool { return !s.Synced || s.Objects > 0 })
}

// unmatchedPoll is the interval between checks for unmatched entries. Each check logs the changes.
const unmatchedPoll = 2 * time.Second

// noteUnmatched logs the entries that became unmatched, and the entries that match again.
func noteUnmatched(log *slog.Logger, before, now []status.Unmatched) {
	for _, u := range now {
		if !slices.Contains(before, u) {
			log.Warn("setting matches nothing", "setting", u.Setting, "entry", u.Entry, "similar", cmp.Or(u.Suggestion, "none"))
		}
	}
	for _, u := range before {
		if !slices.ContainsFunc(now, func(n status.Unmatched) bool { return n.Setting == u.Setting && n.Entry == u.Entry }) {
			log.Info("setting now matches", "setting", u.Setting, "entry", u.Entry)
		}
	}
}

// matches is the check of KUBERELAY_READY_REQUIRES_MATCHES.
func (s *readiness) matches() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.relay == nil {
		return s.why()
	}
	all, complete := s.relay.allUnmatched()
	switch {
	case len(all) > 0:
		var sentences []string
		for _, u := range all {
			sentences = append(sentences, u.Sentence())
		}
		return errors.New(strings.Join(sentences, "; "))
	case !complete:
		return errStarting
	}
	return nil
}

// unmatchedCollector computes kuberelay_setting_unmatched at each scrape.
type unmatchedCollector struct{ relay *Relay }

var unmatchedDesc = prometheus.NewDesc("kuberelay_setting_unmatched",
	"1 for each setting entry that matches nothing in the cluster: a resource, a namespace, a field, or a selector. Correct the spelling; forwarder status shows a similar name. Leave an entry whose resource or namespace will be created later.",
	[]string{"setting", "entry"}, nil)

// Describe implements [prometheus.Collector].
func (c unmatchedCollector) Describe(to chan<- *prometheus.Desc) { to <- unmatchedDesc }

// Collect implements [prometheus.Collector].
func (c unmatchedCollector) Collect(to chan<- prometheus.Metric) {
	if c.relay.state.running() == nil {
		return
	}
	all, _ := c.relay.allUnmatched()
	sent := map[status.Unmatched]bool{} // a list might have an entry twice, and a metric cannot have a series twice
	for _, u := range all {
		u.Entry, u.Suggestion = strings.ToValidUTF8(u.Entry, "?"), ""
		if !sent[u] {
			to <- prometheus.MustNewConstMetric(unmatchedDesc, prometheus.GaugeValue, 1, u.Setting, u.Entry)
		}
		sent[u] = true
	}
}

// Explain returns the resources that a Relay with this configuration would watch if it
// started now. It uses only Settings and Kube. Where a Relay would wait, Explain returns an
// error.
func Explain(ctx context.Context, c Config, q explain.Question) (explain.Explanation, error) {
	cl, err := newCluster(c.Kube)
	if err != nil {
		return explain.Explanation{}, &config.Error{Err: fmt.Errorf("find the cluster: %w", err)}
	}
	w := c.Settings.Watch
	of := explain.Config{
		Selection: selection(c.Settings), Namespaces: namespaceSelection(c.Settings),
		LabelSelector: w.LabelSelector, FieldSelector: w.FieldSelector, Follow: w.Follow,
		Dynamic: cl.dynamic, Discovery: cl.discovery, Reviews: cl.reviews,
	}
	x, err := explain.Explain(ctx, of, q)
	if err == nil {
		return explainShape(x, c)
	}
	if !apierrors.IsForbidden(err) { // explainAPIServer would attribute a denial to the cluster's name
		if permanent := explainAPIServer(c.Kube.Host, err); permanent != nil {
			return explain.Explanation{}, permanent
		}
	}
	return explain.Explanation{}, fmt.Errorf("request to the API server %s failed: %w", c.Kube.Host, err)
}

// explainShape adds the filter, and the fields of the watched resources that are dropped or hashed.
func explainShape(x explain.Explanation, c Config) (explain.Explanation, error) {
	shapes, err := shape.New(c.Settings.Content, nil)
	if err != nil {
		return explain.Explanation{}, &config.Error{Err: err}
	}
	var watched []event.Resource
	for _, r := range x.Watched() {
		watched = append(watched, r.Resource)
	}
	x.Filter, x.DropFields, x.HashFields = c.Settings.Content.Filter, c.Settings.Content.DropFields, shapes.Hashed(watched)
	x.ReadableFields = shapes.Readable(watched)
	drop, hash, _ := shapes.Unmatched(watched)
	x.UnmatchedFields = slices.Concat(drop, hash)
	x.UnmatchedFollow = references.Unmatched(c.Settings.Watch.Follow, append(watched, x.Followable...))
	return x, nil
}

// risks returns the bus settings that can cause the loss of acknowledged events.
func (t *term) risks() []publish.Risk {
	if t == nil {
		return nil
	}
	return t.bus.Risks()
}

// riskStatus returns the risks in the form of the status document.
func (t *term) riskStatus() (all []status.Risk) {
	for _, r := range t.risks() {
		all = append(all, status.Risk{Setting: r.Setting, Of: r.Of, Message: r.String(), Fix: r.Fix})
	}
	return all
}

// noteRisks logs each setting once. A bus that is a single server by choice causes no warning.
func noteRisks(log *slog.Logger, logged map[string]bool, now []publish.Risk) {
	for _, r := range now {
		if logged[r.Setting] {
			continue
		}
		logged[r.Setting] = true
		attributes := []any{"setting", r.Setting, "of", r.Of, "loses", r.Loses, "fix", r.Fix}
		if r.Single {
			log.Info("the bus is a single server", attributes...)
			continue
		}
		log.Warn("the bus can lose events that it acknowledged", attributes...)
	}
}
