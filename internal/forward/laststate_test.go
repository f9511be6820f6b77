package forward

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
)

// sent is an object with a body that can be compared.
func sent(uid, version, body string) *event.Object {
	o := object(uid, version)
	o.Body = event.JSON([]byte(`{"metadata":{"uid":"` + uid + `","resourceVersion":"` + version + `"},` + body + `}`))
	return o
}

func withDigest(t *testing.T, o *event.Object) *event.Object {
	t.Helper()
	d, err := event.DigestOf(o.Body)
	if err != nil {
		t.Fatal(err)
	}
	o.Digest = d
	return o
}

// TestSyncWhereAProjectionComesAndGoes: only what differs on the bus is published.
func TestSyncWhereAProjectionComesAndGoes(t *testing.T) {
	const small, whole = `"spec":1`, `"spec":1,"noise":2`
	digest := withDigest(t, sent("A", "10", small)).Digest
	for name, c := range map[string]struct {
		live    *event.Object
		acked   event.Digest
		bus     *event.Object
		readErr error
		epoch   uint16
		want    string // id, "" for none
	}{
		"it comes, as history went back":                    {live: withDigest(t, sent("A", "9", small)), bus: sent("A", "10", small), epoch: 1, want: "A.9"},
		"it comes, and leaves out nothing of this":          {live: withDigest(t, sent("A", "10", small)), bus: sent("A", "10", small)},
		"it comes, and leaves out something":                {live: cut(withDigest(t, sent("A", "10", small))), bus: sent("A", "10", whole), want: "A.10.projected.7"},
		"it comes, and a change is only in what it leaves":  {live: withDigest(t, sent("A", "11", small)), bus: sent("A", "10", small)},
		"it comes, and the object has changed":              {live: withDigest(t, sent("A", "11", small)), bus: sent("A", "10", `"spec":3`), want: "A.11"},
		"it comes, and the bus has lost the state":          {live: cut(withDigest(t, sent("A", "10", small))), want: "A.10.projected.7"},
		"it comes, and had come before: the bus has it cut": {live: cut(withDigest(t, sent("A", "10", small))), bus: sent("A", "10", small)},
		"it comes, and the bus cannot be read":              {live: cut(withDigest(t, sent("A", "10", small))), readErr: errors.New("away"), want: "error"},
		"it goes, and had left out nothing of this":         {live: sent("A", "10", small), acked: digest},
		"it goes, and had left out something":               {live: sent("A", "10", whole), acked: digest, want: "A.10.projected.7"},
		"it goes, and the object has changed":               {live: sent("A", "11", small), acked: digest, want: "A.11"},
		"it changes":                                        {live: withDigest(t, sent("A", "10", whole)), acked: digest, want: "A.10.projected.7"},
	} {
		t.Run(name, func(t *testing.T) {
			acked := live("A", "10")
			acked.Digest = c.acked
			v := view(c.live)
			v.Epoch = c.epoch
			b := &bench{view: v, acked: acked, last: c.bus, readErr: c.readErr, answer: []Outcome{{Position: 8}}}
			_, err := b.sync(t)
			got := ""
			switch {
			case err != nil:
				got = "error"
			case len(b.sent) > 0:
				got = b.sent[0].ID
			}
			if got != c.want {
				t.Fatalf("published %q (%v), want %q", got, err, c.want)
			}
			if err == nil && b.acked.Digest != c.live.Digest {
				t.Errorf("the checkpoint has the digest %s, want %s", b.acked.Digest, c.live.Digest)
			}
			if got == "" && (len(b.settled) != 1 || b.settled[0].ResourceVersion != c.live.ResourceVersion) {
				t.Errorf("settled %+v, want that the version of the cluster is covered", b.settled)
			}
		})
	}
}

// TestSyncTellsWhatChanged, as compared with the last state that was acknowledged.
func TestSyncTellsWhatChanged(t *testing.T) {
	before, after := sent("A", "10", `"spec":1,"same":0`), sent("A", "11", `"spec":2,"same":0`)
	for name, c := range map[string]struct {
		known, bus *event.Object
		readErr    error
		want       string
	}{
		"it is remembered":           {known: before, want: "/spec"},
		"it is read from the bus":    {bus: before, want: "/spec"},
		"the bus has lost it":        {},
		"the bus has another object": {bus: sent("B", "10", `"spec":1`)},
		"the bus cannot be read":     {readErr: errors.New("away")},
		"the bus has a part of it":   {bus: &event.Object{UID: "A", ResourceVersion: "10"}},
	} {
		t.Run(name, func(t *testing.T) {
			v := view(after)
			v.Before = c.known
			b := &bench{view: v, acked: live("A", "10"), last: c.bus, readErr: c.readErr, answer: []Outcome{{Position: 8}}}
			if _, err := b.sync(t); err != nil || len(b.sent) != 1 {
				t.Fatalf("%d publishes, error %v; want one", len(b.sent), err)
			}
			if got := b.sent[0].Attribute("changed"); got != c.want {
				t.Errorf("changed is %q, want %q", got, c.want)
			}
			if len(b.states) != 1 || b.states[0] != after {
				t.Errorf("told that the bus has %v, want the new state", b.states)
			}
		})
	}
}

// TestSyncTooLargeWithItsStateBefore: the object comes first.
func TestSyncTooLargeWithItsStateBefore(t *testing.T) {
	v := view(sent("A", "11", `"spec":2`))
	v.Before = sent("A", "10", `"spec":1`)
	b := &bench{view: v, acked: live("A", "10"), answer: []Outcome{{Err: errors.New("big"), TooLarge: true}, {Position: 8}}}
	f := b.forwarder()
	f.Builder.Data = event.DataChange
	var data string // of the last, which is given back once it is acknowledged
	f.Publish = func(ctx context.Context, m *event.Message, done func(Outcome)) {
		data = string(m.Data)
		b.publish(ctx, m, done)
	}
	if _, err := syncOnce(t, f); err != nil || len(b.sent) != 2 {
		t.Fatalf("%d publishes, error %v; want two", len(b.sent), err)
	}
	if b.sent[1].Attribute("truncated") != "" || !strings.Contains(data, `"spec":2`) || !strings.Contains(data, `"previous":null`) {
		t.Errorf("published %s", data)
	}
}
