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

// Point is a consistency point: a version of the API server up to which a copy has every
// change of a resource.
type Point struct {
	ResourceVersion string
	AsOf            time.Time // when the API server had shown that version to the forwarder
}

// pollInterval is the interval at which a wait reads the store, which cannot notify.
const pollInterval = 10 * time.Millisecond

// WaitForResourceVersion blocks until a store has every change of the objects that the forwarder
// selects, up to a resourceVersion of the API server, and returns the consistency point that
// the store has reached. With an empty version it waits for any point.
//
// The store must be that of an informer of a [ListerWatcher], such as
// cache.SharedIndexInformer.GetStore returns. Stores have a version since client-go v0.36, with
// its feature AtomicFIFO, which is on by default.
//
// It takes as long as the forwarder takes to publish a consistency point with that version: up
// to KUBERELAY_RESOLVED_INTERVAL after a change of the resource. A version that no change of
// the resource has, such as that of another resource, can take a minute longer. ctx bounds the
// wait.
func WaitForResourceVersion(ctx context.Context, store interface{ LastStoreSyncResourceVersion() string }, version string) (Point, error) {
	if version != "" && !isNumber(version) {
		return Point{}, fmt.Errorf("wait for resourceVersion %q: not a number, so not a version of the API server; pass that of an object or list that the API server returned", version)
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

// isBefore compares versions that are numbers of any length.
func (p Point) isBefore(version string) bool {
	return cmp.Or(cmp.Compare(len(p.ResourceVersion), len(version)), strings.Compare(p.ResourceVersion, version)) < 0
}

func isNumber(version string) bool {
	return version != "" && version[0] != '0' && strings.Trim(version, "0123456789") == ""
}

// A bookmark has a point as its resourceVersion. A list, and a bookmark at which a watch can
// continue, add the position. The version of an object has no prefix.
const (
	pointPrefix   = "resolved:"
	pointTime     = "@"
	positionAfter = ";"
)

func (p Point) encode() string {
	return pointPrefix + p.ResourceVersion + pointTime + p.AsOf.UTC().Format(time.RFC3339Nano)
}

// parsePoint returns the point in the resourceVersion of a store, and false if it has none.
func parsePoint(s string) (Point, bool) {
	s, hasPoint := strings.CutPrefix(s, pointPrefix)
	s, _, _ = strings.Cut(s, positionAfter)
	version, at, _ := strings.Cut(s, pointTime)
	asOf, err := time.Parse(time.RFC3339Nano, at)
	return Point{ResourceVersion: version, AsOf: asOf}, hasPoint && err == nil
}

// pointOf returns the point in an event, and false if its version is not a number.
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

// has reports whether there is a point of a cluster, or of any if it is empty.
func (p points) has(cluster string) bool {
	return len(p[cluster]) > 0 || cluster == "" && len(p) > 0
}

// of returns the point that a reader of all logs has reached. A point vouches only for its own log,
// so the lowest point counts. An empty cluster means the only one.
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
