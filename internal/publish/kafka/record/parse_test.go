package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
)

var (
	parser    = NewParser("c", "t.checkpoint")
	objectKey = event.PartitionKey("c", event.Key{Group: "apps", Resource: "deployments", Namespace: "default", Name: "web"})
)

// TestCheckpointRefuses verifies that a value that no forwarder writes is an error with a reason.
func TestCheckpointRefuses(t *testing.T) {
	valid := `"uid":"u","resourceVersion":"1","topic":"t"`
	claim, snapshot := event.ClaimPartitionKey("c"), "c/_control/snapshot/apps/deployments"
	tests := []struct {
		name, key, value string
		want             event.InvalidReason
	}{
		{"not JSON", objectKey, `{`, event.InvalidData},
		{"not an object", objectKey, `[]`, event.InvalidData},
		{"a negative partition", objectKey, `{` + valid + `,"partition":-1,"offset":0}`, event.InvalidPosition},
		{"a partition that overflows", objectKey, `{` + valid + `,"partition":65536,"offset":0}`, event.InvalidPosition},
		{"a partition over any integer", objectKey, `{` + valid + `,"partition":1e40,"offset":0}`, event.InvalidData},
		{"a negative offset", objectKey, `{` + valid + `,"partition":0,"offset":-1}`, event.InvalidPosition},
		{"an offset that overflows", objectKey, `{` + valid + `,"partition":0,"offset":281474976710655}`, event.InvalidPosition},
		{"the highest offset", objectKey, `{` + valid + `,"partition":0,"offset":9223372036854775807}`, event.InvalidPosition},
		{"a negative unread offset", objectKey, `{` + valid + `,"partition":0,"offset":1,"unread":-1}`, event.InvalidPosition},
		{"no topic", objectKey, `{"uid":"u"}`, event.InvalidPosition},
		{"a topic that cannot be", objectKey, `{"uid":"u","topic":"a/b"}`, event.InvalidPosition},
		{"no uid", objectKey, `{"topic":"t"}`, event.InvalidAttribute},
		{"an epoch after the last one", objectKey, `{` + valid + `,"epoch":10000}`, event.InvalidEpoch},
		{"an epoch that overflows", objectKey, `{` + valid + `,"epoch":65536}`, event.InvalidData},
		{"a digest that is none", objectKey, `{` + valid + `,"digest":"xyz"}`, event.InvalidData},
		{"a marker under an object's key", objectKey, `{"topic":"t","type":"io.kuberelay.snapshot.started","id":"i"}`, event.InvalidKey},
		{"an object under a marker's key", snapshot, `{` + valid + `}`, event.InvalidKey},
		{"another marker", snapshot, `{"topic":"t","type":"io.kuberelay.writer.started"}`, event.InvalidKey},
		{"a writer of another partition", event.WriterPartitionKey("c", "t", 1), `{"topic":"t","partition":2,"type":"io.kuberelay.writer.started"}`, event.InvalidKey},
		{"a writer of another topic", event.WriterPartitionKey("c", "t", 1), `{"topic":"u","partition":1,"type":"io.kuberelay.writer.started"}`, event.InvalidKey},
		{"an unknown type", objectKey, `{` + valid + `,"type":"x"}`, event.InvalidKey},
		{"a claim without a cluster", claim, `{"topic":"t","type":"io.kuberelay.cluster.claimed"}`, event.InvalidAttribute},
		{"a claim of an epoch after the last one", claim, `{` + valid + `,"epoch":65535,"type":"io.kuberelay.cluster.claimed"}`, event.InvalidEpoch},
		{"a key that names nothing", "c/x", `{` + valid + `}`, event.InvalidKey},
		{"a removed key that names nothing", "c/x", "", event.InvalidKey},
		{"a state that is not JSON", StateKey("c", "t"), `x`, event.InvalidData},
		{"a state of another topic", StateKey("c", "t"), `{"topic":"u"}`, event.InvalidKey},
		{"a state of a topic that cannot be", StateKey("c", "a b"), `{"topic":"a b"}`, event.InvalidKey},
		{"a negative number of partitions", StateKey("c", "t"), `{"topic":"t","partitions":-1}`, event.InvalidPosition},
		{"too many partitions", StateKey("c", "t"), `{"topic":"t","partitions":65537}`, event.InvalidPosition},
		{"a negative number of records", StateKey("c", "t"), `{"topic":"t","records":-1}`, event.InvalidPosition},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := broker.Record{Key: []byte(tt.key), Value: []byte(tt.value)}
			if tt.value == "" {
				r.Value = nil
			}
			c, err := parser.Checkpoint(r, 0)
			if err == nil || event.ReasonOf(err) != tt.want {
				t.Errorf("got %+v, %v of reason %s, want %s", c, err, event.ReasonOf(err), tt.want)
			}
		})
	}
}

