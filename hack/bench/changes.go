package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// object identifies an object that the benchmark changes.
type object struct{ resource, namespace, name string }

// state is a version of an object and the time when an observer saw it.
type state struct {
	version uint64
	at      time.Time
}

// change is a change of an object. Its time is the time of the API server's response.
type change struct {
	object
	state
}

// sightings records the states of each object that an observer saw, in order.
type sightings struct {
	mu     sync.Mutex
	states map[object][]state
}

func (s *sightings) add(o object, st state) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.states == nil {
		s.states = map[object][]state{}
	}
	s.states[o] = append(s.states[o], st)
}

// seen returns when the observer first saw the change, or a later change of the same object. If an object
// changes twice in quick succession, a subscriber may receive only the second change.
func (s *sightings) seen(c change) (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.states[c.object] {
		if st.version >= c.version {
			return st.at, true
		}
	}
	return time.Time{}, false
}

// await waits until the observer has seen all changes.
func (s *sightings) await(ctx context.Context, limit time.Duration, changes []change) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("changes have not arrived within %s", limit))
	defer cancel()
	for _, c := range changes {
		for _, ok := s.seen(c); !ok; _, ok = s.seen(c) {
			select {
			case <-time.After(time.Millisecond):
			case <-ctx.Done():
				return fmt.Errorf("version %d of %s %s/%s: %w", c.version, c.resource, c.namespace, c.name, context.Cause(ctx))
			}
		}
	}
	return nil
}

// latencies returns the time from the API server's response until the observer saw the change, for each
// change, in milliseconds. The time can be negative, because an API server may show a change to a watch
// before it responds.
func (s *sightings) latencies(changes []change) (l series) {
	for _, c := range changes {
		if at, ok := s.seen(c); ok {
			l = append(l, float64(at.Sub(c.at).Microseconds())/1000)
		}
	}
	return l
}

// beyond returns how much later than the other observer this observer saw each change, in milliseconds.
func (s *sightings) beyond(other *sightings, changes []change) (l series) {
	for _, c := range changes {
		at, ok := s.seen(c)
		if first, too := other.seen(c); ok && too {
			l = append(l, float64(at.Sub(first).Microseconds())/1000)
		}
	}
	return l
}

// changer changes objects and records the changes.
type changer struct {
	client metadata.Interface // returns metadata only, so responses are small
	mu     sync.Mutex
	all    []change // all changes, in the order of the responses
}

// change patches an annotation to a new value. A patch without effect would not create a new version.
func (c *changer) change(ctx context.Context, o object) error {
	body := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/changed":"%d"}}}`, time.Now().UnixNano())
	changed, err := c.client.Resource(corev1.SchemeGroupVersion.WithResource(o.resource)).Namespace(o.namespace).
		Patch(ctx, o.name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: "kubectl-annotate"})
	at := time.Now()
	if err != nil {
		return err
	}
	version, err := strconv.ParseUint(changed.ResourceVersion, 10, 64)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, change{o, state{version, at}})
	return err
}

// of returns the changes of a resource for which the API server responded in a time range. An empty
// resource means all resources.
func (c *changer) of(resource string, from, to time.Time) (some []change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.all {
		if (resource == "" || one.resource == resource) && !one.at.Before(from) && one.at.Before(to) {
			some = append(some, one)
		}
	}
	return some
}

// pace calls do at the given rate until stop ends. At most 64 calls run concurrently.
func pace(ctx, stop context.Context, perSecond float64, do func(ctx context.Context, i int) error) error {
	calls, ctx := errgroup.WithContext(ctx)
	calls.SetLimit(64)
	start := time.Now()
	for i := 0; ; i++ {
		select {
		case <-time.After(time.Until(start.Add(time.Duration(float64(i) / perSecond * float64(time.Second))))):
			if stop.Err() == nil { // the timer and stop can fire together
				calls.Go(func() error { return do(ctx, i) })
			}
			continue
		case <-ctx.Done():
		case <-stop.Done():
		}
		failed := context.Cause(ctx) // nil after a regular stop
		return errors.Join(calls.Wait(), failed)
	}
}

// readWatch reads a watch as JSON until take returns an error or the server ends the watch. It uses a
// separate connection. On a shared connection, the watch would wait for other responses.
func readWatch(ctx context.Context, config *rest.Config, resource, namespace, query string, take func(frame []byte) error) error {
	config = rest.CopyConfig(config)
	config.Dial = new(net.Dialer).DialContext
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	path := "/api/v1/" + resource
	if namespace != "" {
		path = "/api/v1/namespaces/" + namespace + "/" + resource
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+path+"?watch=true&allowWatchBookmarks=true&timeoutSeconds=3600&"+query, http.NoBody)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("watch %s: %s", resource, response.Status)
	}
	for frames := bufio.NewReaderSize(response.Body, 1<<20); ; {
		frame, err := frames.ReadSlice('\n')
		if err == nil {
			err = take(frame)
		}
		if err != nil {
			return err
		}
	}
}

// watchBare records changes as early as an observer can see them. It reads a watch that starts at a
// version, and parses only names and versions.
func watchBare(ctx context.Context, config *rest.Config, resource, version string, seen *sightings) error {
	for {
		err := readWatch(ctx, config, resource, liveNamespace, "resourceVersion="+version, func(frame []byte) error {
			o, v, err := readMetadata(frame)
			o.resource, version = resource, strconv.FormatUint(v, 10)
			seen.add(o, state{v, time.Now()})
			return err
		})
		if ctx.Err() != nil {
			return nil
		}
		if !errors.Is(err, io.EOF) { // the server ends a watch whose reader is too slow
			return fmt.Errorf("bare watch of %s: %w", resource, err)
		}
	}
}

// readMetadata returns the namespace, name and version of an object, or of the object in a watch event.
// It uses the first field with each name, because the API server writes the metadata fields before other
// fields with the same names.
func readMetadata(text []byte) (o object, version uint64, err error) {
	field := func(name string) string {
		_, rest, _ := bytes.Cut(text, []byte(`"`+name+`":"`))
		value, _, _ := bytes.Cut(rest, []byte(`"`))
		return string(value)
	}
	_, text, _ = bytes.Cut(text, []byte(`"metadata":{`))
	version, err = strconv.ParseUint(field("resourceVersion"), 10, 64)
	return object{namespace: field("namespace"), name: field("name")}, version, err
}
