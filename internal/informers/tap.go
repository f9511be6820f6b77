package informers

import (
	"sync"

	"k8s.io/apimachinery/pkg/watch"
)

// tap shows the events of a watch to somebody on their way. watch.Filter would do but
// for this: its goroutine stays for ever where the watch is stopped while an event has
// not been read (apimachinery 0.37, watch/filter.go), as when an informer is stopped.
type tap struct {
	watch.Interface
	shown  chan watch.Event
	done   chan struct{}
	closed sync.Once
}

var _ watch.Interface = (*tap)(nil)

func newTap(w watch.Interface, show func(watch.Event)) *tap {
	t := &tap{Interface: w, shown: make(chan watch.Event), done: make(chan struct{})}
	go t.run(show)
	return t
}

// run ends when the watch does, or is stopped.
func (t *tap) run(show func(watch.Event)) {
	defer close(t.shown)
	for e := range t.Interface.ResultChan() {
		show(e)
		select {
		case t.shown <- e:
		case <-t.done:
			return
		}
	}
}

// ResultChan is part of [watch.Interface].
func (t *tap) ResultChan() <-chan watch.Event { return t.shown }

// Stop is part of [watch.Interface].
func (t *tap) Stop() {
	t.closed.Do(func() { close(t.done) })
	t.Interface.Stop()
}
