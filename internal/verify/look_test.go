package verify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/subject"
	"github.com/kuberelay/kuberelay/internal/publish/nats"
	natsreader "github.com/kuberelay/kuberelay/internal/publish/nats/reader"
	"github.com/kuberelay/kuberelay/internal/verify/replica"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// TestCouldNotLook verifies that if verify can't read something, it returns an error and a report that
// is not clean.
func TestCouldNotLook(t *testing.T) {
	nowhere := "127.0.0.1:" + strconv.Itoa(natstest.FreePort(t))
	for _, tc := range []struct {
		name  string
		spoil func(w *world)
		want  string
	}{
		{"no API server", func(w *world) { w.opts.Kube.Host = "https://" + nowhere }, "refused"},
		{"no name for the cluster", func(w *world) {
			w.opts.NATS.Cluster = ""
			w.opts.Kube = testCluster.ControlPlane(w.t).ConfigFor("little")
		}, "read the cluster's name: "},
		{"wrong token", func(w *world) { w.opts.Kube.BearerToken = "wrong" }, "Unauthorized"},
		{"no bus", func(w *world) { w.opts.NATS.URLs = []string{"nats://" + nowhere} }, "open the bus: it does not respond: not connected to nats://" + nowhere},
		{"malformed URL of the bus", func(w *world) { w.opts.NATS.URLs = []string{"http://x"} }, "KUBERELAY_NATS_URL"},
		{"no stream", func(w *world) { w.opts.NATS.Stream = "OTHER" }, natsreader.ErrStreamMissing.Error()},
		{"forbidden", func(w *world) { w.opts.Kube = testCluster.ControlPlane(w.t).ConfigFor("little") }, "configmaps is forbidden"},
		{"label selector that is none", func(w *world) { w.opts.LabelSelector = "a in" }, "unable to parse"},
		{"field that is none", func(w *world) { w.opts.FieldSelector = "spec.color=red" }, "not a known field selector"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.publish(event.Created, configMaps, w.create(configMaps, "a", nil))
			tc.spoil(w)
			r, err := w.verify()
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %+v, %v, want an error with %q", r, err, tc.want)
			}
			if len(r.Unlisted) == 0 && r.Objects != 0 {
				t.Errorf("got %+v with %v", r, err)
			}
		})
	}
}

// TestBusGone verifies that the loss of the bus while verify reads it does not count as the end of
// the bus.
func TestBusGone(t *testing.T) {
	w := newWorld(t)
	w.create(configMaps, "a", nil)
	ctx, cancel := context.WithCancel(t.Context()) // not a deadline, because a request without a response would wait for it
	defer time.AfterFunc(limit, cancel).Stop()
	w.opts.Settle = 10 * limit
	w.opts.NATS.AckTimeout = time.Second
	w.opts.Logger = logger(func(message string) {
		if message == "waiting for events in flight" {
			w.server.Stop()
		}
	})
	if r, err := Run(ctx, w.opts); err == nil || ctx.Err() != nil {
		t.Errorf("got %+v, %v", r, err)
	}
}

// TestStreamReplaced verifies that a run fails if the stream is recreated, because the messages
// read so far are then invalid. Positions start over, or continue above those of the removed stream,
// as on a stream that a forwarder creates.
func TestStreamReplaced(t *testing.T) {
	for name, above := range map[string]uint64{"start over": 0, "continue": 1_000_000} {
		t.Run(name, func(t *testing.T) { testStreamReplaced(t, above) })
	}
}

