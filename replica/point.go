package replica

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// Point is a consistency point: a resourceVersion up to which a copy has every change of a
// resource.
type Point struct {
	ResourceVersion string
	AsOf            time.Time // when the API server had reached that version
}

// pollInterval is the interval at which a wait reads the version of the store. A store has no
// notifications.
const pollInterval = 10 * time.Millisecond

// WaitForResourceVersion blocks until a store has every change up to a resourceVersion of the API
// server, for the objects that the forwarder selects. It returns the consistency point that the store
// has reached. If version is empty, it waits for any point.
//
// The store must belong to an informer of a [ListerWatcher]. Get it with
// cache.SharedIndexInformer.GetStore. Stores have a version since client-go v0.36, with the feature
// AtomicFIFO, which is on by default.
//
// The wait ends when the forwarder has published a consistency point with that version or a later one,
// up to KUBERELAY_RESOLVED_INTERVAL after a change of the resource. The wait can take a minute longer
// for a version that is not from a change of the resource, such as a version of another resource. ctx
// limits the wait.
func WaitForResourceVersion(ctx context.Context, store interface{ LastStoreSyncResourceVersion() string }, version string) (Point, error) {
	if version != "" && !isNumber(version) {
		return Point{}, fmt.Errorf("wait for resourceVersion %q: not a number, so not a version of the API server; pass the resourceVersion of an object or list that the API server returned", version)
	}
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	last := "no consistency point"
	for {
		if p, ok := parsePoint(store.LastStoreSyncResourceVersion()); ok {
			if version == "" || !p.isBefore(version) {
				return p, nil
			}
			last = "resourceVersion " + p.ResourceVersion
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return Point{}, fmt.Errorf("wait for resourceVersion %q: the store has reached %s: %w", version, last, context.Cause(ctx))
		}
	}
}

// isBefore reports whether the version of p is lower than version. Both are numbers of any length.
func (p Point) isBefore(version string) bool {
	return cmp.Or(cmp.Compare(len(p.ResourceVersion), len(version)), strings.Compare(p.ResourceVersion, version)) < 0
}

func isNumber(version string) bool {
	return version != "" && version[0] != '0' && strings.Trim(version, "0123456789") == ""
}

// The resourceVersion of a bookmark is an encoded point. A list, and a bookmark from which a watch can
// continue, append the position. The version of an object has no prefix.
const (
	pointPrefix   = "resolved:"
	pointTime     = "@"
	positionAfter = ";"
)

func (p Point) encode() string {
	return pointPrefix + p.ResourceVersion + pointTime + p.AsOf.UTC().Format(time.RFC3339Nano)
}

// parsePoint returns the point in the resourceVersion of a store. ok is false if the version has no
// point.
func parsePoint(s string) (Point, bool) {
	s, hasPoint := strings.CutPrefix(s, pointPrefix)
	s, _, _ = strings.Cut(s, positionAfter)
	version, at, _ := strings.Cut(s, pointTime)
	asOf, err := time.Parse(time.RFC3339Nano, at)
	return Point{ResourceVersion: version, AsOf: asOf}, hasPoint && err == nil
}

// pointOf returns the point in an event, and false if its version is not a number or its time is
// invalid.
func pointOf(m *event.Message) (Point, bool) {
	asOf, err := time.Parse(time.RFC3339Nano, m.Attribute("time"))
	p := Point{ResourceVersion: m.Attribute("resourceversion"), AsOf: asOf}
	return p, err == nil && isNumber(p.ResourceVersion)
}

// points has the last consistency point in each log, by cluster.
type points map[string]map[publish.Log]Point

func (p points) set(cluster string, log publish.Log, to Point) {
	if p[cluster] == nil {
		p[cluster] = map[publish.Log]Point{}
	}
	p[cluster][log] = to
}

// has reports whether p has a point of a cluster. If cluster is empty, it considers all clusters.
func (p points) has(cluster string) bool {
	return len(p[cluster]) > 0 || cluster == "" && len(p) > 0
}

// of returns the point that a reader of all logs has reached. A point covers only its own log, so the
// lowest of the logs' points counts. An empty cluster means the only cluster that has points.
func (p points) of(cluster string, logs map[publish.Log]uint64) (lowest Point, ok bool) {
	in := p[cluster]
	if cluster == "" && len(p) == 1 {
		for _, in = range p {
		}
	}
	for log := range logs {
		at, has := in[log]
		switch {
		case !has:
			return Point{}, false
		case !ok || at.isBefore(lowest.ResourceVersion):
			lowest, ok = at, true
		}
	}
	return lowest, ok
}
