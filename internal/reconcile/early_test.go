package reconcile

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestADeleteIsNotInferredBeforeTheWatchHasComeToTheObject verifies that a leader infers no delete
// while its watch has not reached the version on the bus. In an earlier version, a new leader whose
// watch was behind the previous leader's events inferred a delete, and then its watch showed the
// object. The bus received a delete, a create and another delete.
func TestADeleteIsNotInferredBeforeTheWatchHasComeToTheObject(t *testing.T) {
	gone := func(gvr schema.GroupVersionResource, _, name string) (*unstructured.Unstructured, error) {
		return nil, apierrors.NewNotFound(gvr.GroupResource(), name)
	}
	another := func(schema.GroupVersionResource, string, string) (*unstructured.Unstructured, error) {
		o := &unstructured.Unstructured{}
		o.SetUID("B")
		o.SetResourceVersion("30")
		return o, nil
	}
	for name, c := range map[string]struct {
		get     func(schema.GroupVersionResource, string, string) (*unstructured.Unstructured, error)
		behind  bool
		present string // the current version in a list response; "" if no list is expected
		failure error
		want    finding
		uid     string // of the existing object
	}{
		"the watch has come to it":                 {gone, false, "", nil, isGone, ""},
		"it has not":                               {gone, true, "30", nil, isUnseen, ""},
		"it has not, and the name is taken":        {another, true, "30", nil, isUnseen, "B"},
		"it never will, since history went back":   {gone, true, "10", nil, isGone, ""},
		"it never will, and the name is taken":     {another, true, "10", nil, isGone, "B"}, // this UID can confirm the informer's state
		"it cannot be told":                        {gone, true, "", errors.New("timeout"), isUnknown, ""},
		"the name is taken, as the watch can tell": {another, false, "", nil, isGone, "B"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, stubCluster{get: c.get, list: func(schema.GroupVersionResource, string, metav1.ListOptions) (*unstructured.UnstructuredList, error) {
				list := &unstructured.UnstructuredList{}
				list.SetResourceVersion(c.present)
				return list, c.failure
			}})
			p := &pass{Comparer: b.Comparer, resource: testResource}
			got, err := p.readObject(t.Context(), pair{key: testKey, acked: live("A", "20")}, c.behind)
			if got.finding != c.want || got.uid != c.uid || !errors.Is(err, c.failure) {
				t.Errorf("got %+v, %v; want %v of %q, %v", got, err, c.want, c.uid, c.failure)
			}
		})
	}
}