// TestStateInAnotherPartition verifies that only a state in the first partition counts. Partitions
// are read concurrently, so a second state would replace the first at random.
func TestStateInAnotherPartition(t *testing.T) {
	r := broker.Record{Key: []byte(StateKey("c", "t")), Value: Marshal(State{Topic: "t", Partitions: 1})}
	if _, err := parser.Checkpoint(r, 1); event.ReasonOf(err) != event.InvalidPosition {
		t.Errorf("got %v, want an error with the reason %q", err, event.InvalidPosition)
	}
}

// TestCheckpoint verifies that the parser reads every record that forwarders write.
func TestCheckpoint(t *testing.T) {
	writer := Entry{Topic: "t", Partition: 1, Offset: 5, Type: event.WriterStarted, ID: "writer.s.t.1"}
	snapshot := Entry{Topic: "t", Type: event.SnapshotCompleted, ID: "i"}
	object := Entry{UID: "u", ResourceVersion: "7", Topic: "t", Partition: publish.MaxPartitions - 1, Offset: publish.MaxOffset, Epoch: event.LastEpoch, Time: math.MaxUint32}
	claim := Entry{UID: "u", Topic: "t", Type: event.ClusterClaimed}
	state := State{Topic: "t", Partitions: 3, Records: 3, Session: "s", Writer: "w"}
	tests := []struct {
		key   string
		value any
		want  Checkpoint
	}{
		{objectKey, object, Checkpoint{Kind: OfEvent, Entry: object}},
		{event.WriterPartitionKey("c", "t", 1), writer, Checkpoint{Kind: OfEvent, Entry: writer}},
		{"c/_control/snapshot/apps/deployments", snapshot, Checkpoint{Kind: OfEvent, Entry: snapshot}},
		{event.ClaimPartitionKey("c"), claim, Checkpoint{Kind: OfEvent, Entry: claim}},
		{StateKey("c", "t"), state, Checkpoint{Kind: OfTopic, State: state}},
		{objectKey, nil, Checkpoint{Kind: Removed}},
		{event.WriterPartitionKey("c", "t", 1), nil, Checkpoint{Kind: Removed}},
		{StateKey("c", "t"), nil, Checkpoint{}},
		{event.WriterPartitionKey("c", "t.checkpoint", 0), "an event", Checkpoint{}},
		{"another/apps/deployments/default/web", "anything", Checkpoint{}},
		{"c2/x", "anything", Checkpoint{}},
	}
	for _, tt := range tests {
		r := broker.Record{Key: []byte(tt.key)}
		if tt.value != nil {
			r.Value, _ = json.Marshal(tt.value)
		}
		if got, err := parser.Checkpoint(r, 0); err != nil || got != tt.want {
			t.Errorf("%s: got %+v, %v, want %+v", tt.key, got, err, tt.want)
		}
	}
	// A producer can set any time.
	for _, unix := range []int64{-1, math.MaxUint32 + 1, math.MaxInt64} {
		r := broker.Record{Key: []byte(objectKey), Value: fmt.Appendf(nil, `{"uid":"u","topic":"t","time":%d}`, unix)}
		if c, err := parser.Checkpoint(r, 0); err != nil || c.Entry.Time != 0 {
			t.Errorf("time %d: got %+v, %v", unix, c, err)
		}
	}
}

