package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// object is one that is changed and seen again.
type object struct{ resource, namespace, name string }

// state is one of an object, by its resourceVersion, and when it was known of.
type state struct {
	version uint64
	at      time.Time
}

// sightings are the states of objects, in the order of their arrival somewhere.
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

// seen is when a state of the object, or a later one, was seen first: of two quick changes
// a subscriber may get the second alone.
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

// change is one that the API server has answered.
type change struct {
	object
	state
	took time.Duration // until the answer
}

// changer changes objects, and keeps what it has changed.
type changer struct {
	client *http.Client
	host   string

	mu      sync.Mutex
	changes []change
}

func newChanger(config *rest.Config) (*changer, error) {
	client, err := rest.HTTPClientFor(config)
	return &changer{client: client, host: config.Host}, err
}

// patch gives the object an annotation that it never had: a patch that changes nothing
// makes no version.
func (c *changer) patch(ctx context.Context, o object) error {
	url := fmt.Sprintf("%s/api/v1/namespaces/%s/%s/%s?fieldManager=kubectl-annotate", c.host, o.namespace, o.resource, o.name)
	body := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/changed":"%d"}}}`, time.Now().UnixNano())
	request, err := http.NewRequestWithContext(ctx, http.MethodPatch, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/merge-patch+json")
	request.Header.Set("Accept", "application/json")
	asked := time.Now()
	response, err := c.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	at := time.Now()
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, answer)
	}
	var version uint64
	if err == nil {
		_, version, err = readMetadata(answer)
	}
	if err != nil {
		return fmt.Errorf("patch %s %s/%s: %w", o.resource, o.namespace, o.name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes = append(c.changes, change{o, state{version, at}, at.Sub(asked)})
	return nil
}

// done are all changes so far.
func (c *changer) done() []change {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changes[:len(c.changes):len(c.changes)]
}

// readMetadata finds name, namespace and version in an object, or in an event of a watch,
// as an API server writes them: each first among all fields of that name.
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

// pace calls do so many times a second, for a time, each call in a goroutine of its own. When
// too many of them have not returned it waits: what it does then is all that can be done.
// It returns how many times a second it has called.
func pace(ctx context.Context, perSecond float64, length time.Duration, do func(i int) error) (rate float64, err error) {
	const atOnce = 64
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	defer running.Wait()
	places := make(chan struct{}, atOnce)
	start, calls := time.Now(), 0
	for ; time.Since(start) < length; calls++ {
		due := start.Add(time.Duration(float64(calls) / perSecond * float64(time.Second)))
		select {
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
		i := calls // the loop goes on
		running.Go(func() {
			defer func() { <-places }()
			if err := do(i); err != nil {
				cancel(err)
			}
		})
	}
	took := time.Since(start)
	running.Wait()
	return float64(calls) / took.Seconds(), context.Cause(ctx)
}
