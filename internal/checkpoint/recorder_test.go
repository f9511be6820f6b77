package checkpoint

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// clusterFuncs is the cluster as the reconciler sees it.
type clusterFuncs struct {
	reconcile  func(ctx context.Context, gr schema.GroupResource, entries int) error
	enqueueAll func()
}

var _ Cluster = clusterFuncs{}

func (c clusterFuncs) Reconcile(ctx context.Context, gr schema.GroupResource, acked iter.Seq2[event.Key, event.Acked]) error {
	n := 0
	for range acked {
		n++
	}
	return c.reconcile(ctx, gr, n)
}

func (c clusterFuncs) EnqueueAll() { c.enqueueAll() }

var pods, nodes = schema.GroupResource{Resource: "pods"}, schema.GroupResource{Resource: "nodes"}

// recorder writes what the cluster was asked for: «pods:2» for a comparison with
// two entries, «all» for EnqueueAll.
type recorder struct {
	mu    sync.Mutex
	calls []string
	fail  func(gr schema.GroupResource) error // may be nil
}

func (r *recorder) note(call string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, call)
}

func (r *recorder) cluster() clusterFuncs {
	return clusterFuncs{
		reconcile: func(_ context.Context, gr schema.GroupResource, n int) error {
			r.note(fmt.Sprintf("%s:%d", gr, n))
			if r.fail != nil {
				return r.fail(gr)
			}
			return nil
		},
		enqueueAll: func() { r.note("all") },
	}
}

// take gives the calls since the last one, in order of the alphabet.
func (r *recorder) take() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.calls)
	calls := strings.Join(r.calls, " ")
	r.calls = nil
	return calls
}
