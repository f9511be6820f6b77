package operations

import "net/http"

// Page is the status page.
type Page interface {
	// ServeHTTP serves / and the files below /page/.
	http.Handler
	// Stream serves what the page shows. Names says whether the caller may have the names of the
	// objects that were published last.
	Stream(w http.ResponseWriter, r *http.Request, names bool)
}

// addPage serves the page and its stream to those who may have the document that it shows. The port is
// open to the network, so without authorization only callers on the same machine get names, as in
// [Endpoints.protectSupport].
func (e Endpoints) addPage(mux *http.ServeMux) {
	mux.Handle("GET /{$}", e.Access.protectAs("/metrics", e.Page))
	mux.Handle("GET /page/", e.Access.protectAs("/metrics", e.Page))
	mux.Handle("GET "+StreamPath, e.Access.protectAs("/metrics", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.Page.Stream(w, r, e.Access != nil || isLocal(r))
	})))
}
