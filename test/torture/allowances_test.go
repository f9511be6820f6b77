package torture

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/test/harness"
)

// object identifies the object of the messages in these tests.
var object = map[string]string{"partitionkey": clusterName + "/core/configmaps/world1-a/c1", "uid": "u"}

// message returns a message about the object, with a sequence in the stream. The attributes come
// in pairs.
func message(sequence uint64, kind string, attributes ...string) harness.Received {
	m := harness.Received{Subject: "one", Place: harness.Place{Life: 1, Sequence: sequence}, Attributes: map[string]string{
		"partitionkey": object["partitionkey"], "uid": object["uid"], "type": "io.kuberelay.object." + kind,
		"resourceversion": fmt.Sprint(sequence), "sequence": "0000." + fmt.Sprint(sequence), "cause": "watch",
	}}
	for n := 0; n < len(attributes); n += 2 {
		m.Attributes[attributes[n]] = attributes[n+1]
	}
	return m
}

// checkOf returns the check of a stream with these messages. Each run after the first begins at the
// message with the index in its field from.
func checkOf(runs []run, all ...harness.Received) *streamCheck {
	w := &world{settings: settings{sink: onNATS, retention: 24 * time.Hour}, runs: runs, user: &user{unlabeled: map[string]bool{}, orphaned: map[string]bool{}}}
	c := &streamCheck{world: w, read: map[harness.Place]int{}}
	c.anew(1)
	for n, m := range all {
		c.read[m.Place], c.last[m.Subject] = n, m
	}
	return c
}

var (
	plain   = run{}
	labeled = run{configuration: configuration{labels: true}}
)

// TestMayExist verifies when an object may exist although an event reported its delete.
func TestMayExist(t *testing.T) {
	uid, key := object["uid"], object["partitionkey"]
	from := func(r run, n int) run { r.from = map[string]int{"": n}; return r }
	for _, test := range []struct {
		name                string
		runs                []run
		unlabeled, orphaned string
		restored            bool
		deleted             []string // attributes
		mayExist            bool
	}{
		{name: "never", runs: []run{plain}},
		{name: "label selector, object kept its label", runs: []run{labeled}},
		{name: "label selector, another object lost its label", runs: []run{labeled}, unlabeled: "another"},
		{name: "label selector, object lost its label", runs: []run{labeled}, unlabeled: uid, mayExist: true},
		{name: "label selector, answer was lost", runs: []run{labeled}, unlabeled: key, mayExist: true},
		{name: "label selector, delete was inferred", runs: []run{labeled}, unlabeled: uid, deleted: []string{"cause", "reconcile"}},
		{name: "label selector in a later run", runs: []run{plain, from(labeled, 1)}, unlabeled: uid},
		{name: "label selector in an earlier run", runs: []run{labeled, from(plain, 0)}, unlabeled: uid},
		{name: "label selector in this run", runs: []run{plain, from(labeled, 0)}, unlabeled: uid, mayExist: true},
		{name: "field selector", runs: []run{{configuration: configuration{fields: true}}}, unlabeled: uid},
		{name: "definition gone without its objects", runs: []run{plain}, orphaned: configMaps, deleted: []string{"cause", "reconcile"}, mayExist: true},
		{name: "definition gone, delete was seen", runs: []run{plain}, orphaned: configMaps},
		{name: "another definition gone", runs: []run{plain}, orphaned: widgets, deleted: []string{"cause", "reconcile"}},
		{name: "history went back", runs: []run{plain}, restored: true, mayExist: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			deleted := message(1, "deleted", test.deleted...)
			c := checkOf(test.runs, deleted)
			c.world.restored = test.restored
			c.world.user.unlabeled[test.unlabeled], c.world.user.orphaned[test.orphaned] = true, true
			if got := c.mayExist(deleted); got != test.mayExist {
				t.Errorf("may exist: %v, want %v", got, test.mayExist)
			}
		})
	}
}

