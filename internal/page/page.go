package page

import (
	"embed"
	"io/fs"
	"net/http"
	"path"
	"sync"

	"github.com/kuberelay/kuberelay/internal/status"
)

//go:embed assets
var assets embed.FS

// The page is at the path root, and its other files are below directory. The page links to them with
// relative paths, so that a proxy can serve the page below another path.
const (
	root      = "/"
	directory = "/page/"
)

// Config configures a Page. Every field is required unless its comment says otherwise.
type Config struct {
	// View returns the status document with its verdict, and the recent events. With several clusters,
	// cluster is the name of one, or "" for all of them together, for which View returns no events. With a
	// single cluster, cluster is "". View must not block.
	View    func(cluster string) (status.Document, *Recent)
	Several bool // the forwarder has several clusters
	// Done is closed to end all streams.
	Done <-chan struct{}
}

// Page serves the status page and its streams.
type Page struct {
	Config
	files map[string]file // the files by URL path

	mu      sync.Mutex
	streams int
	views   map[string]*view // views that have a stream, by cluster name
}

// view is the data that all streams of one cluster, or of all clusters together, share.
type view struct {
	streams int
	last    frame
}

type file struct {
	kind string
	body []byte
}

// New returns a Page with this configuration.
func New(c Config) *Page {
	p := &Page{Config: c, files: map[string]file{}, views: map[string]*view{}}
	all, err := fs.ReadDir(assets, "assets")
	if err != nil {
		panic(err) // impossible: the files are in the binary
	}
	for _, f := range all {
		body, err := assets.ReadFile(path.Join("assets", f.Name()))
		if err != nil {
			panic(err) // impossible for the same reason
		}
		at := directory + f.Name()
		if f.Name() == "index.html" {
			at = root
		}
		p.files[at] = file{types[path.Ext(f.Name())], body}
	}
	return p
}

// types maps the extensions of the files to media types. The types of package mime depend on the
// machine.
var types = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
	".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// policy is the Content-Security-Policy. It allows only files and requests from the page's own origin.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// protect prevents other sites from embedding the page, reading a response, or controlling its window.
func protect(h http.Header) {
	for name, value := range map[string]string{
		"Content-Security-Policy": policy, "X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
		"Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
	} {
		h.Set(name, value)
	}
}

// ServeHTTP serves the page and its files.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	protect(w.Header())
	f, ok := p.files[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", f.kind)
	_, _ = w.Write(f.body) // fails only if the client disconnected
}
