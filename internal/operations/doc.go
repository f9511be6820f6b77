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
//   - It asks for no credentials and has no TLS. It serves no profiles, and nothing
//     that a network policy should have to hide: no object's name is shown.
//   - It has none of the reflector_* metrics that older client-go made. The hook,
//     cache.SetReflectorMetricsProvider, is still there, but nothing has called what
//     it sets since the metrics leaked memory (kubernetes/kubernetes#73587);
//     [InformerMetrics] is what client-go has instead.
package operations
