package operations

import (
	"net"
	"net/http"
)

// SupportPath is the path below which the server serves the parts of a support bundle.
const SupportPath = "/debug/support/"

// protectSupport serves callers with the right to get the path. Without authorization, it serves only
// callers on the same machine or in the same pod, because the log names objects and the port is open
// to the network.
func (e Endpoints) protectSupport(h http.Handler) http.Handler {
	if e.Access != nil {
		return e.Access.protect(h)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLocal(r) {
			http.Error(w, "without KUBERELAY_METRICS_AUTH, this is served only on the loopback address: "+
				"ask at localhost in the pod, or through kubectl port-forward", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// isLocal reports whether a request comes from this machine or pod. Both ends of its connection must
// be loopback addresses. The client's address is not enough: the proxy of a service mesh forwards
// requests from the network, and sends them from a loopback address to the pod's address. The host in
// the request must be a loopback address, too. Otherwise an attacker's host name that resolves to
// 127.0.0.1 would let a page in a browser on this machine send requests.
func isLocal(r *http.Request) bool {
	own, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return own != nil && isLoopback(r.RemoteAddr) && isLoopback(own.String()) && isLoopback(r.Host)
}

// isLoopback reports whether a host, with or without a port, is a loopback address or localhost.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}