func testStreamReplaced(t *testing.T, above uint64) {
	w := newWorld(t)
	a := w.create(configMaps, "a", nil)
	w.create(configMaps, "b", nil)
	w.publish(event.Created, configMaps, a)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	w.opts.Settle = 10 * limit
	replaced := false
	w.opts.Logger = logger(func(message string) {
		if message != "waiting for events in flight" || replaced {
			return
		}
		replaced = true
		s, err := w.js.Stream(ctx, "KUBERELAY")
		if err == nil {
			err = w.js.DeleteStream(ctx, "KUBERELAY")
		}
		config := s.CachedInfo().Config
		config.FirstSeq += above
		if err == nil {
			_, err = w.js.CreateStream(ctx, config)
			// A busy server can refuse while it removes the files of the deleted stream.
			const createFailed = 10049 // JSStreamCreateErrF of the server
			for api := new(jetstream.APIError); errors.As(err, &api) && api.ErrorCode == createFailed; {
				_, err = w.js.CreateStream(ctx, config)
			}
		}
		if err == nil {
			_, err = w.js.Publish(ctx, subject.Object("kuberelay", clusterName, configMaps.Key("x", "y")), nil)
		}
		if err != nil {
			t.Error(err)
		}
	})
	if r, err := Run(ctx, w.opts); err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), replica.ErrChanged.Error()) {
		t.Errorf("got %+v, %v", r, err)
	}
}

// TestPartlyForbidden verifies that the report covers everything that could be read if RBAC forbids
// a part.
func TestPartlyForbidden(t *testing.T) {
	w := newWorld(t)
	w.create(configMaps, "a", nil)
	role := w.create(roles, "reader", map[string]any{"rules": []any{map[string]any{
		"apiGroups": []any{""}, "resources": []any{"configmaps"}, "verbs": []any{"list"},
	}}})
	w.create(event.Resource{Group: roles.Group, Version: "v1", Resource: "rolebindings", Kind: "RoleBinding"}, "reader", map[string]any{
		"roleRef":  map[string]any{"apiGroup": roles.Group, "kind": "Role", "name": role.GetName()},
		"subjects": []any{map[string]any{"apiGroup": roles.Group, "kind": "User", "name": "little"}},
	})
	w.opts.Kube = testCluster.ControlPlane(t).ConfigFor("little")
	w.opts.Resources = []string{"configmaps", "roles"}
	poll.Holds(t, "the role is known", func() bool {
		r, err := w.verify()
		return err != nil && len(r.Unlisted) == 1 && r.Unlisted[0].Resource == "roles.rbac.authorization.k8s.io in "+w.namespace &&
			len(r.Problems) == 1 && r.Problems[0].Name == "a" && !r.Clean()
	})
}

