package workqueue

import (
	"sync"

	kubequeue "k8s.io/client-go/util/workqueue"
)

var _ kubequeue.MetricsProvider = (*gauge)(nil)

// gauge is a MetricsProvider with a depth metric and no other.
type gauge struct {
	mu sync.Mutex
	n  int
}

func (g *gauge) NewDepthMetric(string) kubequeue.GaugeMetric                         { return g }
func (g *gauge) NewAddsMetric(string) kubequeue.CounterMetric                        { return none{} }
func (g *gauge) NewLatencyMetric(string) kubequeue.HistogramMetric                   { return none{} }
func (g *gauge) NewWorkDurationMetric(string) kubequeue.HistogramMetric              { return none{} }
func (g *gauge) NewUnfinishedWorkSecondsMetric(string) kubequeue.SettableGaugeMetric { return none{} }
func (g *gauge) NewLongestRunningProcessorSecondsMetric(string) kubequeue.SettableGaugeMetric {
	return none{}
}
func (g *gauge) NewRetriesMetric(string) kubequeue.CounterMetric { return none{} }

type none struct{ noGauge }

func (none) Observe(float64) {}
func (none) Set(float64)     {}

func (g *gauge) Inc() { g.add(1) }
func (g *gauge) Dec() { g.add(-1) }
func (g *gauge) add(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n += n
}
