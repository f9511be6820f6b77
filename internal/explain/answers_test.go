package explain

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/discoverytest"
)

func TestExplainNamespaces(t *testing.T) {
	refuse := func(client *fake.FakeDynamicClient) {
		client.PrependReactor("list", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(discovery.NamespaceResource.GroupResource(), "", errors.New("no"))
		})
	}
	explain := func(n discovery.NamespaceSelection, existing []string, access controlplanetest.Reviews, change func(*fake.FakeDynamicClient)) Explanation {
		t.Helper()
		config, client := asked(discoverytest.Cluster(), existing, access)
		config.Selection, config.Namespaces = discovery.Selection{Include: []string{"pods"}}, n
		change(client)
		x, err := Explain(t.Context(), config, Question{})
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	as := func(*fake.FakeDynamicClient) {}

	x := explain(discovery.NamespaceSelection{}, nil, anything, as)
	if !x.Namespaces.All || x.Namespaces.Selected != nil {
		t.Errorf("all: got %+v", x.Namespaces)
	}
	x = explain(discovery.NamespaceSelection{Include: []string{"b", "a", "c"}, Exclude: []string{"c"}}, []string{"a:"}, anything, as)
	if fmt.Sprint(x.Namespaces.Selected, x.Namespaces.NotFound) != "[a b] [b]" {
		t.Errorf("a list: got %+v", x.Namespaces)
	}
	x = explain(discovery.NamespaceSelection{Include: []string{"b"}}, nil, anything, refuse)
	if len(x.Namespaces.NotFound) > 0 || x.Namespaces.Error != "" || told(x) != "pods=yes" {
		t.Errorf("named namespaces, and no permission to list namespaces: got %+v, %s", x.Namespaces, told(x))
	}
	x = explain(discovery.NamespaceSelection{Selector: labelSelector(t, "team")}, nil, anything, refuse)
	if !strings.Contains(x.Namespaces.Error, "forbidden") || told(x) != "pods=no:namespaces_unreadable" {
		t.Errorf("a label selector, and no permission to list namespaces: got %+v, %s", x.Namespaces, told(x))
	}
	x = explain(discovery.NamespaceSelection{Exclude: []string{"b"}}, nil, anything, refuse)
	if !strings.Contains(x.Namespaces.Error, "forbidden") || told(x) != "pods=yes" || !strings.Contains(x.Resources[0].ScopeDetail, "cannot be listed") {
		t.Errorf("an excluded namespace, and no permission to list namespaces: got %+v", x)
	}
	x = explain(discovery.NamespaceSelection{Selector: labelSelector(t, "team")}, []string{"a:x"}, func(a authorizationv1.ResourceAttributes) (bool, error) {
		return a.Resource == "pods" || a.Resource == "namespaces" && a.Verb == "list", nil
	}, as)
	if len(x.Warnings) != 1 || !strings.Contains(x.Warnings[0], "namespaces cannot be watched") {
		t.Errorf("permission to list, but not to watch namespaces: got %q", x.Warnings)
	}
}

