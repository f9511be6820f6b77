package informers

import (
	"context"
	"strings"
	"time"

	"github.com/kuberelay/kuberelay/internal/discovery"
)

// relistAfter is the delay between a change of a CustomResourceDefinition and the new list of its
// resource. The API server also watches CustomResourceDefinitions. It uses the old definition until
// it has received the change and its current requests have ended, which takes one or two seconds.
const relistAfter = 5 * time.Second

// redefined requests a new list of each resource that the API server might now serve differently.
func (s *Set) redefined(r discovery.Redefinition) {
	s.eachWatched(func(w *watched) {
		if r.Concerns(w.resource) {
			signal(w.redefined)
		}
	})
}

// relistRedefined lists a resource again after each change of its CustomResourceDefinition or
// APIService, until ctx ends.
func (s *Set) relistRedefined(ctx context.Context, w *watched) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.redefined:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(relistAfter):
		}
		s.log.Info("CustomResourceDefinition or APIService changed, listing the resource again", "resource", w.groupResource().String())
		for _, i := range w.all() {
			i.history.ListAgain()
		}
	}
}

// mayBeRedefined reports whether a CustomResourceDefinition or APIService of a group might have
// changed without a notification. If access to them is denied, the end of a watch is the only sign
// of a change. The group of every custom resource contains a dot.
func (s *Set) mayBeRedefined(group string) bool {
	d := s.definitions.Load()
	return d != nil && strings.Contains(group, ".") && !d.HasSynced()
}
