// Package operations lets the forwarder be observed: an HTTP server for /metrics,
// /healthz and /readyz, and the metrics of what is not ours.
//
// It is a package of its own because it knows no part of the forwarder. The server
// is given checks and a gatherer and serves what they say; the metrics are those of
// client-go, whose providers do nothing unless set, and of the process. The packages
// with something to tell of themselves register it themselves.
//
// What it guarantees:
//
//   - The port is taken by [Listen], before anything else need be started, so that
//     a taken one is an error at once.
//   - A check is asked at every request. Whoever asks is told why it fails, on one
//     line for each check.
//   - A metric that cannot be collected does not keep the others from being served.
//   - No label has values that an object's content or name decides.
//   - Every constructor may be called any number of times in a process, with
//     registries of their own or with one: the second call with a registry gets the
//     metrics of the first.
//
// What it does not:
//
//   - It asks for no credentials and has no TLS. It serves profiles only where
//     [Endpoints.Profiles] is set.
//   - It has no reflector_* metrics: client-go has made none since 2019
//     (kubernetes/kubernetes#74636), although cache.SetReflectorMetricsProvider is
//     still there. [InformerMetrics] is what it has instead.
package operations