// message returns an object's event with some attributes replaced.
func message(t testing.TB, replace ...event.Attribute) broker.Record {
	t.Helper()
	k := event.Key{Group: "apps", Resource: "deployments", Namespace: "default", Name: "web"}
	m, err := event.Builder{Cluster: "c"}.Message(event.Change{
		Type: event.Created, Cause: event.CauseWatch, Key: k,
		Resource: event.Resource{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Namespaced: true},
		Object:   &event.Object{Namespace: "default", Name: "web", UID: "u", ResourceVersion: "7", APIVersion: "apps/v1", Kind: "Deployment", Body: event.JSON([]byte(`{}`))},
		Observed: time.Unix(1700000000, 0),
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := binding.Encode(m, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range replace {
		r.Headers = append(r.Headers, recordbatch.Header{Key: "ce_" + a.Name, Value: []byte(a.Value)}) // the last value counts
	}
	return broker.Record{Offset: 9, Time: time.Unix(1700000001, 0), Key: r.Key, Value: r.Value, Headers: r.Headers}
}

// TestEvent verifies that a valid event is read, and that anything invalid is an error.
func TestEvent(t *testing.T) {
	e, err := parser.Event(message(t), "t", 3)
	if want := (Entry{UID: "u", ResourceVersion: "7", Topic: "t", Partition: 3, Offset: 9, Time: 1700000001, At: 1700000000000}); err != nil || e != want {
		t.Errorf("got %+v, %v, want %+v", e, err, want)
	}
	// The retention of a delete begins at its time, so a producer must not be able to set a future
	// time.
	for _, at := range []time.Time{{}, time.UnixMilli(-1), time.Now().AddDate(1, 0, 0), time.Unix(math.MaxUint32+1, 0), time.Unix(math.MaxInt64>>10, 0)} {
		odd := message(t)
		odd.Time = at
		now := time.Now().Unix()
		if e, err := parser.Event(odd, "t", 3); err != nil || e.Time < now || e.Time > now+60 {
			t.Errorf("stored %v: got %+v, %v, want the time %d", at, e, err, now)
		}
	}
	for _, a := range []event.Attribute{
		{Name: "type", Value: "x"}, {Name: "type", Value: string(event.SnapshotStarted)}, {Name: "type", Value: string(event.WriterStarted)},
		{Name: "type", Value: string(event.ClusterClaimed)}, {Name: "sequence", Value: "65535.0"}, {Name: "sequence", Value: "9999999999999.7"},
		{Name: "specversion", Value: "2.0"}, {Name: "uid", Value: "\xff"}, {Name: "digest", Value: "x"},
	} {
		if e, err := parser.Event(message(t, a), "t", 3); err == nil {
			t.Errorf("%s=%s: got %+v", a.Name, a.Value, e)
		}
	}
	other := message(t)
	other.Key = []byte("c/x")
	if _, err := parser.Event(other, "t", 3); event.ReasonOf(err) != event.InvalidKey {
		t.Errorf("got %v of a key that names nothing", err)
	}
}

// TestControl verifies that a control record yields its entry, with or without a value, and that the
// entry says which. A consistency point yields no entry. Neither does a record without a value under
// the key of an object.
func TestControl(t *testing.T) {
	at, b := time.Unix(1700000000, 0), event.Builder{Cluster: "c"}
	writer, err := b.WriterStarted("w", "s", "t", 3, at)
	claim, err1 := b.ClusterClaimed(event.Claim{UID: "u", Epoch: 7, Claimed: at})
	r := event.Resource{Group: "apps", Version: "v1", Resource: "deployments"}
	snapshot, err2 := b.Marker(event.SnapshotCompleted, r, "s", 5, at)
	point, err3 := b.Resolved(event.Point{Resource: r, Version: "9", AsOf: at, Taken: at})
	if err := errors.Join(err, err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	place := Entry{Topic: "t", Partition: 3, Offset: 9, Time: 1700000000, NoValue: true}
	for _, test := range []struct {
		m    *event.Message
		want func(*Entry)
	}{
		{writer, func(e *Entry) { e.Type = event.WriterStarted }},
		{claim, func(e *Entry) { e.Type, e.UID, e.Epoch, e.Claim = event.ClusterClaimed, "u", 7, string(claim.Data) }},
		{snapshot, func(e *Entry) { e.Type = event.SnapshotCompleted }},
		{point, func(e *Entry) { *e = Entry{} }},
	} {
		want := place
		want.ID = test.m.ID
		test.want(&want)
		encoded, err := binding.EncodeControl(test.m)
		if err != nil {
			t.Fatal(err)
		}
		record := broker.Record{Offset: 9, Time: at, Key: encoded.Key, Headers: encoded.Headers}
		if e, err := parser.Event(record, "t", 3); err != nil || e != want {
			t.Errorf("%s: got %+v, %v, want %+v", test.m.ID, e, err, want)
		}
		record.Key = []byte(objectKey)
		if e, err := parser.Event(record, "t", 3); err != nil || e != (Entry{}) {
			t.Errorf("%s under the key of an object: got %+v, %v, want a tombstone", test.m.ID, e, err)
		}
		record.Key, record.Headers = encoded.Key, nil
		if e, err := parser.Event(record, "t", 3); err != nil || e != (Entry{}) {
			t.Errorf("%s without headers: got %+v, %v, want a tombstone", test.m.ID, e, err)
		}
		for _, structured := range []bool{false, true} { // earlier releases write a value
			if encoded, err = binding.Encode(test.m, structured); err != nil {
				t.Fatal(err)
			}
			record.Headers, record.Value = encoded.Headers, encoded.Value
			want.NoValue = false
			if e, err := parser.Event(record, "t", 3); err != nil || e != want {
				t.Errorf("%s with a value: got %+v, %v, want %+v", test.m.ID, e, err, want)
			}
		}
	}
	object := message(t)
	object.Key, object.Value = []byte(event.ClaimPartitionKey("c")), nil
	if e, err := parser.Event(object, "t", 3); event.ReasonOf(err) != event.InvalidKey {
		t.Errorf("an event of an object under the key of the claim, without a value: got %+v, %v", e, err)
	}
}

// TestTombstone verifies that a tombstone yields the entry of the removal directly before it, if the
// tombstone names that removal.
func TestTombstone(t *testing.T) {
	deleted := message(t, event.Attribute{Name: "type", Value: string(event.Deleted)})
	want, err := parser.Event(deleted, "t", 3)
	if err != nil {
		t.Fatal(err)
	}
	m, err := binding.Decode(deleted.Headers, deleted.Value)
	if err != nil {
		t.Fatal(err)
	}
	headers := binding.Tombstone(m).Headers
	tombstone := broker.Record{Key: deleted.Key, Offset: deleted.Offset + 1, Time: deleted.Time, Headers: headers}
	if e, err := parser.Event(tombstone, "t", 3); err != nil || e != want || !e.Deleted {
		t.Errorf("got %+v, %v, want %+v", e, err, want)
	}
	plain := tombstone
	plain.Headers = nil
	if e, err := parser.Event(plain, "t", 3); err != nil || e != (Entry{}) {
		t.Errorf("got %+v, %v of a tombstone without headers", e, err)
	}
	first := tombstone
	first.Offset = 0
	if e, err := parser.Event(first, "t", 3); event.ReasonOf(err) != event.InvalidPosition {
		t.Errorf("got %+v, %v of a tombstone with nothing before it", e, err)
	}
	for header, value := range map[string]string{"kuberelay_type": string(event.Created), "kuberelay_uid": "", "kuberelay_sequence": "x"} {
		invalid := tombstone
		invalid.Headers = append(slices.Clone(headers), recordbatch.Header{Key: header, Value: []byte(value)})
		if e, err := parser.Event(invalid, "t", 3); event.ReasonOf(err) != event.InvalidAttribute {
			t.Errorf("%s %q: got %+v, %v", header, value, e, err)
		}
	}
}

// wantValid fails the test unless an entry can be used without further checks.
func wantValid(t *testing.T, e Entry) {
	t.Helper()
	position := e.Position()
	if publish.Partition(position) != e.Partition || publish.Offset(position) != e.Offset || e.Epoch > event.LastEpoch || e.Acked().Time < 0 || e.Acked().Time > 1000*e.Time+event.MaxSkew.Milliseconds() {
		t.Errorf("%+v is not valid", e)
	}
}

func FuzzCheckpoint(f *testing.F) {
	f.Add([]byte(objectKey), []byte(`{"uid":"u","resourceVersion":"1","topic":"t","partition":1,"offset":2,"epoch":1,"time":5,"digest":"0123456789abcdef"}`))
	f.Add([]byte(StateKey("c", "t")), []byte(`{"topic":"t","partitions":3,"records":3}`))
	f.Add([]byte(event.WriterPartitionKey("c", "t", 1)), []byte(`{"topic":"t","partition":1,"type":"io.kuberelay.writer.started"}`))
	f.Add([]byte(event.ClaimPartitionKey("c")), []byte(`{"uid":"u","topic":"t","type":"io.kuberelay.cluster.claimed"}`))
	f.Fuzz(func(t *testing.T, key, value []byte) {
		c, err := parser.Checkpoint(broker.Record{Key: key, Value: value}, 0)
		switch {
		case err != nil:
		case c.Kind == OfEvent:
			wantValid(t, c.Entry)
		case c.Kind == OfTopic && (c.State.Partitions < 0 || c.State.Records < 0):
			t.Errorf("%+v is not valid", c.State)
		}
	})
}

func FuzzEvent(f *testing.F) {
	r := message(f)
	for _, h := range r.Headers {
		f.Add(string(r.Key), h.Key, string(h.Value), r.Value, int64(1700000000000))
	}
	f.Add(string(r.Key), "content-type", "application/cloudevents+json", []byte(`{"specversion":"1.0","id":"u.7","type":"io.kuberelay.object.created","sequence":"0000.00000000000000000007","uid":"u","resourceversion":"7"}`), int64(-1))
	f.Add(event.ClaimPartitionKey("c"), "ce_type", string(event.ClusterClaimed), []byte(`{"uid":"u","epoch":3}`), int64(0))
	f.Add(event.ClaimPartitionKey("c"), "kuberelay_data", `{"uid":"u","epoch":3}`, []byte(nil), int64(0))
	f.Fuzz(func(t *testing.T, key, name, value string, data []byte, millis int64) {
		r := message(t, event.Attribute{})
		r.Key, r.Value, r.Time = []byte(key), data, time.UnixMilli(millis)
		r.Headers = append(r.Headers, recordbatch.Header{Key: name, Value: []byte(value)})
		if e, err := parser.Event(r, "t", 1); err == nil && e != (Entry{}) {
			wantValid(t, e)
		}
		if _, err := binding.Decode(r.Headers, data); errors.Is(err, binding.ErrTombstone) != (data == nil) {
			t.Errorf("got %v", err)
		}
	})
}
