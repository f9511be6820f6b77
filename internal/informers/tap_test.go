package informers

import (
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// TestATapLeavesNothing: a bubble does not end while a goroutine of it is left.
// watch.Filter left one for each informer that was stopped while its resource changed.
func TestATapLeavesNothing(t *testing.T) {
	for name, end := range map[string]func(w *watch.FakeWatcher, tapped watch.Interface){
		"stopped, and nobody reads": func(_ *watch.FakeWatcher, tapped watch.Interface) {
			tapped.Stop()
			tapped.Stop()
		},
		"the watch ends": func(w *watch.FakeWatcher, tapped watch.Interface) {
			<-tapped.ResultChan()
			w.Stop()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, seen := watch.NewFake(), 0
				tapped := newTap(w, func(watch.Event) { seen++ })
				w.Add(&unstructured.Unstructured{})
				synctest.Wait()
				end(w, tapped)
				if _, open := <-tapped.ResultChan(); open || seen != 1 {
					t.Errorf("open %v, %d seen; want it closed and one seen", open, seen)
				}
			})
		})
	}
}