// TestForbiddenWithoutNamespaces verifies that a cluster-scoped resource counts as not read if the API
// server refuses its list. Before the fix, verify listed such a resource in the selected namespaces, and
// reported that it is not served. If no namespace was selected, verify reported nothing.
func TestForbiddenWithoutNamespaces(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"one namespace": func(*Options) {},
		"no namespace":  func(o *Options) { o.ExcludeNamespaces = o.Namespaces },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.opts.Kube.Wrap(func(rt http.RoundTripper) http.RoundTripper {
				return roundTripper(func(r *http.Request) (*http.Response, error) {
					if !strings.HasSuffix(r.URL.Path, "/v1/clusterroles") {
						return rt.RoundTrip(r)
					}
					body := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"no access","code":403}`
					return &http.Response{
						StatusCode: http.StatusForbidden, Request: r, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)),
					}, nil
				})
			})
			w.opts.Resources = []string{"clusterroles"}
			change(&w.opts)
			if r, err := w.verify(); err == nil || len(r.Unlisted) != 1 || !strings.Contains(r.Unlisted[0].Reason, "no access") {
				t.Errorf("got %+v, %v", r, err)
			}
		})
	}
}

// TestStructured verifies that verify reads events in structured mode.
func TestStructured(t *testing.T) {
	w := newWorld(t)
	o := nats.Options{Connection: nats.Connection{URLs: w.opts.NATS.URLs, Cluster: clusterName}, History: busDepth, ContentMode: nats.Structured}
	bus, err := nats.Connect(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bus.Close() })
	w.ready(bus)
	w.bus = bus
	a := w.create(configMaps, "a", map[string]any{"data": map[string]any{"k": "<é>"}})
	w.publish(event.Created, configMaps, a)
	w.publish(event.Updated, configMaps, w.touch(a))
	b := w.create(configMaps, "b", nil)
	w.publish(event.Created, configMaps, b, func(c *event.Change) { c.Truncated = true })
	c := w.create(configMaps, "c", nil)
	w.publish(event.Created, configMaps, c)
	w.delete(configMaps, "c")
	w.publish(event.Deleted, configMaps, c)
	want(t, w.found())
	w.publish(event.Updated, configMaps, w.touch(b), body(func(t tree) { t["data"] = tree{"k": "other"} }))
	want(t, w.found(), "different b: same version, other data: data (only on the bus)")
}

// TestSecrets verifies that verify compares the values of Secrets if it has the redaction key, and
// otherwise only the names of the values.
func TestSecrets(t *testing.T) {
	w := newWorld(t)
	w.opts.Resources = []string{"secrets"}
	s := w.create(secrets, "s", map[string]any{"stringData": map[string]any{"password": "hunter2"}})
	w.publish(event.Created, secrets, s)
	want(t, w.found())
	w.opts.RedactionKey = redactionKey
	want(t, w.found())
	w.opts.RedactionKey = []byte("another key")
	want(t, w.found(), "different s: same version, other data: data.password")
	w.publish(event.Updated, secrets, w.update(secrets, s, func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"a": "b"}) }),
		body(func(t tree) { t["data"].(tree)["password"] = "aHVudGVyMg==" }))
	w.opts.RedactionKey = nil
	got := w.found()
	want(t, got, "different s: same version, other data: data.password", "malformed s: a value of the Secret is not redacted")
	if strings.Contains(fmt.Sprint(got), "hunter2") || strings.Contains(fmt.Sprint(got), "aHVudGVyMg") {
		t.Errorf("%q shows it", got)
	}
}

// TestSecretsInChanges verifies that verify finds the value or an annotation of a Secret in the
// previous state that an event has. Before the fix, it looked for values in the object only.
func TestSecretsInChanges(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*event.Change) // of the first event
		want   []string
	}{
		"a hash":        {func(*event.Change) {}, nil},
		"a value":       {body(func(t tree) { t["data"].(tree)["password"] = "aHVudGVyMg==" }), []string{"malformed s: a value of the Secret is not redacted"}},
		"an annotation": {body(func(t tree) { t["metadata"].(tree)["annotations"] = tree{"copy": "aHVudGVyMg=="} }), []string{"malformed s: a value of the Secret is not redacted"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.builder.Data = event.DataChange
			w.opts.Resources = []string{"secrets"}
			s := w.create(secrets, "s", map[string]any{"stringData": map[string]any{"password": "hunter2"}})
			var first event.Change
			w.publish(event.Created, secrets, s, func(c *event.Change) { first = *c })
			tc.change(&first)
			s = w.update(secrets, s, func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"a": "b"}) })
			w.publish(event.Updated, secrets, s, func(c *event.Change) { c.Before = first.Object })
			got := w.found()
			want(t, got, tc.want...)
			if strings.Contains(fmt.Sprint(got), "aHVudGVyMg") {
				t.Errorf("%q shows it", got)
			}
		})
	}
}

// TestReadOnly verifies that a run does not change the bus.
func TestReadOnly(t *testing.T) {
	w := newWorld(t)
	w.publish(event.Created, configMaps, w.create(configMaps, "a", nil))
	state := func() jetstream.StreamInfo {
		s, err := w.js.Stream(t.Context(), "KUBERELAY")
		if err != nil {
			t.Fatal(err)
		}
		return *s.CachedInfo()
	}
	before := state()
	want(t, w.found())
	after := state()
	if fmt.Sprint(before.Config) != fmt.Sprint(after.Config) || before.State.LastSeq != after.State.LastSeq || after.State.Consumers > 1 {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

// TestHangingAPIServer verifies that a server that accepts connections and does not respond blocks
// verify only until the timeout.
func TestHangingAPIServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	w := newWorld(t)
	w.opts.Kube.Host, w.opts.Kube.Timeout = "https://"+l.Addr().String(), 100*time.Millisecond
	if r, err := w.verify(); err == nil {
		t.Errorf("got %+v", r)
	}
}
