package operations

import "net/http"

// Page is the status page.
type Page interface {
	// ServeHTTP serves / and the files below /page/.
	http.Handler
	// Stream serves the data of the page. names says whether the caller may see the names of
	// recently published objects.
	Stream(w http.ResponseWriter, r *http.Request, names bool)
}

// addPage serves the page and its stream to callers that may read the status document. The port is
// open to the network. So without authorization, only callers on the same machine or in the same pod
// see names, as in [Endpoints.protectSupport].
func (e Endpoints) addPage(mux *http.ServeMux) {
	mux.Handle("GET /{$}", e.Access.protectAs("/metrics", e.Page))
	mux.Handle("GET /page/", e.Access.protectAs("/metrics", e.Page))
	mux.Handle("GET "+StreamPath, e.Access.protectAs("/metrics", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.Page.Stream(w, r, e.Access != nil || isLocal(r))
	})))
}
