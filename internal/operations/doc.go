// Package operations makes the forwarder observable. It has an HTTP server for /metrics, /healthz,
// /readyz, /api/v1/status, /api/v1/trace, and the status page. It also provides the metrics of
// client-go, which are off by default, and of the process.
//
// The package does not depend on other parts of the forwarder. The caller passes the checks and a
// gatherer to the server. Other packages register their own metrics.
//
// Guarantees:
//
//   - [Listen] binds the port before other components start, so a port in use is an immediate
//     error.
//   - Every request to /healthz or /readyz runs the checks. The response has one line for each failed
//     check, with its reason.
//   - The server still serves the other metrics if one of them cannot be collected.
//   - No label has values from the content or the name of an object.
//   - You can call every constructor any number of times per process, with one registry or
//     several. A second call with the same registry returns the metrics of the first call.
//
// Limits:
//
//   - It requires credentials only if [Endpoints.Access] is set, and TLS only if [Endpoints.TLS] is
//     set. It serves profiles only if [Endpoints.Profiles] is set. Without Access, it serves
//     [Endpoints.Support] to the loopback address only.
//   - It has no reflector_* metrics. client-go has not provided them since 2019
//     (kubernetes/kubernetes#74636), although cache.SetReflectorMetricsProvider still exists.
//     [InformerMetrics] replaces them.
package operations
