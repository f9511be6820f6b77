package discovery

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/internal/apistream"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// TestRedefinition verifies that a redefinition concerns exactly the resources that the API server
// may serve differently.
func TestRedefinition(t *testing.T) {
	state := func(name, uid, version string, generation int64) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), ResourceVersion: version, Generation: generation}}
	}
	widgets := event.Resource{Group: "example.com", Version: "v1", Resource: "widgets", Kind: "Widget", Namespaced: true}
	for name, c := range map[string]struct {
		of     schema.GroupVersionResource
		old, o any
		want   bool
	}{
		"another schema":                   {DefinitionResource, state("widgets.example.com", "A", "1", 1), state("widgets.example.com", "A", "2", 2), true},
		"made anew":                        {DefinitionResource, state("widgets.example.com", "A", "1", 1), state("widgets.example.com", "B", "2", 1), true},
		"another status":                   {DefinitionResource, state("widgets.example.com", "A", "1", 1), state("widgets.example.com", "A", "2", 1), false},
		"another definition":               {DefinitionResource, state("gadgets.example.com", "A", "1", 1), state("gadgets.example.com", "A", "2", 2), false},
		"of another group":                 {DefinitionResource, state("widgets.example.org", "A", "1", 1), state("widgets.example.org", "A", "2", 2), false},
		"an APIService":                    {APIServiceResource, state("v1.example.com", "A", "1", 0), state("v1.example.com", "A", "2", 0), true},
		"a resync of an APIService":        {APIServiceResource, state("v1.example.com", "A", "1", 0), state("v1.example.com", "A", "1", 0), false},
		"an APIService of another version": {APIServiceResource, state("v2.example.com", "A", "1", 0), state("v2.example.com", "A", "2", 0), false},
	} {
		t.Run(name, func(t *testing.T) {
			r, ok := redefinition(c.of, c.old, c.o)
			if got := ok && r.Concerns(widgets); got != c.want {
				t.Errorf("listed again: %v, want %v", got, c.want)
			}
		})
	}
}

// TestAnAPIServiceIsReplaced verifies that an APIService that is deleted and created again redefines its
// resources. The new APIService may point to another API server, while open watches still read from the
// former one. The first list redefines nothing.
func TestAnAPIServiceIsReplaced(t *testing.T) {
	const item = `{"metadata":{"name":"v1.%s","uid":%q,"resourceVersion":%q}}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		of := path.Base(q.URL.Path) == APIServiceResource.Resource
		w.Header().Set("Content-Type", "application/json")
		switch query := q.URL.Query(); {
		case query.Get("sendInitialEvents") != "":
			w.WriteHeader(http.StatusUnprocessableEntity) // the client lists instead
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
		case query.Get("watch") != "":
			if of {
				_, _ = fmt.Fprintf(w, `{"type":"DELETED","object":`+item+"}\n", "example.com", "A", "2")
				_, _ = fmt.Fprintf(w, `{"type":"ADDED","object":`+item+"}\n", "example.com", "B", "3")
				_, _ = fmt.Fprintf(w, `{"type":"ADDED","object":`+item+"}\n", "last.example.com", "Z", "4")
			}
			w.(http.Flusher).Flush()
			<-q.Context().Done()
		default:
			items := ""
			if of {
				items = fmt.Sprintf(item, "example.com", "A", "1")
			}
			_, _ = io.WriteString(w, `{"metadata":{"resourceVersion":"1"},"items":[`+items+`]}`)
		}
	}))
	t.Cleanup(server.Close)
	_, redefined := watchDefinitions(t, server.URL)
	for _, group := range []string{"example.com", "last.example.com"} {
		if got := <-redefined; got != (Redefinition{Group: group, Version: "v1"}) {
			t.Errorf("got %+v, want all of v1 of %s", got, group)
		}
	}
}

// watchDefinitions watches the definitions of an API server. It returns the redefinitions in a channel.
func watchDefinitions(t *testing.T, host string) (*Definitions, <-chan Redefinition) {
	t.Helper()
	config := &rest.Config{Host: host}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	streams, err := apistream.New(config)
	if err != nil {
		t.Fatal(err)
	}
	redefined := make(chan Redefinition, 9)
	d := Watcher{Dynamic: client, Streams: streams, Logger: slog.New(slog.DiscardHandler)}.WatchDefinitions(t.Context(), func(r Redefinition) { redefined <- r })
	t.Cleanup(d.Wait)
	return d, redefined
}

// TestNotWatchedWhileTheConnectionIsRefused verifies that the definitions count as not watched while their watches
// cannot be opened again. client-go does not report a refused connection.
func TestNotWatchedWhileTheConnectionIsRefused(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if q.URL.Query().Get("watch") == "" {
			_, _ = io.WriteString(w, `{"metadata":{"resourceVersion":"1"},"items":[]}`)
			return
		}
		if q.URL.Query().Get("sendInitialEvents") != "" {
			_, _ = io.WriteString(w, `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1","annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n")
		}
		_, _ = io.WriteString(w, `{"type":"ADDED","object":{"metadata":{"name":"v1.example.com","uid":"A","resourceVersion":"2"}}}`+"\n")
		w.(http.Flusher).Flush()
		<-q.Context().Done()
	}))
	d, redefined := watchDefinitions(t, server.URL)
	for range 2 { // client-go reports a watch that ends early, unless the watch has received an event
		<-redefined
	}
	poll.Holds(t, "watched", d.IsWatched)
	_ = server.Listener.Close()
	server.CloseClientConnections()
	poll.Holds(t, "not watched", func() bool { return !d.IsWatched() })
}
