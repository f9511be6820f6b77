package tail

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/subject"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// scripted is a bus whose events come from a function.
type scripted func(publish.SubscribeOptions, func(*event.Message, publish.Delivery) error) error

func (s scripted) Subscribe(ctx context.Context, o publish.SubscribeOptions, yield func(*event.Message, publish.Delivery) error) error {
	if err := s(o, yield); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return o.CaughtUp(publish.Cursor{})
}

// web returns an event with a state of the Deployment shop/web.
func web(t testing.TB, typ event.Type, version, spec string, changes ...func(*event.Change)) Event {
	body := fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop","uid":"uid-of-web","resourceVersion":%q,"creationTimestamp":"2026-03-01T10:00:00Z","labels":{"app":"web"}},"spec":%s}`, version, spec)
	return change(t, typ, deployments, "shop", "web", version, append([]func(*event.Change){func(c *event.Change) { c.Object.Body = event.JSON([]byte(body)) }}, changes...)...)
}

// readPresent reads a bus that yields the steps. Each step is an event, or a function that calls
// another callback of the subscription.
func readPresent(t *testing.T, p *Present, steps ...any) *Present {
	t.Helper()
	p.Status = &Status{W: io.Discard}
	if p.Labels == nil {
		p.Labels = labels.Everything()
	}
	err := p.Read(t.Context(), scripted(func(o publish.SubscribeOptions, yield func(*event.Message, publish.Delivery) error) error {
		if o.From != publish.FromLast || !o.UntilLost { // a recreated stream lacks objects that were already read
			t.Errorf("reads from %v, until a loss: %v", o.From, o.UntilLost)
		}
		for i, step := range steps {
			switch step := step.(type) {
			case Event:
				subject := subject.Object("k", step.Cluster, step.Message.Key)
				if err := yield(step.Message, publish.Delivery{Cluster: step.Cluster, Subject: subject, Position: uint64(i), Stored: step.Stored, Log: step.Log}); err != nil {
					return err
				}
			case func(publish.SubscribeOptions):
				step(o)
			}
		}
		return nil
	}), "k")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPresent(t *testing.T) {
	key := deployments.Key("shop", "web")
	bySubject, byRecordKey := subject.Object("k", "prod", key), event.PartitionKey("prod", key)
	foreign := func(at string) func(publish.SubscribeOptions) {
		return func(o publish.SubscribeOptions) { o.Foreign(publish.Delivery{Subject: at}, errors.New("not an event")) }
	}
	tombstone := func(o publish.SubscribeOptions) {
		o.Tombstone(key, publish.Delivery{Cluster: "prod", Subject: bySubject})
	}
	created := web(t, event.Created, "1", "{}")
	another := web(t, event.Updated, "2", "{}", func(c *event.Change) {
		c.Object.Body = event.JSON([]byte(`{"metadata":{"name":"api","namespace":"shop"}}`))
	})
	for _, tc := range []struct {
		name   string
		steps  []any
		names  []string
		labels string
		kind   string
		want   string // versions, with the removed objects in brackets
		fails  bool
	}{
		{name: "nothing"},
		{name: "the last state", steps: []any{created, web(t, event.Updated, "2", "{}")}, want: "2"},
		{name: "data that is a change", steps: []any{asChange(web(t, event.Updated, "2", "{}"), "null", "null")}, want: "2"},
		{name: "truncated", steps: []any{web(t, event.Updated, "2", "{}", func(c *event.Change) { c.Truncated = true })}, want: "2"},
		{name: "deleted", steps: []any{created, web(t, event.Deleted, "2", "{}")}},
		{name: "deselected", steps: []any{created, web(t, event.Deselected, "2", "{}")}},
		{name: "deleted, by name", steps: []any{created, web(t, event.Deleted, "2", "{}"), tombstone}, names: []string{"web"}, want: "[2]"},
		{name: "recreated", steps: []any{web(t, event.Deleted, "2", "{}"), web(t, event.Created, "3", "{}")}, names: []string{"web"}, want: "3"},
		{name: "a tombstone", steps: []any{created, tombstone}},
		{name: "labels", steps: []any{created}, labels: "app=web", want: "1"},
		{name: "other labels", steps: []any{created}, labels: "app=cart"},
		{name: "labels and a time that are hashed", steps: []any{web(t, event.Updated, "2", "{}", func(c *event.Change) {
			c.Object.Body = event.JSON([]byte(`{"metadata":{"name":"web","namespace":"shop","labels":"hmac-sha256:00","creationTimestamp":"hmac-sha256:00"}}`))
		})}, want: "2"},
		{name: "labels that changed", steps: []any{created, web(t, event.Updated, "2", "{}", func(c *event.Change) {
			c.Object.Body = event.JSON([]byte(`{"metadata":{"name":"web","namespace":"shop"}}`))
		})}, labels: "app=web"},
		{name: "another name", steps: []any{created}, names: []string{"cart"}},
		{name: "another cluster", steps: []any{created.of("staging")}},
		{name: "a foreign message on NATS", steps: []any{created, foreign(bySubject)}, fails: true},
		{name: "a foreign record on Kafka", steps: []any{created, foreign(byRecordKey)}, fails: true},
		{name: "a foreign message of a kind", steps: []any{created, foreign(bySubject)}, kind: "Deployment", fails: true},
		{name: "a foreign message before an event", steps: []any{foreign(bySubject), created}, want: "1"},
		{name: "a foreign message elsewhere", steps: []any{created, foreign(subject.Object("k", "prod", pods.Key("shop", "web"))), foreign("other")}, want: "1"},
		{name: "fields whose names differ in their case", steps: []any{web(t, event.Created, "1", "{}", func(c *event.Change) {
			c.Object.Body = event.JSON([]byte(`{"metadata":{"name":"web","namespace":"shop","Labels":{"app":"web"}},"Metadata":{"name":"api","labels":{"app":"web"}}}`))
		})}, labels: "app!=web", want: "1"},
		{name: "the data of another object", steps: []any{created, another}, fails: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &Present{Filter: Filter{Clusters: []string{"prod"}, Resources: selectors(t, cmp.Or(tc.kind, "deployments")), Namespaces: []string{"shop", ""}, Names: tc.names}}
			if tc.labels != "" {
				var err error
				if p.Labels, err = labels.Parse(tc.labels); err != nil {
					t.Fatal(err)
				}
			}
			readPresent(t, p, tc.steps...)
			var got []string
			objects, removed := p.Objects()
			for _, o := range objects {
				got = append(got, o.Version)
			}
			for _, o := range removed {
				got = append(got, "["+o.Version+"]")
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if err := p.Err(); (err != nil) != tc.fails {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestPresentFreshness verifies that the partition with the oldest last consistency point determines
// the freshness.
func TestPresentFreshness(t *testing.T) {
	point := func(age time.Duration, partition int) Event {
		m, err := event.Builder{Cluster: "prod"}.Resolved(event.Point{Resource: deployments, Version: "1", AsOf: someTime.Add(-age), Taken: someTime})
		if err != nil {
			t.Fatal(err)
		}
		return Event{Delivery: publish.Delivery{Cluster: "prod", Log: publish.Log{Topic: "k", Partition: partition}}, Message: m}
	}
	p := readPresent(t, &Present{Filter: Filter{Namespaces: []string{"shop"}, Resources: selectors(t, "deployments", "pods", "nodes")}},
		point(time.Minute, 0), point(time.Second, 0), point(5*time.Second, 1),
		marker(t, event.SnapshotCompleted, deployments, 1), marker(t, event.SnapshotStarted, pods, 0),
	)
	want := []Freshness{
		{Cluster: "prod", Resource: deployments.GroupResource(), AsOf: someTime.Add(-5 * time.Second)},
		{Cluster: "prod", Resource: pods.GroupResource(), Syncing: true},
	}
	got := p.Freshness()
	for i := range got {
		if i >= len(want) || !got[i].AsOf.Equal(want[i].AsOf) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
		got[i].AsOf = want[i].AsOf
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if unseen := p.Unseen(); len(unseen.Resources) != 1 || unseen.Resources[0].resource.String() != "nodes" {
		t.Errorf("unseen: %+v", unseen)
	}
}

// TestFreshnessOfAPartitionWithoutAPoint verifies that a consistency point covers only its own
// partition.
func TestFreshnessOfAPartitionWithoutAPoint(t *testing.T) {
	m, err := event.Builder{Cluster: "prod"}.Resolved(event.Point{Resource: deployments, Version: "1", AsOf: someTime, Taken: someTime})
	if err != nil {
		t.Fatal(err)
	}
	object := web(t, event.Created, "1", "{}").of("prod")
	for partition, want := range []time.Time{someTime, {}} {
		object.Log = publish.Log{Topic: "k", Partition: partition}
		p := readPresent(t, &Present{Filter: Filter{Resources: selectors(t, "deployments")}}, object, Event{Delivery: publish.Delivery{Cluster: "prod", Log: publish.Log{Topic: "k"}}, Message: m})
		if got := p.Freshness(); len(got) != 1 || !got[0].AsOf.Equal(want) {
			t.Errorf("partition %d: got %+v, want as of %v", partition, got, want)
		}
	}
}

// TestContentHostile verifies that the output escapes unprintable characters and still equals the
// object.
func TestContentHostile(t *testing.T) {
	spec := "{\"a\":\"\u009b2J\x7f\u202e\U000e0041 é\",\"b\":\"two\\nlines\\u00a0\\u001b\\t\",\"c\":[1e400,12345678901234567890,\"yes\",\"1\",null,true],\"d\":\"<&>\",\"e\":\"a\u202eb\",\"f\":\"one\u00a0line\\n\"}"
	p := readPresent(t, &Present{Whole: true}, web(t, event.Created, "1", spec))
	objects, _ := p.Objects()
	for _, single := range []bool{true, false} {
		var asJSON, asYAML bytes.Buffer
		if err := errors.Join(WriteJSON(&asJSON, objects, single), WriteYAML(&asYAML, objects, single)); err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{asJSON.String(), asYAML.String()} {
			if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }); i >= 0 {
				t.Errorf("%q does not print, at %d", text, i)
			}
			if !strings.Contains(text, "1e400") || !strings.Contains(text, "12345678901234567890") || !strings.Contains(text, "<&>") {
				t.Errorf("numbers or texts have changed: %s", text)
			}
		}
		want := map[string]any{"a": "\u009b2J\x7f\u202e\U000e0041 é", "b": "two\nlines\u00a0\x1b\t", "d": "<&>", "e": "a\u202eb", "f": "one\u00a0line\n"}
		for name, decode := range map[string]func([]byte, any) error{"json": func(b []byte, v any) error {
			d := json.NewDecoder(bytes.NewReader(b))
			d.UseNumber()
			return d.Decode(v)
		}, "yaml": yaml.Unmarshal} {
			text := map[string][]byte{"json": asJSON.Bytes(), "yaml": asYAML.Bytes()}[name]
			var root map[string]any
			if err := decode(text, &root); err != nil {
				t.Fatalf("%s: %v in %s", name, err, text)
			}
			if !single {
				root = root["items"].([]any)[0].(map[string]any)
			}
			got := root["spec"].(map[string]any)
			for field, value := range want {
				if got[field] != value {
					t.Errorf("%s: %s is %q, want %q", name, field, got[field], value)
				}
			}
			if c := got["c"].([]any); c[2] != "yes" || c[3] != "1" || c[4] != nil || c[5] != true {
				t.Errorf("%s: got %v", name, c)
			}
		}
	}
}

func TestContentTruncated(t *testing.T) {
	p := readPresent(t, &Present{Whole: true}, web(t, event.Created, "1", `{"replicas":1}`, func(c *event.Change) { c.Truncated = true }))
	objects, _ := p.Objects()
	var b bytes.Buffer
	if err := WriteJSON(&b, objects, true); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Metadata struct{ Annotations map[string]string }
		Spec     any
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil || got.Metadata.Annotations[event.TruncatedAnnotation] != "true" || got.Spec != nil {
		t.Errorf("got %s (%v), want the annotation and no spec", b.String(), err)
	}
}

// TestReadToEnd verifies that readToEnd fails if the bus is missing or unreachable at the start, and
// that it continues after a later interruption.
func TestReadToEnd(t *testing.T) {
	broken := errors.New("no route")
	for _, tc := range []struct {
		name     string
		notes    []error
		want     error
		notified int
	}{
		{"unreachable", []error{broken}, publish.ErrUnreachable, 0},
		{"missing", []error{publish.ErrMissing}, publish.ErrMissing, 0},
		{"interrupted", []error{nil, broken, nil}, nil, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			notified := 0
			err := readToEnd(t.Context(), scripted(func(o publish.SubscribeOptions, _ func(*event.Message, publish.Delivery) error) error {
				for _, note := range tc.notes {
					o.Notify(note)
				}
				return nil
			}), publish.SubscribeOptions{Notify: func(error) { notified++ }}, nil)
			if !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) || notified != tc.notified {
				t.Errorf("got %v after %d notifications, want %v after %d", err, notified, tc.want, tc.notified)
			}
		})
	}
}
