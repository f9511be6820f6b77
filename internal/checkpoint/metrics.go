package checkpoint

import "github.com/prometheus/client_golang/prometheus"

// Register registers the metric that counts the objects whose last event the bus has lost.
func (c *Checkpoint) Register(registerer prometheus.Registerer) {
	registerer.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "kuberelay_bus_lost_total",
		Help: "Objects whose last acknowledged event the bus has lost, found by a read of the checkpoint or a refused publish. The forwarder publishes their states again. Should stay 0: alert on any increase, and see docs/delivery.md.",
	}, func() float64 { return float64(c.term.LostTotal()) }))
}

// Register registers the metrics of deleted objects.
func (r *Retention) Register(registerer prometheus.Registerer) {
	registerer.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "kuberelay_deletes_kept",
			Help: "Deleted objects whose events have not been purged from the bus. Each takes memory: see docs/sizing.md.",
		}, func() float64 { return float64(r.Checkpoint.term.Deletes()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "kuberelay_deletes_purged_early_total",
			Help: "Deleted objects whose events were purged before the end of KUBERELAY_DELETE_RETENTION, because more than KUBERELAY_MAX_DELETES were kept. Alert if it grows: a subscriber that was away might have missed these deletes.",
		}, func() float64 { return float64(r.early.Load()) }),
	)
}
