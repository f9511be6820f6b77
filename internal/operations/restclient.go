package operations

import (
	"context"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/metrics"
)

// restClients holds the metrics of all clients in the process, so every registry shows the same
// values. client-go's hook can be set only once, and it does not receive the client that sent a
// request.
var restClients = struct {
	requests  *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	throttled *prometheus.HistogramVec
}{
	requests: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rest_client_requests_total",
		Help: "Requests to the API server, including retries, by status code and HTTP method. The code is <error> if there was no response. Codes 401 and 403 indicate a problem with credentials or RBAC. Code 429 means that the API server throttles the forwarder.",
	}, []string{"code", "method"}),
	duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "rest_client_request_duration_seconds",
		Help:    "Duration of requests to the API server, by HTTP method, excluding watches and including the wait in the client. If it grows, the API server is slow or KUBERELAY_KUBE_QPS is low.",
		Buckets: requestBuckets,
	}, []string{"verb"}),
	throttled: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "rest_client_rate_limiter_duration_seconds",
		Help:    "Time that requests to the API server waited in the rate limiter of the client, by HTTP method. If it grows, raise KUBERELAY_KUBE_QPS and KUBERELAY_KUBE_BURST.",
		Buckets: requestBuckets,
	}, []string{"verb"}),
}

// requestBuckets are the buckets that Kubernetes' own components use.
var requestBuckets = []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60}

func registerRESTClients(r prometheus.Registerer) {
	metrics.Register(metrics.RegisterOpts{ // only the first call has an effect
		RequestResult:      requestResult{},
		RequestLatency:     requestLatency{restClients.duration},
		RateLimiterLatency: requestLatency{restClients.throttled},
	})
	register(r, restClients.requests)
	register(r, restClients.duration)
	register(r, restClients.throttled)
}

type requestResult struct{}

var _ metrics.ResultMetric = requestResult{}

func (requestResult) Increment(_ context.Context, code, method, _ string) {
	restClients.requests.WithLabelValues(code, method).Inc()
}

type requestLatency struct{ of *prometheus.HistogramVec }

var _ metrics.LatencyMetric = requestLatency{}

func (l requestLatency) Observe(_ context.Context, verb string, _ url.URL, latency time.Duration) {
	l.of.WithLabelValues(verb).Observe(latency.Seconds())
}
