package informers

import (
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/discovery"
)

// TestNoPointBetweenTwoCoverages verifies that a point without the objects of an informer that starts does not
// have the number of the selection that includes the informer. Otherwise the point stays valid while the
// informer lists.
func TestNoPointBetweenTwoCoverages(t *testing.T) {
	b := newBench(t, Config{Namespaces: discovery.NamespaceSelection{Include: []string{"default"}}}, testResource)
	w, gr := b.watched, testResource.GroupResource()
	w.firstSync.Finish(t.Context())
	b.sync()
	b.index(object("A", "5"))
	w.informers.All()["default"].progress.List(0, true, true, time.Now())
	if _, ok := b.Point(gr); !ok {
		t.Fatal("no point is possible")
	}
	starting, err := b.newInformer(w, "other")
	if err != nil {
		t.Fatal(err)
	}
	for range 2000 {
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.replace(w, nil, []*informer{starting})
		}()
		last, ok := b.Point(gr)
		for p, possible := last, ok; possible; p, possible = b.Point(gr) {
			last = p
		}
		<-done
		if ok && last.Selection == b.Selection(gr) {
			t.Fatal("a point without the objects of the informer is still valid")
		}
		b.replace(w, []*informer{starting}, nil)
	}
}