// TestPoint verifies which states may follow a consistency point.
func TestPoint(t *testing.T) {
	last := message(5, "created", "apiversion", "v1")
	for _, test := range []struct {
		name      string
		m         harness.Received
		shaped    bool
		remodeled string
		deleted   bool // the last event is a delete of an object that exists
		purges    bool
		wrong     bool
	}{
		{name: "a later version", m: message(9, "updated", "apiversion", "v1")},
		{name: "an earlier version", m: message(7, "updated", "apiversion", "v1"), wrong: true},
		{name: "an earlier version, shaped", m: message(7, "updated", "apiversion", "v1"), shaped: true, wrong: true},
		{name: "an earlier version in another version of the API, shaped", m: message(7, "updated", "apiversion", "v2"), shaped: true},
		{name: "an earlier version in another version of the API", m: message(7, "updated", "apiversion", "v2"), wrong: true},
		{name: "an earlier version after a change of the definition, shaped", m: message(7, "updated", "apiversion", "v1"), shaped: true, remodeled: configMaps},
		{name: "an earlier version after a change of another definition, shaped", m: message(7, "updated", "apiversion", "v1"), shaped: true, remodeled: widgets, wrong: true},
		{name: "an earlier version after a purged delete", m: message(5, "created"), deleted: true, purges: true},
		{name: "an earlier version after a delete", m: message(5, "created"), deleted: true, wrong: true},
		{name: "an earlier version of another object, shaped", m: message(7, "created", "uid", "another", "apiversion", "v2"), shaped: true, wrong: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			last.Subject, test.m.Subject = "kuberelay.torture.core.configmaps.world1-a.c1", "kuberelay.torture.core.configmaps.world1-a.c1"
			test.m.Attributes["id"] = test.m.Attributes["uid"] + "." + test.m.Attributes["resourceversion"]
			last := last
			if test.deleted {
				last = message(5, "deleted", "cause", "reconcile")
				last.Subject = test.m.Subject
			}
			c := checkOf([]run{plain}, last)
			c.world.user.orphaned[configMaps] = true
			if test.purges {
				c.world.settings.retention = time.Second
			}
			c.conf.shaped, c.world.settings.replicas = test.shaped, 2
			c.world.user.remodeled = map[string]bool{test.remodeled: true}
			c.points[pointOf(test.m)] = 8
			c.point(test.m)
			if got := len(c.problems) > 0; got != test.wrong {
				t.Errorf("wrong: %v, want %v: %v", got, test.wrong, c.problems)
			}
		})
	}
}

