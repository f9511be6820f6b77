package informers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/informers/health"
	"github.com/kuberelay/kuberelay/internal/references"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// TestDeniedForAMoment verifies that a working watch continues even if an access review denies access,
// and that the referenced objects stay selected.
func TestDeniedForAMoment(t *testing.T) {
	cp := cluster.ControlPlane(t)
	a, b := controlplanetest.Namespace(t, cp), controlplanetest.Namespace(t, cp)
	client, _ := clients(t, cp.Config())
	label(t, cp, a, "t"+a)
	accounts := configMaps
	accounts.Resource = "serviceaccounts"
	owner := owned(t, client, accounts, a, `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"owner"}}`)
	one := owned(t, client, configMaps, a, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one"}}`, owner)
	var deny atomic.Bool
	r := start(t, cp.Config(), Config{
		Selection: discovery.Selection{Include: []string{"configmaps"}}, Namespaces: discovery.NamespaceSelection{Selector: selector(t, "team=t"+a)}, Follow: []string{references.Owners},
		Access: discovery.NewAccess(controlplanetest.Reviews(func(x authorizationv1.ResourceAttributes) (bool, error) {
			return x.Resource != "*" && !(deny.Load() && x.Resource == "configmaps"), nil
		}), nil, time.Now),
	})
	ownerKey := event.Key{Resource: "serviceaccounts", Namespace: a, Name: "owner"}
	oneKey := event.Key{Resource: "configmaps", Namespace: a, Name: "one"}
	r.awaitView(t, "the owner", ownerKey, owner)
	r.awaitView(t, "what it owns", oneKey, one)
	r.acknowledge(ownerKey, ackedOf(owner))
	r.acknowledge(oneKey, ackedOf(one))
	deny.Store(true)
	label(t, cp, b, "t"+a)
	poll.Try(t, "the other namespace is denied", func(context.Context) error {
		for _, st := range r.Status() {
			if st.Namespace == b && st.Reason == "forbidden" {
				return nil
			}
		}
		return fmt.Errorf("%+v", r.Status())
	})
	if v := r.Lookup(oneKey); v.Live == nil || r.hasBeenBuried(ownerKey) {
		t.Errorf("got %+v, and the owner was deselected: %v", v, r.hasBeenBuried(ownerKey))
	}
}

// TestReviewsThatFail verifies that access is reviewed again after the API server refuses a watch
// of all namespaces, if the first reviews failed.
func TestReviewsThatFail(t *testing.T) {
	cp := cluster.ControlPlane(t)
	a, b := controlplanetest.Namespace(t, cp), controlplanetest.Namespace(t, cp)
	allow(t, cp, "namespaces")
	for _, namespace := range []string{a, b} {
		controlplanetest.AllowReader(t, cp, namespace, "endpoints")
		label(t, cp, namespace, "t"+a)
	}
	var fails atomic.Bool
	fails.Store(true)
	asks := reviews(t, cp.ConfigFor("reader"))
	r := newRunning(t, cp.ConfigFor("reader"), Config{
		Selection: discovery.Selection{Include: []string{"endpoints"}}, Namespaces: discovery.NamespaceSelection{Selector: selector(t, "team=t"+a), MaxSeparate: 1},
		Access: discovery.NewAccess(controlplanetest.Reviews(func(x authorizationv1.ResourceAttributes) (bool, error) {
			if fails.Load() {
				return false, errors.New("etcdserver: request timed out")
			}
			answer, err := asks.Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &x},
			}, metav1.CreateOptions{})
			return err == nil && answer.Status.Allowed, err
		}), nil, time.Now),
	})
	r.run(t)
	poll.Try(t, "the watch of all is refused", func(context.Context) error {
		if st := r.Status(); len(st) != 1 || st[0].Namespace != "" || st[0].Reason != "forbidden" {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
	fails.Store(false)
	r.again(t) // the Set also does this after ReviewInterval
	poll.Try(t, "each is watched", func(context.Context) error {
		st := r.Status()
		if len(st) != 2 || st[0].State != health.Synced || st[1].State != health.Synced {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
}

// TestNotListedIsNotDenied verifies that a resource that waits for the list of namespaces counts as
// not denied. Otherwise a failed review leads to separate watches of any number of namespaces.
func TestNotListedIsNotDenied(t *testing.T) {
	n := discovery.NewNamespaces(discovery.NamespaceSelection{Selector: selector(t, "team=a")})
	for _, failing := range []error{nil, errors.New("connection refused")} {
		_ = n.Fail(failing)
		w := &watched{}
		w.alignment.Store(&alignment{denied: map[string]denial{"": {err: n.Ready()}, "a": {err: errors.New("denied")}}})
		if got := w.coverage().Denied; len(got) != 1 || got["a"] == nil {
			t.Errorf("failing with %v: got %v", failing, got)
		}
	}
}

// TestNoAccessIsGrantedToADeselectedNamespace verifies that the log reports granted access only for a
// namespace that is watched, and not for a denied namespace that was removed.
func TestNoAccessIsGrantedToADeselectedNamespace(t *testing.T) {
	b := newBench(t, Config{Namespaces: discovery.NamespaceSelection{Include: []string{"watched"}}}, testResource)
	var log bytes.Buffer
	b.log = slog.New(slog.NewTextHandler(&log, nil))
	denied := denial{err: errors.New("denied")}
	b.watched.alignment.Store(&alignment{complete: true, denied: map[string]denial{"watched": denied, "removed": denied}})
	b.grant(b.watched, nil)
	if got := log.String(); strings.Count(got, "access granted") != 1 || !strings.Contains(got, "namespace=watched") || len(b.watched.alignment.Load().denied) > 0 {
		t.Errorf("got %s, still denied: %v", got, b.watched.alignment.Load().denied)
	}
}
