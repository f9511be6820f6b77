package informers

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/util/flowcontrol"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
)

// counting is a rate limiter that counts all requests and the requests that had to wait.
type counting struct {
	flowcontrol.RateLimiter
	asked, waited atomic.Int32
}

// Wait implements [flowcontrol.RateLimiter].
func (c *counting) Wait(ctx context.Context) error {
	c.asked.Add(1)
	if c.TryAccept() {
		return nil
	}
	c.waited.Add(1)
	return c.RateLimiter.Wait(ctx)
}

// TestAStartOfManyResources_Slow verifies that a start opens one watch for each resource, and that no
// request waits for the rate limiter with the default settings. client-go uses the limiter only for
// retries of a watch. An API server responds with status 429 to the first request for a custom resource
// that it has not served since its start.
func TestAStartOfManyResources_Slow(t *testing.T) {
	const group, many = "start.example.com", 150
	cp := cluster.ControlPlane(t)
	grs := defineMany(t, cp, group, 0, many)
	var q controlplanetest.Requests
	config := q.Through(cp.Config())
	limiter := &counting{RateLimiter: flowcontrol.NewTokenBucketRateLimiter(100, 500)} // KUBERELAY_KUBE_QPS, KUBERELAY_KUBE_BURST
	config.RateLimiter = limiter
	r := start(t, config, Config{Selection: discovery.Selection{Include: []string{"configmaps", "*." + group}}})
	for _, gr := range grs {
		r.awaitSynced(t, gr)
	}
	all, opened, byStatus := 0, 0, map[string]int{}
	for answer, n := range q.All() {
		path, status, _ := strings.Cut(answer, " ")
		all += n
		if strings.Contains(path, group) {
			byStatus[status] += n
			if status == "200" {
				opened += n
			}
		}
	}
	t.Logf("%d resources: %d requests in all; of these resources by status: %v; the limiter was asked for %d and delayed %d",
		many, all, byStatus, limiter.asked.Load(), limiter.waited.Load())
	if n := limiter.waited.Load(); n > 0 {
		t.Errorf("%d requests waited for the limiter", n)
	}
	// Each resource starts with one watch, which begins with a list.
	if opened != many {
		t.Errorf("%d lists and watches of %d resources", opened, many)
	}
}