// TestIDs verifies the ids of an object's events in a world whose faults allow additional ids for
// other objects.
func TestIDs(t *testing.T) {
	begun, same := message(5, "created"), []string{"resourceversion", "5", "sequence", "0000.5"}
	gone := func(kind string) harness.Received { return message(5, kind) }
	another := message(5, "deleted", "uid", "another")
	for _, test := range []struct {
		name string
		last harness.Received
		m    harness.Received
		want []string
	}{
		{"a later version", begun, message(7, "updated"), []string{"u.7"}},
		{"other content in the same version", begun, message(7, "updated", same...), []string{"u.5.projected.5"}},
		{"another object of the name", another, message(7, "created"), []string{"u.7"}},
		{"another object in the same version", another, message(7, "created", same...), []string{"u.5"}},
		{"selected again in a later version", gone("deselected"), message(7, "created"), []string{"u.7"}},
		{"selected again in the same version", gone("deselected"), message(7, "created", same...), []string{"u.5.selected.5"}},
		{"outlived its delete", gone("deleted"), message(7, "created", same...), []string{"u.5.selected.5"}},
		{"in the version of its delete of another epoch", gone("deleted"), message(7, "created", "resourceversion", "5", "sequence", "0001.5"), []string{"u.5"}},
		{"exists in a later version than its delete", gone("deleted"), message(7, "created"), []string{"u.7"}},
		{"deleted", begun, message(7, "deleted"), []string{"u.deleted"}},
		{"deselected", begun, message(7, "deselected"), []string{"u.deselected.5"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := checkOf([]run{plain, labeled, plain}, test.last)
			c.world.restored = true
			c.world.user.orphaned[configMaps], c.world.user.remodeled = true, map[string]bool{configMaps: true}
			if got := c.ids(test.m); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestIDsAfterALoss verifies the ids of an object that returns after the bus lost its last event.
func TestIDsAfterALoss(t *testing.T) {
	same := []string{"resourceversion", "5", "sequence", "0000.5"}
	for name, test := range map[string]struct {
		lost harness.Received
		m    harness.Received
		want []string
	}{
		"its removal":                       {message(5, "deleted"), message(7, "created", same...), []string{"u.5", "u.5.selected.5"}},
		"a state":                           {message(5, "updated"), message(7, "created", same...), []string{"u.5"}},
		"its removal in an earlier version": {message(5, "deleted"), message(7, "created"), []string{"u.7"}},
		"the removal of another":            {message(5, "deleted", "uid", "another"), message(7, "created", same...), []string{"u.5"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := checkOf([]run{plain}, message(4, "created"))
			clear(c.last)
			c.lost = map[string]harness.Received{test.lost.Subject: test.lost}
			if got := c.ids(test.m); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestAnswersOther verifies which events answer another forwarder's event. The API server has
// returned only version 5 of the object.
func TestAnswersOther(t *testing.T) {
	last := message(5, "updated")
	terminating := message(5, "updated", "resourceversion", "6")
	terminating.Data = []byte(`{"metadata":{"deletionTimestamp":"2026-11-30T12:00:00Z"}}`)
	answer := func(id string) harness.Received { return message(6, "deleted", "id", id) }
	for name, c := range map[string]struct {
		m, last harness.Received
		foreign bool
		want    bool
	}{
		"the event before":                 {m: answer("u.deleted.repaired.5"), last: last, want: true},
		"an earlier event":                 {m: answer("u.deleted.repaired.4"), last: last},
		"not an answer":                    {m: answer("u.deleted"), last: last},
		"a foreign event":                  {m: answer("u.deleted.repaired.5"), last: last, foreign: true},
		"a state that was never returned":  {m: answer("u.deleted.repaired.5"), last: message(5, "updated", "resourceversion", "6")},
		"a state of an object never known": {m: answer("v.deleted.repaired.5"), last: message(5, "updated", "uid", "v")},
		"a state that a controller saw":    {m: answer("u.deleted.repaired.5"), last: terminating, want: true},
		"a removal":                        {m: answer("u.deleted.repaired.5"), last: message(5, "deleted", "resourceversion", "6"), want: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := checkOf([]run{plain}).world
			w.user.states = map[string][]byte{"u.5": []byte("{}")}
			if c.foreign {
				w.foreign.at = map[harness.Place]bool{c.last.Place: true}
			}
			if got := w.answersOther(c.m, c.last); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// TestDeletesOther verifies which events delete an object that another forwarder published right
// before, in a state that a restore of etcd removed.
func TestDeletesOther(t *testing.T) {
	deleted := func(attributes ...string) harness.Received {
		return message(6, "deleted", append([]string{"resourceversion", ""}, attributes...)...)
	}
	for name, c := range map[string]struct {
		m, last harness.Received
		foreign bool
		want    bool
	}{
		"of its object":            {m: deleted(), last: message(5, "created"), want: true},
		"with a version":           {m: message(6, "deleted"), last: message(5, "created")},
		"of another object":        {m: deleted("uid", "v"), last: message(5, "created")},
		"after a delete":           {m: deleted(), last: message(5, "deleted")},
		"after a foreign event":    {m: deleted(), last: message(5, "created"), foreign: true},
		"an update has no version": {m: message(6, "updated", "resourceversion", ""), last: message(5, "created")},
	} {
		t.Run(name, func(t *testing.T) {
			w := checkOf([]run{plain}).world
			if c.foreign {
				w.foreign.at = map[harness.Place]bool{c.last.Place: true}
			}
			if got := w.deletesOther(c.m, c.last); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// TestDigestOfACopy verifies the digest of an event that follows a foreign message. The message is a
// copy of an event of an earlier configuration, which dropped fields.
func TestDigestOfACopy(t *testing.T) {
	const dropped, text = "9263b73c8031e6eb1d8b21b2b3cbdd60", "9263b73c8031e6eb"
	for name, c := range map[string]struct {
		foreign string // digest of the foreign message
		before  bool   // the foreign message is the last one before the event
		kind    string
		wrong   bool
	}{
		"the last state is the copy":        {dropped, true, "deleted", false},
		"the last state is another one":     {text, true, "deleted", true},
		"the copy was answered":             {dropped, false, "deleted", true},
		"the state of an object that is":    {dropped, true, "updated", true},
		"deselected, the state is the copy": {dropped, true, "deselected", false},
	} {
		t.Run(name, func(t *testing.T) {
			check := checkOf([]run{plain}, message(1, "created"))
			check.foreignMessage(message(2, "created", "digest", c.foreign))
			check.foreign["one"] = c.before
			check.shape(message(3, c.kind, "digest", dropped), nil)
			if wrong := len(check.problems) > 0; wrong != c.wrong {
				t.Errorf("problems are %q, want some: %v", check.problems, c.wrong)
			}
		})
	}
}

// TestUnrecordedForeignMessage verifies that an event may answer a foreign message that the stream
// dropped before the recorder received it.
func TestUnrecordedForeignMessage(t *testing.T) {
	answer := message(9, "created", "id", "u.5.repaired.7")
	for name, c := range map[string]struct {
		written  uint64 // sequence of the foreign message
		received bool   // by the recorder
		want     bool
	}{
		"dropped":            {written: 7, want: true},
		"received":           {written: 7, received: true},
		"at another place":   {written: 6},
		"not at all written": {},
	} {
		t.Run(name, func(t *testing.T) {
			check := checkOf([]run{plain})
			foreign := message(c.written, "created")
			check.world.foreign.at = map[harness.Place]bool{foreign.Place: true}
			if c.received {
				check.foreignMessage(foreign)
			}
			if got, ok := check.unrecorded(answer); ok != c.want || ok && positionOf(got) != "7" {
				t.Errorf("got %v, %v, want %v", got.Place, ok, c.want)
			}
		})
	}
}

// TestLogsUnanswered verifies which lines of a forwarder's log show an unacknowledged publish.
func TestLogsUnanswered(t *testing.T) {
	last, m := message(5, "created"), message(9, "updated")
	line := func(level, id, more string) string {
		return fmt.Sprintf(`{"level":%q,"msg":"publish failed, retrying","event_id":%q%s}`+"\n", level, id, more)
	}
	for name, test := range map[string]struct {
		log string
		is  bool
	}{
		"nothing failed":               {`{"level":"DEBUG","msg":"event acknowledged","event_id":"u.7"}` + "\n", false},
		"between":                      {line("WARN", "u.7", ""), true},
		"between, with a longer id":    {line("WARN", "u.7.selected.3", ""), true},
		"this event, before":           {line("WARN", "u.9", ""), true},
		"not sent":                     {line("DEBUG", "u.7", ""), false},
		"before the last event":        {line("WARN", "u.4", ""), false},
		"after this event":             {line("WARN", "u.10", ""), false},
		"another object":               {line("WARN", "o.7", ""), false},
		"others may be suppressed":     {strings.Repeat(line("WARN", "o.7", ""), 5), true},
		"four lines":                   {strings.Repeat(line("WARN", "o.7", ""), 4), false},
		"stands for other objects too": {line("WARN", "o.7", `,"suppressed":3`), true},
	} {
		if got := logsUnanswered(test.log, last, m); got != test.is {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

// lossyBus is a bus that has lost the last event of an object and keeps no other event of it.
type lossyBus struct {
	bus
	all []harness.Received
}

func (b lossyBus) All() ([]harness.Received, bool, error) { return b.all, false, nil }

func (b lossyBus) purged(context.Context, harness.Received) (bool, error) { return true, nil }

// TestALostDeleteLeavesNoRow verifies that a table has no row for an object whose delete the bus has
// lost, if the bus keeps only one event of each object.
func TestALostDeleteLeavesNoRow(t *testing.T) {
	all := []harness.Received{message(1, "created"), message(2, "deleted"), message(3, "created", "partitionkey", "other")}
	for n := range all {
		all[n].Subject, all[n].Body = "kuberelay."+clusterName+"."+all[n].Attributes["partitionkey"], []byte("{}")
	}
	w := &world{settings: settings{sink: onNATS}, lost: map[harness.Place]bool{all[1].Place: true}, bus: lossyBus{all: all}}
	rows, err := w.shown(t.Context())
	if err != nil || !maps.Equal(rows, map[string]bool{all[2].Subject: true}) {
		t.Errorf("the tables have %v, %v; want B's row", rows, err)
	}
}
