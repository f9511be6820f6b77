package reconcile

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// TestReadNamespace verifies the decisions about an object whose namespace does not match or does not
// exist according to the watch of namespaces. The watch can be behind, and another writer that has seen
// matching labels may have published the object. An earlier version then published a deselected event or
// a delete of a selected object.
func TestReadNamespace(t *testing.T) {
	unselected := func(v *ObjectView) { v.Selected, v.UnselectedByLabels, v.PublishDeselected = false, true, true }
	stays := func(v *ObjectView) { unselected(v); v.PublishDeselected = false }
	shown := func(v *ObjectView) { unselected(v); v.Live = object("A", "5") }
	removed := func(v *ObjectView) { unselected(v); v.NamespaceExists = false }
	excluded := func(v *ObjectView) { v.NamespaceExists = false } // all namespaces except a few are selected
	denied := func(v *ObjectView) { v.Covered, v.Synced, v.Denied = false, false, true }
	selectedAgain := func(v *ObjectView) { v.Selected, v.UnselectedByLabels, v.PublishDeselected = true, false, false }
	unreferenced := func(v *ObjectView) { v.Selected = false }
	fails := forbiddenError("namespaces", "default")
	for name, c := range map[string]struct {
		view       func(*ObjectView)
		during     func(*ObjectView) // changes the view while the namespace is read
		acked      event.Acked
		labels     map[string]string // nil if the namespace does not exist
		err        error
		want       Comparison
		unread     bool // the namespace is not read
		unselected bool // the object may exist without being selected
		silent     bool // err is not returned
		behind     bool // the comparison must be repeated
	}{
		"its labels match":                       {view: shown, acked: live("A", "5"), labels: selected, want: Comparison{Waiting: 1}, behind: true},
		"its labels do not match":                {view: shown, acked: live("A", "5"), labels: other, want: Comparison{Deselected: 1}},
		"the objects decide":                     {view: unselected, acked: live("A", "5"), labels: other, want: Comparison{Deleted: 1}},
		"it is removed":                          {view: removed, acked: live("A", "5"), want: Comparison{Deleted: 1}},
		"it is removed, and the watch is behind": {view: func(v *ObjectView) { removed(v); v.Live = object("A", "5") }, acked: live("A", "5"), want: Comparison{Waiting: 1}},
		"it is new":                              {view: removed, acked: live("A", "5"), labels: selected, want: Comparison{Waiting: 1}, behind: true},
		"it is new, and not selected":            {view: removed, acked: live("A", "5"), labels: other, want: Comparison{Waiting: 1}, behind: true},
		"it is removed, without labels":          {view: excluded, acked: live("A", "5"), want: Comparison{Deleted: 1}},
		"it is new, without labels":              {view: excluded, acked: live("A", "5"), labels: selected, want: Comparison{Waiting: 1}, behind: true},
		"denied, and removed":                    {view: denied, acked: live("A", "5"), want: Comparison{Deleted: 1}},
		"denied, and it exists":                  {view: denied, acked: live("A", "5"), labels: selected, want: Comparison{Waiting: 1}},
		"denied, and the read too":               {view: denied, acked: live("A", "5"), err: fails, want: Comparison{Waiting: 1}, silent: true},
		"denied, and the read fails":             {view: denied, acked: live("A", "5"), err: pathNotFound()},
		"denied, and deleted":                    {view: denied, acked: deleted("A", "5"), unread: true},
		"denied, a foreign delete, and removed":  {view: denied, acked: foreign(deleted("A", "5")), want: Comparison{Outlived: 1}},
		"denied, a foreign delete, it exists":    {view: denied, acked: foreign(deleted("A", "5")), labels: selected},
		"its labels change during the read":      {view: shown, during: selectedAgain, acked: live("A", "5"), labels: other},
		"a read fails":                           {view: shown, acked: live("A", "5"), err: fails},
		"the path is not found":                  {view: removed, acked: live("A", "5"), err: pathNotFound()},
		"nothing would be published":             {view: stays, acked: live("A", "5"), unread: true, want: Comparison{OutOfScope: 1}},
		"a foreign event, selected":              {view: unselected, acked: foreign(live("A", "5")), labels: selected, want: Comparison{Waiting: 1}, behind: true},
		"a foreign event":                        {view: unselected, acked: foreign(live("A", "5")), labels: other, want: Comparison{Deleted: 1}},
		"a foreign delete, selected":             {view: unselected, acked: foreign(deleted("A", "5")), labels: selected, want: Comparison{Waiting: 1}, behind: true},
		"a foreign delete":                       {view: unselected, acked: foreign(deleted("A", "5")), labels: other, unselected: true, want: Comparison{Outlived: 1}},
		"a foreign delete, selected by nothing":  {view: unreferenced, acked: foreign(deleted("A", "5")), unread: true, unselected: true, want: Comparison{Outlived: 1}},
		"a foreign delete, namespace removed":    {view: removed, acked: foreign(deleted("A", "5")), want: Comparison{Outlived: 1}},
		"foreign delete, removed, watch behind":  {view: func(v *ObjectView) { removed(v); v.Live = object("B", "4") }, acked: foreign(deleted("A", "5")), want: Comparison{Waiting: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			reads := 0
			var b *bench
			b = newBench(t, stubCluster{list: func(gvr schema.GroupVersionResource, _ string, o metav1.ListOptions) (*unstructured.UnstructuredList, error) {
				list := &unstructured.UnstructuredList{}
				if gvr.Resource != "namespaces" {
					return list, nil
				}
				list.SetResourceVersion("9")
				if reads++; o.FieldSelector != "metadata.name=default" || o.ResourceVersion != "" {
					t.Errorf("read with the options %+v", o)
				}
				if c.during != nil {
					c.during(&b.object)
				}
				if c.labels != nil {
					list.Items = []unstructured.Unstructured{{}}
					list.Items[0].SetLabels(c.labels)
				}
				return list, c.err
			}})
			c.view(&b.object)
			got, err := b.Confirm(t.Context(), testKey.GroupResource(), acked(map[event.Key]event.Acked{testKey: c.acked}))
			if b.object.Outlived.Unselected != c.unselected {
				t.Errorf("the object may exist without being selected: %t, want %t", b.object.Outlived.Unselected, c.unselected)
			}
			wantAbsentAt := ""
			if c.want.Outlived > 0 && c.labels == nil && !c.unread {
				wantAbsentAt = "9"
			}
			if got := b.object.Outlived.AbsentAt; got != wantAbsentAt {
				t.Errorf("got AbsentAt %q, want %q", got, wantAbsentAt)
			}
			if b.left != c.want.OutOfScope {
				t.Errorf("%d objects are left on the bus, want %d", b.left, c.want.OutOfScope)
			}
			wantErr := c.err
			switch {
			case c.silent:
				wantErr = nil
			case c.behind:
				wantErr = errNamespacesBehind
			}
			if got != c.want || !errors.Is(err, wantErr) || (reads == 0) != c.unread {
				t.Errorf("got %+v, %v after %d reads; want %+v, %v", got, err, reads, c.want, wantErr)
			}
		})
	}
}

// TestDeselectedInALargeNamespace verifies that an object after the first page of a list is
// deselected, not deleted.
func TestDeselectedInALargeNamespace(t *testing.T) {
	b := newBench(t, stubCluster{list: func(schema.GroupVersionResource, string, metav1.ListOptions) (*unstructured.UnstructuredList, error) {
		return &unstructured.UnstructuredList{Items: append(make([]unstructured.Unstructured, listPage), *stored("A", "5"))}, nil
	}})
	b.object.Selected, b.object.PublishDeselected = false, true
	got, err := b.Reconcile(t.Context(), testKey.GroupResource(), acked(map[event.Key]event.Acked{testKey: live("A", "5")}))
	if want := (Comparison{Deselected: 1}); got != want || err != nil {
		t.Errorf("got %+v, error %v; want %+v", got, err, want)
	}
}
