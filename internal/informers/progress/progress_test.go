package progress

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kuberelay/kuberelay/internal/event"
)

func TestProgress(t *testing.T) {
	listEnd := &event.Object{ResourceVersion: "9"}
	end := watch.Event{Type: watch.Bookmark, Object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: "9", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}}}
	list := func(objects int, first, complete bool) func(*Progress) {
		return func(p *Progress) { p.List(objects, first, complete, time.Unix(1, 0)) }
	}
	shown := func(types ...watch.EventType) func(*Progress) {
		return func(p *Progress) {
			for _, e := range types {
				p.Watched(watch.Event{Type: e, Object: listEnd}, false, time.Unix(2, 0))
			}
		}
	}
	listing := func(types ...watch.EventType) func(*Progress) {
		return func(p *Progress) {
			p.List(0, true, false, time.Unix(1, 0))
			for _, e := range types {
				if !p.Watched(watch.Event{Type: e, Object: listEnd}, true, time.Unix(1, 0)) {
					t.Error("the list is over before its bookmark")
				}
			}
			if p.Watched(end, true, time.Unix(1, 0)) {
				t.Error("the list is not over after its bookmark")
			}
		}
	}
	handled := func(fresh bool, versions ...string) func(*Progress) {
		return func(p *Progress) {
			for _, v := range versions {
				p.Notified(&event.Object{ResourceVersion: v}, fresh, time.Unix(3, 0), func() {})
			}
		}
	}
	objects := 0 // number of objects that the handler knows
	deleted := func(p *Progress) {
		p.Notified(&event.Object{ResourceVersion: "7"}, false, time.Unix(3, 0), func() { objects-- })
	}
	known := func(n int) func(*Progress) { return func(*Progress) { objects = n } }
	tests := map[string]struct {
		steps  []func(*Progress)
		stored string
		want   string // "" for none
	}{
		"nothing":                         {nil, "", ""},
		"an empty list":                   {[]func(*Progress){list(0, true, true)}, "9", "9"},
		"a list on its way":               {[]func(*Progress){list(2, true, true), handled(true, "8")}, "9", ""},
		"a list":                          {[]func(*Progress){list(2, true, true), handled(true, "8", "5")}, "9", "9"},
		"a list of two pages":             {[]func(*Progress){list(2, true, false), list(1, false, true), handled(true, "8", "5")}, "9", ""},
		"a list that began again":         {[]func(*Progress){list(2, true, false), list(1, true, true), handled(true, "8")}, "9", "9"},
		"a watch that lists":              {[]func(*Progress){listing(watch.Added, watch.Added, watch.Modified, watch.Deleted), handled(true, "8")}, "9", "9"},
		"a watch that lists, on its way":  {[]func(*Progress){listing(watch.Added, watch.Added), handled(true, "8")}, "9", ""},
		"a change on its way":             {[]func(*Progress){list(1, true, true), handled(true, "8"), shown(watch.Modified)}, "10", ""},
		"a change":                        {[]func(*Progress){list(1, true, true), handled(true, "8"), shown(watch.Modified), handled(true, "10")}, "10", "10"},
		"a bookmark":                      {[]func(*Progress){list(0, true, true), shown(watch.Bookmark)}, "20", "20"},
		"a bookmark before its change":    {[]func(*Progress){list(0, true, true), shown(watch.Added, watch.Bookmark)}, "20", ""},
		"changes behind the first":        {[]func(*Progress){list(1, true, true), handled(true, "8"), shown(watch.Added, watch.Added), handled(true, "10")}, "11", "10"},
		"a resync":                        {[]func(*Progress){list(1, true, true), handled(false, "8")}, "9", ""},
		"a list again, on its way":        {[]func(*Progress){list(1, true, true), handled(true, "8"), shown(watch.Added), handled(true, "10"), list(2, true, true), handled(true, "8")}, "12", ""},
		"a list again, and its deletions": {[]func(*Progress){list(2, true, true), handled(true, "8", "7"), list(1, true, true), handled(false, "7"), handled(true, "8")}, "12", "12"},
		"an empty list again, on its way": {[]func(*Progress){list(2, true, true), handled(true, "8", "7"), known(2), list(0, true, true), deleted}, "12", ""},
		"an empty list again":             {[]func(*Progress){list(2, true, true), handled(true, "8", "7"), known(2), list(0, true, true), deleted, deleted}, "12", "12"},
		"an empty list, then a change":    {[]func(*Progress){known(1), list(0, true, true), deleted, shown(watch.Added), handled(true, "14"), known(1)}, "14", "14"},
		"an error":                        {[]func(*Progress){list(0, true, true), shown(watch.Error)}, "9", "9"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var p Progress
			objects = 0
			for _, step := range tt.steps {
				step(&p)
			}
			if got, at, ok := p.Reached(tt.stored, objects == 0); got != tt.want || ok != (tt.want != "") || ok == at.IsZero() {
				t.Errorf("got %q, %v, %t, want %q", got, at, ok, tt.want)
			}
		})
	}
}
