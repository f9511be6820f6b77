package informers

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/informers/health"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
)

// configMapsThrough returns a configuration that passes every response about ConfigMaps, with its
// request, to a function that can change it.
func configMapsThrough(config *rest.Config, change func(*http.Request, *http.Response)) *rest.Config {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return controlplanetest.RoundTripper(func(r *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			if err == nil && strings.HasSuffix(r.URL.Path, "/configmaps") {
				change(r, response)
			}
			return response, err
		})
	})
	return config
}

// broken is a response body that is corrupted at the first occurrence of a text.
type broken struct {
	io.ReadCloser
	at     []byte
	with   string
	err    error // the error after the corruption; nil to continue with the rest of the body
	broke  *atomic.Bool
	before []byte // bytes that were read but not returned yet
	after  io.Reader
}

func (b *broken) Read(p []byte) (int, error) {
	if b.after != nil {
		return b.after.Read(p)
	}
	for {
		if i := bytes.Index(b.before, b.at); i >= 0 {
			b.broke.Store(true)
			rest := io.MultiReader(bytes.NewReader(b.before[i+len(b.at):]), b.ReadCloser)
			if b.err != nil {
				rest = errReader{b.err}
			}
			b.after = io.MultiReader(bytes.NewReader(b.before[:i]), strings.NewReader(b.with), rest)
			return b.after.Read(p)
		}
		if n := bytes.LastIndexByte(b.before, '\n') + 1; n > 0 {
			n = copy(p, b.before[:n])
			b.before = b.before[n:]
			return n, nil
		}
		piece := make([]byte, 4096)
		n, err := b.ReadCloser.Read(piece)
		b.before = append(b.before, piece[:n]...)
		if n == 0 && err != nil {
			return 0, err
		}
	}
}

type errReader struct{ err error }

func (e errReader) Read([]byte) (int, error) { return 0, e.err }

// TestAWatchThatIsBroken verifies that a corrupted watch never shows an object that the cluster
// does not have. The failure is reported, and the next list shows the existing objects.
func TestAWatchThatIsBroken(t *testing.T) {
	cp := cluster.ControlPlane(t)
	for name, fault := range map[string]broken{
		"not JSON":              {at: []byte(`"uid":`), with: `"uid" `},
		"a name twice":          {at: []byte(`"name":"broken"`), with: `"name":"broken","name":"other"`},
		"cut off":               {at: []byte(`"name":"broken"`), with: `"name":"bro`, err: io.EOF},
		"cut off by a reset":    {at: []byte(`"name":"broken"`), with: `"name":"bro`, err: errors.New("connection reset by peer")},
		"an event of no type":   {at: []byte(`"type":"ADDED"`), with: `"type":"PATCHED"`},
		"longer than it may be": {at: []byte(`"name":"broken"`), with: `"x":"` + strings.Repeat("x", 17<<20) + `","name":"broken"`},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := controlplanetest.Namespace(t, cp)
			o := newObjects(t, cp, configMaps, "ConfigMap", namespace)
			first := o.create("first", nil)
			var armed, broke atomic.Bool
			config := configMapsThrough(cp.Config(), func(r *http.Request, response *http.Response) {
				if r.URL.Query().Get("watch") == "true" {
					f := fault
					f.ReadCloser, f.broke = response.Body, &broke
					response.Body = &onceArmed{ReadCloser: response.Body, broken: &f, armed: &armed}
				}
			})
			r := start(t, config, Config{Selection: discovery.Selection{Include: []string{"configmaps"}}, Namespaces: discovery.NamespaceSelection{Include: []string{namespace}}})
			r.awaitView(t, "first", o.key("first"), first)
			armed.Store(true)
			second := o.create("broken", nil)
			r.awaitView(t, "what was broken on its way", o.key("broken"), second)
			if !broke.Load() {
				t.Error("nothing was broken")
			}
			third := o.create("third", nil)
			r.awaitView(t, "what came after it", o.key("third"), third)
			r.mu.Lock()
			defer r.mu.Unlock()
			for k, v := range r.views {
				if k.Namespace == namespace && k.Name != "kube-root-ca.crt" && k != o.key("first") && k != o.key("broken") && k != o.key("third") || len(v.Tombstones) > 0 {
					t.Errorf("%s was shown as %s", k, describeView(v))
				}
			}
		})
	}
}

// onceArmed returns a response body unchanged until it is armed. Then it corrupts the body of the
// first watch that reads, and of no other watch.
type onceArmed struct {
	io.ReadCloser
	broken *broken
	armed  *atomic.Bool
	mine   bool
}

