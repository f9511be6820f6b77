package informers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/explain"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// TestExplainAgreesWithASet verifies that explain describes what a Set with the same configuration
// does, for a user with only some of the permissions.
func TestExplainAgreesWithASet(t *testing.T) {
	cp := cluster.ControlPlane(t)
	in, out := controlplanetest.Namespace(t, cp), controlplanetest.Namespace(t, cp)
	allow(t, cp, "resourcequotas")
	controlplanetest.AllowReader(t, cp, in, "endpoints")
	config := explain.Config{
		Selection: discovery.Selection{
			Include: []string{"ep", "quota", "replicationcontrollers", "nodes", "*.apps", "bindings", "nonesuch"}, Exclude: []string{"deploy", "ds"},
		},
		Namespaces: discovery.NamespaceSelection{Include: []string{in, out}}, Reviews: reviews(t, cp.ConfigFor("reader")),
	}
	var x explain.Explanation
	poll.Try(t, "it is allowed", func(context.Context) (err error) {
		asking := config
		asking.Dynamic, asking.Discovery = clients(t, cp.ConfigFor("reader"))
		if x, err = explain.Explain(t.Context(), asking, explain.Question{}); err != nil {
			return err
		}
		got := told(x)
		for _, want := range []string{"endpoints=partly:forbidden", "resourcequotas=yes", "replicationcontrollers=no:forbidden", "nodes=no:forbidden", "deployments.apps=no:excluded", "statefulsets.apps=no:forbidden", "bindings=no:not_watchable"} {
			if !strings.Contains(got, want) {
				return fmt.Errorf("got %s, want %s", got, want)
			}
		}
		return nil
	})
	// Collect each watch, and each watch that is missing because access is denied.
	var want []string
	for _, e := range x.Resources {
		for _, namespace := range e.Namespaces {
			want = append(want, e.Name+" in "+namespace)
		}
		for _, f := range e.Forbidden {
			want = append(want, e.Name+" not in "+f.Namespace)
		}
	}
	slices.Sort(want)
	r := start(t, cp.ConfigFor("reader"), Config{
		Selection: config.Selection, Namespaces: config.Namespaces, Access: discovery.NewAccess(config.Reviews, nil, time.Now),
	})
	poll.Try(t, "the set does what was explained", func(context.Context) error {
		var got []string
		for _, st := range r.Status() {
			not := ""
			if apierrors.IsForbidden(st.Failing) {
				not = "not "
			}
			got = append(got, fmt.Sprintf("%s %sin %s", st.Resource.GroupResource(), not, st.Namespace))
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Errorf("the Set has\n%q, Explain returned\n%q", got, want)
		}
		return nil
	})
}

// told formats each resource as "pods=yes" or "pods=no:reason".
func told(x explain.Explanation) string {
	var words []string
	for _, r := range x.Resources {
		word := r.Name + "=" + string(r.Watched)
		if r.Reason != "" {
			word += ":" + string(r.Reason)
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}
