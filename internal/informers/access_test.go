package informers

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/reconcile"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

func reviews(t *testing.T, config *rest.Config) authorizationclient.SelfSubjectAccessReviewInterface {
	t.Helper()
	client, err := authorizationclient.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client.SelfSubjectAccessReviews()
}

// access returns an Access that reviews the permissions of a configuration's user.
func access(t *testing.T, config *rest.Config) *discovery.Access {
	t.Helper()
	return discovery.NewAccess(reviews(t, config), nil, time.Now)
}

// TestAccessIsLost verifies in which cases denied access ends the informer of a namespace. The objects
// may be gone with the namespace and its Role.
func TestAccessIsLost(t *testing.T) {
	denied := controlplanetest.Reviews(func(authorizationv1.ResourceAttributes) (bool, error) { return false, nil })
	for name, c := range map[string]struct {
		namespaces []string
		err        error
		ends       bool
	}{
		"the watch works":                       {[]string{"default"}, nil, false},
		"the watch fails":                       {[]string{"default"}, pathNotFound(), false},
		"the watch is denied":                   {[]string{"default"}, forbiddenError("configmaps", ""), true},
		"the watch of all namespaces is denied": {nil, forbiddenError("configmaps", ""), false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, Config{Namespaces: discovery.NamespaceSelection{Include: c.namespaces}, Access: discovery.NewAccess(denied, nil, time.Now)}, testResource)
			b.sync()
			b.list(object("A", "1"))
			b.Acknowledged(testKey, live("A", "1"), object("A", "1"))
			i := b.informer(object("A", "1"))
			i.cancel = func() { close(i.stopped) }
			i.setFailing(c.err, time.Now())
			var running sync.WaitGroup
			b.align(t.Context(), b.watched, &running)
			v := b.DescribeObject(testKey)
			if v.Covered == c.ends || v.Denied != c.ends || (len(b.compared) > 0) != c.ends {
				t.Errorf("covered: %t, denied: %t, compared: %v", v.Covered, v.Denied, b.compared)
			}
			if v := b.Lookup(testKey); len(v.Tombstones) > 0 || b.ledger.DirtyLen() > 0 {
				t.Errorf("tombstones: %+v", v.Tombstones)
			}
		})
	}
}

// TestAccessIsLostToOneOfTwoNamespaces verifies that a resource does not count as synced, and that a
// comparison sees the denial, as soon as the informer of a namespace ends because access is denied.
// Otherwise a consistency point or the end of the first sync could ignore the objects in the namespace, and
// the comparison that the end of the informer requests could decide nothing about them.
func TestAccessIsLostToOneOfTwoNamespaces(t *testing.T) {
	denied := controlplanetest.Reviews(func(a authorizationv1.ResourceAttributes) (bool, error) { return a.Namespace == "other", nil })
	b := newBench(t, Config{
		Namespaces: discovery.NamespaceSelection{Include: []string{"default", "other"}}, Access: discovery.NewAccess(denied, nil, time.Now),
	}, testResource)
	b.sync()
	i := b.watched.informers.All()["default"]
	i.setFailing(forbiddenError("configmaps", ""), time.Now())
	var whileStopping, whenCompared bool
	i.cancel = func() { whileStopping = b.watched.synced(); close(i.stopped) }
	b.config.Compare = func(schema.GroupResource) { whenCompared = b.DescribeObject(testKey).Denied }
	var running sync.WaitGroup
	b.align(t.Context(), b.watched, &running)
	if b.watched.has("default") {
		t.Fatal("the informer did not end, so this test verifies nothing")
	}
	if whileStopping || !whenCompared {
		t.Errorf("synced while the informer stopped: %t; denied when compared: %t", whileStopping, whenCompared)
	}
}

// TestAskedFirst verifies that an access review finds denied resources without a refused list or
// watch. When access is granted, the informer starts without a restart.
func TestAskedFirst(t *testing.T) {
	cp := cluster.ControlPlane(t)
	namespace := controlplanetest.Namespace(t, cp)
	limits := configMaps
	limits.Resource = "limitranges"
	objects := newObjects(t, cp, limits, "LimitRange", namespace)
	one := objects.create("one", nil)
	r := start(t, cp.ConfigFor("reader"), Config{
		Selection: discovery.Selection{Include: []string{"limitranges"}}, Access: access(t, cp.ConfigFor("reader")),
	})
	poll.Try(t, "it is named", func(context.Context) error {
		for _, st := range r.Status() {
			if apierrors.IsForbidden(st.Failing) && strings.Contains(st.Failing.Error(), "may not list it in all namespaces") {
				return nil
			}
		}
		return fmt.Errorf("%+v", r.Status())
	})
	r.acknowledge(objects.key("gone"), live("G", "1"))
	if got, err := r.reconcile(t, limits.GroupResource()); got != (reconcile.Comparison{Waiting: 1}) || err != nil {
		t.Errorf("access denied: got %+v, error %v; want no conclusion", got, err)
	}
	r.mu.Lock()
	if len(r.completed) > 0 {
		t.Error("the first sync of a forbidden resource is complete")
	}
	r.mu.Unlock()
	allow(t, cp, "limitranges")
	poll.Try(t, "it is allowed", func(context.Context) error {
		return r.config.Access.Denied(t.Context(), event.Resource{Version: "v1", Resource: "limitranges", Namespaced: true}, "")
	})
	r.again(t)
	r.awaitView(t, "what was forbidden", objects.key("one"), one)
}
