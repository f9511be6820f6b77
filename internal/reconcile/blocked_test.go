package reconcile

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// views is a bench whose informers return a view for each key.
type views struct {
	*bench
	of map[event.Key]ObjectView
}

func (v views) DescribeObject(k event.Key) ObjectView { return v.of[k] }

// TestOneObjectDoesNotBlockTheOthers verifies that an object that can't be read, or that the watch has
// not reached, does not delay the decisions about objects in removed namespaces and about objects
// that are no longer selected. Before the fix, the comparison ended after the failed read.
func TestOneObjectDoesNotBlockTheOthers(t *testing.T) {
	object, removed, leaving := testResource.Key("a", "web"), testResource.Key("b", "web"), testResource.Key("c", "web")
	for name, forbidden := range map[string]bool{"forbidden": true, "behind": false} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, stubCluster{get: func(gvr schema.GroupVersionResource, _, name string) (*unstructured.Unstructured, error) {
				if gvr.Resource == testKey.Resource && forbidden {
					return nil, forbiddenError(gvr.Resource, name)
				}
				return nil, notFound()
			}, list: func(schema.GroupVersionResource, string, metav1.ListOptions) (*unstructured.UnstructuredList, error) {
				list := &unstructured.UnstructuredList{}
				list.SetResourceVersion("100")
				return list, nil
			}})
			inRemoved, unselected, late := b.object, b.object, b.object
			late.Version, inRemoved.NamespaceExists, unselected.Selected, unselected.PublishDeselected = "4", false, false, true
			b.Informers = views{b, map[event.Key]ObjectView{object: late, removed: inRemoved, leaving: unselected}}
			_, err := b.Confirm(t.Context(), testResource.GroupResource(), acked(map[event.Key]event.Acked{
				object: live("A", "50"), removed: live("B", "2"), leaving: live("C", "2"),
			}))
			if err == nil || len(b.tombstones[object]) > 0 {
				t.Errorf("got %v and %d tombstones of the object that blocks", err, len(b.tombstones[object]))
			}
			if len(b.tombstones[removed]) != 1 || len(b.tombstones[leaving]) != 1 {
				t.Errorf("%d tombstones in the removed namespace and %d of the object that is no longer selected, want one each", len(b.tombstones[removed]), len(b.tombstones[leaving]))
			}
		})
	}
}
