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

// clusterFuncs is a fake Cluster.
type clusterFuncs struct {
	reconcile  func(ctx context.Context, gr schema.GroupResource, entries int) error
	confirm    func(ctx context.Context, gr schema.GroupResource, keys []string) error
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

func (c clusterFuncs) Confirm(ctx context.Context, gr schema.GroupResource, acked iter.Seq2[event.Key, event.Acked]) error {
	var keys []string
	for k, a := range acked {
		keys = append(keys, k.Name+"."+a.ResourceVersion)
	}
	slices.Sort(keys)
	return c.confirm(ctx, gr, keys)
}

func (c clusterFuncs) EnqueueAll() { c.enqueueAll() }

var pods, nodes = schema.GroupResource{Resource: "pods"}, schema.GroupResource{Resource: "nodes"}

// recorder records the calls: "pods:2" for a comparison with two entries, "pods:[a.1]" for
// the confirmation of object a in version 1, "all" for EnqueueAll.
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

// failWith sets the result of all further calls.
func (r *recorder) failWith(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = func(schema.GroupResource) error { return err }
}

func (r *recorder) answer(gr schema.GroupResource) error {
	r.mu.Lock()
	fail := r.fail
	r.mu.Unlock()
	if fail == nil {
		return nil
	}
	return fail(gr)
}

func (r *recorder) cluster() clusterFuncs {
	return clusterFuncs{
		reconcile: func(_ context.Context, gr schema.GroupResource, n int) error {
			r.note(fmt.Sprintf("%s:%d", gr, n))
			return r.answer(gr)
		},
		confirm: func(_ context.Context, gr schema.GroupResource, keys []string) error {
			r.note(fmt.Sprintf("%s:%v", gr, keys))
			return r.answer(gr)
		},
		enqueueAll: func() { r.note("all") },
	}
}

// take returns the calls since the last take, sorted.
func (r *recorder) take() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.calls)
	calls := strings.Join(r.calls, " ")
	r.calls = nil
	return calls
}