func TestExplainWhatIsNotServed(t *testing.T) {
	config, _ := asked(discoverytest.Cluster().Failing("example.net/v1"), nil, anything)
	config.Selection = discovery.Selection{Include: []string{"gadgets.example.com", "*"}}
	for name, want := range map[string]string{
		"gadgets.example.org":       "the cluster does not serve it",
		"Gadgets.example.com":       "the cluster does not serve it; the forwarder will watch it when the cluster serves it",
		"gadgets":                   "the cluster does not serve it, unless in a group whose discovery fails",
		"things.example.net":        "discovery of its group fails: ",
		"pods/log":                  "a subresource is not watched by itself; ask for pods",
		"widgets.v9.example.com":    "it is not served in version v9, only in v1, v1alpha1",
		"deployments.v2.apps":       "it is not served in version v2, only in v1, v1beta1",
		"widgets.other.example.com": "the cluster does not serve it",
	} {
		x, err := Explain(t.Context(), config, Question{Only: []string{name}})
		if err != nil || len(x.NotServed) != 1 || x.NotServed[0].Asked != name || len(x.Resources) > 0 {
			t.Fatalf("%s: got %+v, error %v", name, x, err)
		}
		if got := x.NotServed[0].Detail; got != want && (!strings.HasSuffix(want, ": ") || !strings.HasPrefix(got, want)) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

// TestExplainTries verifies that Explain lists only requested resources, and reports a permitted
// list that fails.
func TestExplainTries(t *testing.T) {
	config, client := asked(discoverytest.Cluster(), nil, anything)
	config.Selection, config.FieldSelector = discovery.Selection{Include: []string{"pods"}}, "spec.color=red"
	tried := 0
	client.PrependReactor("list", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		tried++
		if got := a.(clienttesting.ListAction).GetListRestrictions().Fields.String(); got != "spec.color=red" {
			t.Errorf("tried with the fields %q", got)
		}
		return true, nil, apierrors.NewBadRequest("field label not supported: spec.color")
	})
	x, err := Explain(t.Context(), config, Question{})
	if err != nil || told(x) != "pods=yes" || tried > 0 {
		t.Errorf("got %s, error %v, tried %d times", told(x), err, tried)
	}
	x, err = Explain(t.Context(), config, Question{Only: []string{"po"}})
	if err != nil || told(x) != "pods=no:list_fails" || !strings.Contains(x.Resources[0].ListError, "field label not supported") {
		t.Errorf("got %s, error %v", told(x), err)
	}
}

// TestExplainCannotAsk verifies that Explain makes no claim without a response.
func TestExplainCannotAsk(t *testing.T) {
	down := errors.New("connection refused")
	config, _ := asked(discoverytest.Cluster(), nil, func(authorizationv1.ResourceAttributes) (bool, error) { return false, down })
	config.Selection = discovery.Selection{Include: []string{"*"}}
	if x, err := Explain(t.Context(), config, Question{}); !errors.Is(err, down) {
		t.Errorf("got %+v, error %v", x, err)
	}
	config.Reviews = controlplanetest.Reviews(func(authorizationv1.ResourceAttributes) (bool, error) {
		return false, apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no reviews"))
	})
	x, err := Explain(t.Context(), config, Question{})
	if err != nil || len(x.Warnings) != 1 || !strings.Contains(x.Warnings[0], "no reviews") {
		t.Errorf("reviews are forbidden: got %q, error %v", x.Warnings, err)
	}
	config.Discovery = discoverytest.Discovery{Err: down}
	if _, err := Explain(t.Context(), config, Question{}); !errors.Is(err, down) {
		t.Errorf("no discovery: error %v", err)
	}
	config.Discovery = discoverytest.Cluster()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Explain(ended, config, Question{}); !errors.Is(err, context.Canceled) {
		t.Errorf("ended: error %v", err)
	}
}

// TestExplainAsksOnce verifies that Explain asks each question once, however many resources exist.
func TestExplainAsksOnce(t *testing.T) {
	asking := map[string]int{}
	config, _ := asked(discoverytest.Cluster(), nil, anything)
	config.Reviews = controlplanetest.Reviews(func(a authorizationv1.ResourceAttributes) (bool, error) {
		asking[a.Verb+" "+a.Resource+"."+a.Group]++
		return a.Resource != "*", nil
	})
	config.Selection = discovery.Selection{Include: []string{"pods"}}
	if _, err := Explain(t.Context(), config, Question{}); err != nil {
		t.Fatal(err)
	}
	for question, n := range asking {
		if n != 1 {
			t.Errorf("%s: asked %d times", question, n)
		}
	}
	if asking["get pods."] != 1 || asking["list *.*"] != 1 {
		t.Errorf("got %v", asking)
	}
}
