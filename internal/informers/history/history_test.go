package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// stubResource lists the objects of a resource with a function.
type stubResource struct {
	dynamic.NamespaceableResourceInterface
	list      func(namespace string, o metav1.ListOptions) (*unstructured.UnstructuredList, error)
	namespace string
}

func (s stubResource) Namespace(namespace string) dynamic.ResourceInterface {
	s.namespace = namespace
	return s
}

func (s stubResource) List(_ context.Context, o metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	return s.list(s.namespace, o)
}

func newHistory(list func(namespace string, o metav1.ListOptions) (*unstructured.UnstructuredList, error)) *History {
	return New(Config{
		Resource: schema.GroupResource{Resource: "configmaps"}, Client: stubResource{list: list}, Server: NewServer(nil),
		MayBeRedefined: func() bool { return false }, Now: time.Now,
	})
}

func stored(version string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetName("web")
	u.SetResourceVersion(version)
	return u
}

func isNil(err error) bool { return err == nil }

// TestAnOutageIsNoReasonToList verifies that after an outage, the watch continues after the last
// change that it showed if that change is still in the history. If the change is not in the
// history, or the API server cannot tell, the informer lists again, which is always correct.
func TestAnOutageIsNoReasonToList(t *testing.T) {
	// past maps a version to the object's version at that time in the API server's history.
	type past map[string]string
	expired := apierrors.NewResourceExpired("compacted")
	for name, c := range map[string]struct {
		quiet bool   // no outage
		early bool   // a watch ended before its timeout
		late  bool   // a watch ended at its timeout, and the API server had answered late
		floor string // version of the last list, "4" by default
		shown []watch.EventType
		at    string // the version after which the watch would continue, "20" by default
		past  past
		err   error
		from  string
		want  func(error) bool
	}{
		"no outage":             {quiet: true, shown: []watch.EventType{watch.Modified}, from: "20", want: isNil},
		"a watch ended early":   {quiet: true, early: true, shown: []watch.EventType{watch.Modified}, want: apierrors.IsResourceExpired},
		"an answer was late":    {quiet: true, late: true, from: "20", want: isNil},
		"still so":              {shown: []watch.EventType{watch.Modified}, past: past{"5": "5"}, from: "5", want: isNil},
		"made since the list":   {shown: []watch.EventType{watch.Added}, past: past{"5": "5"}, from: "5", want: isNil},
		"not from the list":     {floor: "9", shown: []watch.EventType{watch.Modified}, past: past{"5": "5"}, want: apierrors.IsResourceExpired},
		"nothing since":         {want: apierrors.IsResourceExpired},
		"the list is not known": {floor: "-", shown: []watch.EventType{watch.Modified}, past: past{"5": "5"}, want: apierrors.IsResourceExpired},
		"another version":       {shown: []watch.EventType{watch.Modified}, past: past{"5": "3"}, want: apierrors.IsResourceExpired},
		"never made":            {shown: []watch.EventType{watch.Added}, want: apierrors.IsResourceExpired},
		"deleted then":          {shown: []watch.EventType{watch.Modified, watch.Deleted}, past: past{"5": "5"}, from: "6", want: isNil},
		"deleted before":        {shown: []watch.EventType{watch.Modified, watch.Deleted}, past: past{"4": "4"}, want: apierrors.IsResourceExpired},
		"not deleted":           {shown: []watch.EventType{watch.Modified, watch.Deleted}, past: past{"5": "5", "6": "5"}, want: apierrors.IsResourceExpired},
		"did not arrive":        {shown: []watch.EventType{watch.Modified}, at: "4", past: past{"5": "5"}, from: "4", want: isNil},
		"compacted":             {shown: []watch.EventType{watch.Modified}, err: expired, want: apierrors.IsResourceExpired},
		"it may not be read":    {shown: []watch.EventType{watch.Modified}, err: apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "web", errors.New("no")), want: apierrors.IsResourceExpired},
		"it cannot be read":     {shown: []watch.EventType{watch.Modified}, err: apierrors.NewInternalError(errors.New("no answer")), want: apierrors.IsInternalError},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory(func(namespace string, o metav1.ListOptions) (*unstructured.UnstructuredList, error) {
				if o.FieldSelector != "metadata.name=web" || namespace != "default" || o.ResourceVersionMatch != metav1.ResourceVersionMatchExact {
					t.Errorf("listed %q of %q with %+v", o.FieldSelector, namespace, o)
				}
				list := &unstructured.UnstructuredList{}
				if version := c.past[o.ResourceVersion]; version != "" {
					list.Items = append(list.Items, *stored(version))
				}
				return list, c.err
			})
			now := time.Unix(0, 0)
			h.config.Now = func() time.Time { return now }
			h.Listed(strings.TrimPrefix(cmp.Or(c.floor, "4"), "-"))
			seconds := new(int64(0))
			if c.early || c.late {
				*seconds = 3600
			}
			h.Watching(t.Context(), h.Stops())
			asked := now
			if c.late {
				now = now.Add(time.Minute)
			}
			h.Opened(asked, seconds, h.Stops())
			if c.late {
				now = now.Add(59 * time.Minute)
			}
			for n, typ := range c.shown {
				o := stored(fmt.Sprint(5 + n))
				o.SetNamespace("default")
				h.Shown(watch.Event{Type: typ, Object: o})
			}
			if !c.quiet {
				h.Doubt()
			}
			from, err := h.Continue(t.Context(), cmp.Or(c.at, "20")) // 20 is the version of a bookmark
			if !c.want(err) || from != c.from {
				t.Errorf("got %q, %v; want %q", from, err, c.from)
			}
			h.Listed("30")
			if from, err := h.Continue(t.Context(), "30"); err != nil || from != "30" {
				t.Errorf("after a list: got %s, %v", from, err)
			}
			h.Doubt()
			if _, err := h.Continue(t.Context(), "30"); !apierrors.IsResourceExpired(err) {
				t.Errorf("after a list with nothing since: got %v, want another list", err)
			}
		})
	}
}

// TestAWatchThatBeginsWithAList verifies that the bookmark at the end of the initial list sets the
// version of the list.
func TestAWatchThatBeginsWithAList(t *testing.T) {
	h := newHistory(nil)
	h.Listed("")
	h.Shown(watch.Event{Type: watch.Added, Object: stored("5")})
	end := stored("9")
	end.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	h.Shown(watch.Event{Type: watch.Bookmark, Object: end})
	h.Shown(watch.Event{Type: watch.Bookmark, Object: stored("12")})
	h.Shown(watch.Event{Type: watch.Error, Object: &metav1.Status{}})
	if floor, last := h.shown.floor, h.last.Load(); floor != "9" || last.version != "5" {
		t.Errorf("floor %q, last %+v; want 9 and 5", floor, last)
	}
	h.Listed("3") // after a restore, versions are lower
	h.Shown(watch.Event{Type: watch.Added, Object: stored("4")})
	if last := h.last.Load(); last.version != "4" {
		t.Errorf("last %+v, want 4", last)
	}
}
