package operations

import (
	"net"
	"net/http"
)

// SupportPath is the folder of what a support bundle has.
const SupportPath = "/debug/support/"

// protectSupport serves callers with the right to get the path, or, without authorization, callers on the
// same machine: the log names objects, and the port is open to the network.
func (e Endpoints) protectSupport(h http.Handler) http.Handler {
	if e.Access != nil {
		return e.Access.protect(h)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLocal(r) {
			http.Error(w, "without KUBERELAY_METRICS_AUTH only the loopback address serves this; "+
				"ask at localhost: in the pod, or through kubectl port-forward", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// isLocal reports whether a request comes from this machine or pod. Both ends of its connection must be
// loopback addresses, because the proxy of a service mesh forwards requests from the network, from a loopback
// address to the address of the pod. The host must be one too. Otherwise an attacker's name that resolves to
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
