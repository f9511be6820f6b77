package operations

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	kubequeue "k8s.io/client-go/util/workqueue"
)

func newQueue(name string, m kubequeue.MetricsProvider) kubequeue.TypedRateLimitingInterface[string] {
	return kubequeue.NewTypedRateLimitingQueueWithConfig(
		kubequeue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Minute),
		kubequeue.TypedRateLimitingQueueConfig[string]{Name: name, MetricsProvider: m},
	)
}

func TestWorkqueueMetrics(t *testing.T) {
	r := prometheus.NewRegistry()
	provider := WorkqueueMetrics(r)
	synctest.Test(t, func(*testing.T) {
		q := newQueue("keys", provider)
		defer q.ShutDown()
		for _, key := range []string{"a", "b", "c", "d"} {
			q.Add(key)
		}
		time.Sleep(2 * time.Second)
		a, _ := q.Get() // has waited for 2 s
		time.Sleep(3 * time.Second)
		q.AddRateLimited(a) // is added again after a second
		q.Done(a)           // was processed for 3 s
		q.Get()             // b, has waited for 5 s
		time.Sleep(10 * time.Second)
		q.Get() // c, has waited for 15 s
		time.Sleep(20 * time.Second)
		synctest.Wait()
	})
	families := scrape(t, r)

	counters := map[string]float64{"workqueue_adds_total": 5, "workqueue_retries_total": 1}
	for name, want := range counters {
		if got := series(families, name)["name=keys"].GetCounter().GetValue(); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	gauges := map[string]float64{
		"workqueue_depth":                             2, // d, and a again
		"workqueue_unfinished_work_seconds":           30 + 20,
		"workqueue_longest_running_processor_seconds": 30,
	}
	for name, want := range gauges {
		if got := series(families, name)["name=keys"].GetGauge().GetValue(); got < want-1 || got > want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	histograms := map[string]struct {
		count uint64
		sum   float64
	}{
		"workqueue_queue_duration_seconds": {3, 2 + 5 + 15},
		"workqueue_work_duration_seconds":  {1, 3},
	}
	for name, want := range histograms {
		got := series(families, name)["name=keys"].GetHistogram()
		if got.GetSampleCount() != want.count || got.GetSampleSum() != want.sum {
			t.Errorf("%s has %d observations of %v in all, want %d of %v", name, got.GetSampleCount(), got.GetSampleSum(), want.count, want.sum)
		}
	}
}

func TestWorkqueueMetricsOfSeveralForwarders(t *testing.T) {
	one, other := prometheus.NewRegistry(), prometheus.NewRegistry()
	for _, r := range []*prometheus.Registry{one, one, other} { // one has two queues of the same name
		q := newQueue("keys", WorkqueueMetrics(r))
		q.Add("a")
		q.ShutDown()
	}
	for want, r := range map[float64]*prometheus.Registry{2: one, 1: other} {
		if got := series(scrape(t, r), "workqueue_adds_total")["name=keys"].GetCounter().GetValue(); got != want {
			t.Errorf("got %v keys added, want %v", got, want)
		}
	}
}

func TestWithoutARegistererMetricsAreKeptNowhere(*testing.T) {
	q := newQueue("keys", WorkqueueMetrics(nil))
	q.Add("a")
	q.ShutDown()
}
