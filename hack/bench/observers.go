package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// bareWatch sees every change as early as anything can: it reads a watch and looks for
// no more than name and version.
type bareWatch struct {
	sightings
	config              *rest.Config
	resource, namespace string

	stop  context.CancelFunc
	ended sync.WaitGroup

	mu     sync.Mutex
	failed error
	again  int // how often the API server has ended the stream
}

// watchBare watches from now on.
func watchBare(ctx context.Context, config *rest.Config, resource, namespace string) (*bareWatch, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	now, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: resource}).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	w := &bareWatch{config: config, resource: resource, namespace: namespace}
	ctx, w.stop = context.WithCancel(ctx)
	w.ended.Go(func() {
		err := w.watch(ctx, now.GetResourceVersion())
		w.mu.Lock()
		defer w.mu.Unlock()
		w.failed = err
	})
	return w, nil
}

// watch goes on where it was when the API server ends the stream, as it does to whoever
// reads too slowly, on a machine that is too busy.
func (w *bareWatch) watch(ctx context.Context, version string) error {
	for {
		body, err := openWatch(ctx, w.config, w.resource, w.namespace, url.Values{"resourceVersion": {version}})
		if err != nil {
			return fmt.Errorf("the bare watch of %s: %w", w.resource, err)
		}
		last, err := w.read(body)
		body.Close()
		if ctx.Err() != nil {
			return nil
		}
		if last > 0 {
			version = strconv.FormatUint(last, 10)
		}
		if !errors.Is(err, io.EOF) {
			return fmt.Errorf("the bare watch of %s: %w", w.resource, err)
		}
		w.mu.Lock()
		w.again++
		w.mu.Unlock()
	}
}

// note tells of what spoils its latencies; nothing, as a rule.
func (w *bareWatch) note() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.again == 0 {
		return nil
	}
	return []string{fmt.Sprintf("The API server ended the bare watch of %s %d times, as it does when the machine is too busy.", w.resource, w.again)}
}

// read returns the last version of the stream, 0 if it had none, and why it ended.
func (w *bareWatch) read(r io.Reader) (last uint64, err error) {
	frames := bufio.NewReaderSize(r, 1<<20)
	for {
		frame, err := frames.ReadSlice('\n')
		at := time.Now()
		if err != nil {
			return last, err
		}
		o, version, err := readMetadata(frame)
		if err != nil {
			return last, fmt.Errorf("no version in %.200q: %w", frame, err)
		}
		o.resource, last = w.resource, version
		w.add(o, state{version, at})
	}
}

func (w *bareWatch) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

func (w *bareWatch) close() {
	w.stop()
	w.ended.Wait()
}

// subscriber is one of the bus, as a user would write it.
type subscriber struct {
	sightings
	consuming jetstream.ConsumeContext

	mu        sync.Mutex
	completed map[string]time.Time // first syncs, by resource
	lasts     map[object]kept      // the last events of some objects
	failed    error
}

// subscribe reads the stream's messages of some subjects, from its beginning, as soon as the
// forwarder has made it.
func (b *natsBus) subscribe(ctx context.Context, f *forwarder, lasts map[object]kept, subjects ...string) (*subscriber, error) {
	s := &subscriber{completed: map[string]time.Time{}, lasts: lasts}
	var c jetstream.Consumer
	if err := f.until(ctx, func() (bool, error) {
		var err error
		c, err = b.js.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{FilterSubjects: subjects, DeliverPolicy: jetstream.DeliverAllPolicy})
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return false, nil
		}
		return err == nil, err
	}); err != nil {
		return nil, err
	}
	var err error
	s.consuming, err = c.Consume(s.take)
	return s, err
}

// take reads a message: kuberelay.<cluster>.<group>.<resource>.<namespace>.<name> is the
// subject of an object's events, kuberelay.<cluster>._control.snapshot.<group>.<resource>
// that of the markers of a first sync.
func (s *subscriber) take(m jetstream.Msg) {
	at := time.Now()
	header, tokens := m.Headers(), strings.Split(m.Subject(), ".")
	if tokens[2] == "_control" {
		if header.Get("ce-type") == "io.kuberelay.snapshot.completed" {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.completed[tokens[5]] = at
		}
		return
	}
	version, err := strconv.ParseUint(header.Get("ce-resourceversion"), 10, 64)
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.failed = errors.Join(s.failed, fmt.Errorf("%s has no version: %w", m.Subject(), err))
		return
	}
	o := object{tokens[3], header.Get("ce-namespace"), header.Get("ce-name")}
	s.add(o, state{version, at})
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, wanted := s.lasts[o]; !wanted {
		return
	}
	if s.lasts[o], err = keep(m, version); err != nil {
		s.failed = errors.Join(s.failed, err)
	}
}

func (s *subscriber) last(o object) kept {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lasts[o]
}

func (s *subscriber) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// completedAt is when the first sync of a resource was.
func (s *subscriber) completedAt(resource string) (time.Time, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.completed[resource]
	return at, ok, s.failed
}

// observer sees states of objects.
type observer interface {
	seen(change) (time.Time, bool)
	failure() error
}

// awaitAll waits until all of them have seen every change, and fails after a time that only a
// loss explains: it has room for a second list of all objects, which an API server forces on
// whoever took so long for the first that the changes since are forgotten.
func awaitAll(ctx context.Context, changes []change, observers ...observer) error {
	const patience = 10 * time.Minute
	deadline := time.Now().Add(patience)
	for _, c := range changes {
		for _, o := range observers {
			for {
				if _, ok := o.seen(c); ok {
					break
				}
				if time.Now().After(deadline) {
					return errors.Join(fmt.Errorf("version %d of %s %s/%s has not come to a %T after %s",
						c.version, c.resource, c.namespace, c.name, o, patience), o.failure())
				}
				select {
				case <-time.After(time.Millisecond):
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
		}
	}
	return nil
}

// latencies are how long after the API server's answer each change was seen, in
// milliseconds: by the bare watch, by the subscriber, and by how much the second was
// later. An API server may show a change to a watch before it answers. Request is how long
// the answer took.
type latencies struct{ watch, subscriber, beyond, request series }

func compare(changes []change, watch, subscriber *sightings) (l latencies) {
	for _, c := range changes {
		first, ok := watch.seen(c)
		second, too := subscriber.seen(c)
		if !ok || !too {
			continue // awaitAll has said so
		}
		l.watch = append(l.watch, milliseconds(first.Sub(c.at)))
		l.subscriber = append(l.subscriber, milliseconds(second.Sub(c.at)))
		l.request = append(l.request, milliseconds(c.took))
		l.beyond = append(l.beyond, milliseconds(second.Sub(first)))
	}
	return l
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