func (o *onceArmed) Read(p []byte) (int, error) {
	if o.mine {
		return o.broken.Read(p)
	}
	n, err := o.ReadCloser.Read(p)
	if n > 0 && o.armed.CompareAndSwap(true, false) {
		o.mine = true
		o.broken.before = append([]byte(nil), p[:n]...)
		return o.broken.Read(p)
	}
	return n, err
}

// refuseWatchList changes the response to a WatchList request as if the API server did not support
// WatchList. It reports whether the request was one.
func refuseWatchList(r *http.Request, response *http.Response) bool {
	if r.URL.Query().Get("sendInitialEvents") == "" {
		return false
	}
	response.Body.Close()
	response.StatusCode = http.StatusUnprocessableEntity
	response.Body = io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422,"message":"sendInitialEvents is forbidden"}`))
	return true
}

// TestAServerWithoutWatchList verifies that an informer lists in pages if the server does not support
// WatchList, and shows the same objects. Until the list is complete, the informer is starting. An earlier
// version reported that its watch failed, and took the owners in the list for missing.
func TestAServerWithoutWatchList(t *testing.T) {
	cp := cluster.ControlPlane(t)
	namespace := controlplanetest.Namespace(t, cp)
	o := newObjects(t, cp, configMaps, "ConfigMap", namespace)
	one, two := o.create("one", map[string]string{"a": "b"}), o.create("two", nil)
	selection := Config{Selection: discovery.Selection{Include: []string{"configmaps"}}, Namespaces: discovery.NamespaceSelection{Include: []string{namespace}}}
	streamed := start(t, cp.Config(), selection)
	streamed.awaitView(t, "streamed", o.key("one"), one)
	var lists atomic.Int32
	var listed *running
	listed = newRunning(t, configMapsThrough(cp.Config(), func(r *http.Request, response *http.Response) {
		if q := r.URL.Query(); !refuseWatchList(r, response) && q.Get("watch") == "" {
			lists.Add(1)
			if all := listed.Status(); len(all) != 1 || all[0].State != health.Starting {
				t.Errorf("during the list, the status is %+v", all)
			}
		}
	}), selection)
	listed.run(t)
	listed.awaitView(t, "listed", o.key("one"), one)
	listed.awaitView(t, "listed", o.key("two"), two)
	if lists.Load() == 0 {
		t.Error("nothing was listed")
	}
	for _, k := range []string{"one", "two"} {
		streamed.await(t, "streamed", func() bool { return streamed.views[o.key(k)].Live != nil })
		got, want := bodyOf(t, listed.view(o.key(k)).Live), bodyOf(t, streamed.view(o.key(k)).Live)
		if got != want || !strings.HasPrefix(got, `{"kind":"ConfigMap","apiVersion":"v1",`) || strings.Contains(got, "managedFields") {
			t.Errorf("listed:\n%s\nstreamed:\n%s", got, want)
		}
	}
	changed := o.create("three", nil)
	listed.awaitView(t, "watched", o.key("three"), changed)
}

// TestTheFirstListOfANewEpoch verifies that the first list in a new epoch is a consistent read if the
// API server does not support WatchList. In a new epoch, a state of any version counts as later than
// the bus. An earlier version published the old states of a watch cache that was behind.
func TestTheFirstListOfANewEpoch(t *testing.T) {
	cp := cluster.ControlPlane(t)
	namespace := controlplanetest.Namespace(t, cp)
	o := newObjects(t, cp, configMaps, "ConfigMap", namespace)
	one := o.create("one", nil)
	var mu sync.Mutex
	var versions []string // of the lists since the last call of listed
	listed := func() []string {
		mu.Lock()
		defer mu.Unlock()
		was := versions
		versions = nil
		return was
	}
	r := start(t, configMapsThrough(cp.Config(), func(r *http.Request, response *http.Response) {
		if q := r.URL.Query(); !refuseWatchList(r, response) && q.Get("watch") == "" {
			mu.Lock()
			defer mu.Unlock()
			versions = append(versions, q.Get("resourceVersion"))
		}
	}), Config{Selection: discovery.Selection{Include: []string{"configmaps"}}, Namespaces: discovery.NamespaceSelection{Include: []string{namespace}}})
	r.awaitView(t, "first epoch", o.key("one"), one)
	if got := listed(); len(got) == 0 || got[0] != "0" {
		t.Errorf("the first epoch began with lists at versions %q, want 0 first, because it is cheap", got)
	}
	r.RaiseEpoch(configMaps.GroupResource(), 1)
	r.await(t, "second epoch", func() bool { v := r.views[o.key("one")]; return v.Epoch == 1 && v.Live != nil })
	if got := listed(); !slices.Contains(got, "") || slices.Contains(got, "0") {
		t.Errorf("the second epoch began with lists at versions %q, want a consistent read", got)
	}
}
