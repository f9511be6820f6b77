package informers

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
)

// upgraded is an API server that can report another build. It counts lists of ConfigMaps.
type upgraded struct {
	http.RoundTripper
	build atomic.Int32
	lists atomic.Int32
}

func (u *upgraded) RoundTrip(r *http.Request) (*http.Response, error) {
	q := r.URL.Query()
	if strings.HasSuffix(r.URL.Path, "/configmaps") && q.Get("resourceVersionMatch") != string(metav1.ResourceVersionMatchExact) &&
		(q.Get("watch") == "" || q.Get("sendInitialEvents") == "true") {
		u.lists.Add(1)
	}
	answer, err := u.RoundTripper.RoundTrip(r)
	if err == nil && r.URL.Path == "/version" {
		_ = answer.Body.Close()
		answer.Body = io.NopCloser(bytes.NewBufferString(fmt.Sprintf(`{"gitVersion":"v1.%d"}`, u.build.Load())))
		answer.ContentLength = -1
		answer.Header.Del("Content-Length")
	}
	return answer, err
}

// TestAnotherBuildIsReasonToList verifies that an informer lists again if the API server has
// another build, which may serve unchanged objects differently. A cut connection alone does not
// cause a list.
func TestAnotherBuildIsReasonToList(t *testing.T) {
	cp := cluster.ControlPlane(t)
	o := newObjects(t, cp, configMaps, "ConfigMap", controlplanetest.Namespace(t, cp))
	web := o.create("web", nil)
	var g gate
	u := &upgraded{}
	config := g.through(cp.Config())
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { u.RoundTripper = rt; return u })
	r := start(t, config, Config{Selection: discovery.Selection{Include: []string{"configmaps"}}, Namespaces: discovery.NamespaceSelection{Include: []string{o.namespace}}})
	r.awaitView(t, "listed", o.key("web"), web)
	again := func(what string) int32 {
		web = o.touch(web, nil)
		r.awaitView(t, what, o.key("web"), web)
		return u.lists.Load()
	}
	listed := again("changed") // this change can prove the history from here on
	cut := func(what string) int32 { g.set(true); g.set(false); return again(what) }
	if n := cut("after a cut"); n != listed {
		t.Errorf("%d lists after a cut, want %d", n, listed)
	}
	u.build.Store(1)
	if n := cut("after an upgrade"); n == listed {
		t.Errorf("%d lists after an upgrade, want another", n)
	}
	again("and goes on")
	listed = u.lists.Load()
	if n := cut("after another cut"); n != listed {
		t.Errorf("%d lists after another cut, want %d", n, listed)
	}
}
