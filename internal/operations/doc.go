// Package operations makes the forwarder observable: an HTTP server for /metrics,
// /healthz, /readyz, /api/v1/status, /api/v1/trace and the status page, and the metrics of client-go and of the
// process.
//
// It does not depend on other parts of the forwarder. The server gets checks and a gatherer
// from its caller. client-go's metrics providers do nothing unless set. Other packages
// register their own metrics.
//
// What it guarantees:
//
//   - [Listen] takes the port before anything else has to start, so that a port in use is
//     an immediate error.
//   - Every request runs the checks. A response names each failed check and its reason on
//     one line.
//   - A metric that cannot be collected does not prevent the others from being served.
//   - No label has values from the content or the name of an object.
//   - Every constructor may be called any number of times per process, with one registry or
//     several. A second call with the same registry returns the metrics of the first.
//
// What it does not:
//
//   - It requires credentials and TLS only if [Endpoints.Access] and [Endpoints.TLS] are set,
//     and serves profiles only if [Endpoints.Profiles] is. Without Access, [Endpoints.Support] is
//     served to the loopback address only.
//   - It has no reflector_* metrics: client-go has not provided them since 2019
//     (kubernetes/kubernetes#74636), although cache.SetReflectorMetricsProvider still
//     exists. [InformerMetrics] replaces them.
package operations
