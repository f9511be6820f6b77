package informers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/internal/event"
)

var (
	testResource = event.Resource{Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true}
	testKey      = testResource.Key("default", "web")
)

func object(uid, version string) *event.Object {
	return &event.Object{
		Namespace: "default", Name: "web", UID: types.UID(uid), ResourceVersion: version, Body: event.JSON([]byte(`{}`)),
	}
}

func live(uid, version string) event.Acked { return event.Acked{UID: uid, ResourceVersion: version} }

func deleted(uid, version string) event.Acked {
	return event.Acked{UID: uid, ResourceVersion: version, Deleted: true}
}

// describeDirty writes what is remembered of the key: the reported state, and in
// brackets the tombstones, with a question mark where the object is not known.
func describeDirty(d *dirty) string {
	m, ok := d.entries[testKey]
	if !ok {
		return "nothing"
	}
	var words []string
	if m.uid != "" {
		words = append(words, m.uid+"."+m.version)
	}
	if m.firstSync {
		words = append(words, "first")
	}
	for _, t := range m.tombstones {
		state := "?"
		if t.Object != nil {
			state = t.Object.ResourceVersion
		}
		words = append(words, fmt.Sprintf("[%s.%s]", t.UID, state))
	}
	return strings.Join(words, " ")
}

func TestDirty(t *testing.T) {
	observe := func(uid, version string) func(*dirty) {
		return func(d *dirty) {
			d.observe(testKey, nil, object(uid, version), event.CauseWatch, false, time.Unix(1, 0))
		}
	}
	first := func(uid, version string) func(*dirty) {
		return func(d *dirty) {
			d.observe(testKey, nil, object(uid, version), event.CauseSnapshot, true, time.Unix(1, 0))
		}
	}
	bury := func(uid, version string) func(*dirty) {
		return func(d *dirty) {
			d.bury(testKey, event.Tombstone{UID: uid, Cause: event.CauseWatch, Object: object(uid, version)})
		}
	}
	infer := func(uid string) func(*dirty) {
		return func(d *dirty) { d.bury(testKey, event.Tombstone{UID: uid, Cause: event.CauseReconcile}) }
	}
	settle := func(a event.Acked) func(*dirty) { return func(d *dirty) { d.settle(testKey, a, "") } }
	abandon := func(d *dirty) { d.abandon(func(k event.Key) bool { return k == testKey }) }
	abandonOther := func(d *dirty) { d.abandon(func(k event.Key) bool { return k != testKey }) }

	for name, c := range map[string]struct {
		steps []func(*dirty)
		want  string
		first int // objects of the first sync that are left
	}{
		"reported":                          {[]func(*dirty){observe("A", "1")}, "A.1", 0},
		"reported again":                    {[]func(*dirty){observe("A", "1"), observe("A", "2")}, "A.2", 0},
		"acknowledged":                      {[]func(*dirty){observe("A", "1"), settle(live("A", "1"))}, "nothing", 0},
		"an earlier state acknowledged":     {[]func(*dirty){observe("A", "2"), settle(live("A", "1"))}, "A.2", 0},
		"a later state acknowledged before": {[]func(*dirty){observe("A", "1"), settle(live("A", "2"))}, "A.1", 0}, // its report is on its way
		"another UID acknowledged":          {[]func(*dirty){observe("B", "2"), settle(live("A", "2"))}, "B.2", 0},
		"its delete acknowledged":           {[]func(*dirty){observe("A", "1"), settle(deleted("A", "1"))}, "A.1", 0},
		"nothing on the bus":                {[]func(*dirty){observe("A", "1"), settle(event.Acked{})}, "A.1", 0},

		"deleted":                                  {[]func(*dirty){bury("A", "3")}, "[A.3]", 0},
		"deleted, the bus shows it":                {[]func(*dirty){bury("A", "3"), settle(live("A", "2"))}, "[A.3]", 0},
		"deleted, the bus has the delete":          {[]func(*dirty){bury("A", "3"), settle(deleted("A", "3"))}, "nothing", 0},
		"deleted, the bus never had it":            {[]func(*dirty){bury("A", "3"), settle(event.Acked{})}, "nothing", 0},
		"deleted before it was published":          {[]func(*dirty){observe("A", "1"), bury("A", "1")}, "[A.1]", 0},
		"deleted while an update is in flight":     {[]func(*dirty){observe("A", "2"), bury("A", "3"), settle(live("A", "2"))}, "[A.3]", 0},
		"deleted twice, the object stays":          {[]func(*dirty){bury("A", "3"), infer("A")}, "[A.3]", 0},
		"a delete inferred and then reported":      {[]func(*dirty){infer("A"), bury("A", "3")}, "[A.3]", 0},
		"a delete inferred":                        {[]func(*dirty){infer("A")}, "[A.?]", 0},
		"deleted and back":                         {[]func(*dirty){bury("A", "3"), observe("A", "5")}, "A.5", 0},
		"recreated":                                {[]func(*dirty){bury("A", "3"), observe("B", "5")}, "B.5 [A.3]", 0},
		"recreated, the delete acknowledged":       {[]func(*dirty){bury("A", "3"), observe("B", "5"), settle(deleted("A", "3"))}, "B.5", 0},
		"recreated, all acknowledged":              {[]func(*dirty){bury("A", "3"), observe("B", "5"), settle(deleted("A", "3")), settle(live("B", "5"))}, "nothing", 0},
		"recreated, the old state in flight":       {[]func(*dirty){bury("A", "3"), observe("B", "5"), settle(live("A", "3"))}, "B.5 [A.3]", 0},
		"recreated and deleted":                    {[]func(*dirty){bury("A", "3"), observe("B", "5"), bury("B", "6")}, "[A.3] [B.6]", 0},
		"recreated and deleted, the bus shows A":   {[]func(*dirty){bury("A", "3"), bury("B", "6"), settle(live("A", "3"))}, "[A.3]", 0},
		"recreated and deleted, the bus shows B":   {[]func(*dirty){bury("A", "3"), bury("B", "6"), settle(live("B", "5"))}, "[B.6]", 0},
		"recreated and deleted, A's delete landed": {[]func(*dirty){bury("A", "3"), bury("B", "6"), settle(deleted("A", "3"))}, "nothing", 0},
		"the old UID's delete comes late":          {[]func(*dirty){observe("B", "5"), bury("A", "3")}, "B.5 [A.3]", 0},

		"first sync":                             {[]func(*dirty){first("A", "1")}, "A.1 first", 1},
		"first sync, acknowledged":               {[]func(*dirty){first("A", "1"), settle(live("A", "1"))}, "nothing", 0},
		"first sync, listed twice":               {[]func(*dirty){first("A", "1"), first("A", "1"), settle(live("A", "1"))}, "nothing", 0},
		"first sync, updated before published":   {[]func(*dirty){first("A", "1"), observe("A", "2"), settle(live("A", "1"))}, "A.2 first", 1},
		"first sync, the update acknowledged":    {[]func(*dirty){first("A", "1"), observe("A", "2"), settle(live("A", "2"))}, "nothing", 0},
		"first sync, deleted before published":   {[]func(*dirty){first("A", "1"), bury("A", "1")}, "[A.1]", 0},
		"first sync, recreated before published": {[]func(*dirty){first("A", "1"), bury("A", "1"), observe("B", "3")}, "B.3 [A.1]", 0},

		"informer stopped":                  {[]func(*dirty){first("A", "1"), abandon}, "nothing", 0},
		"informer stopped, delete due":      {[]func(*dirty){bury("A", "3"), first("B", "5"), abandon}, "[A.3]", 0},
		"another informer stopped":          {[]func(*dirty){bury("A", "3"), first("B", "5"), abandonOther}, "B.5 first [A.3]", 1},
		"informer stopped and started":      {[]func(*dirty){first("A", "1"), abandon, first("A", "1")}, "A.1 first", 1},
		"settled, nothing was remembered":   {[]func(*dirty){settle(live("A", "1"))}, "nothing", 0},
		"settled before the first report":   {[]func(*dirty){settle(live("A", "1")), first("A", "1")}, "A.1 first", 1},
		"reported after it had landed":      {[]func(*dirty){first("A", "1"), settle(live("A", "2")), observe("A", "2"), settle(live("A", "2"))}, "nothing", 0},
		"a state that is acknowledged anew": {[]func(*dirty){observe("A", "1"), settle(live("A", "1")), observe("A", "1")}, "A.1", 0},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDirty()
			for _, step := range c.steps {
				step(d)
			}
			if got := describeDirty(d); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if got := d.firstSyncLeft(testResource.GroupResource()); got != c.first {
				t.Errorf("%d of the first sync are left, want %d", got, c.first)
			}
			if got, want := d.len(), len(d.entries); got != want {
				t.Errorf("len is %d, want %d", got, want)
			}
		})
	}
}

// TestDirtyDescribes: what was reported of another UID than the live one says
// nothing about the live one, and a view shares nothing with what is kept.
func TestDirtyDescribes(t *testing.T) {
	d := newDirty()
	d.bury(testKey, event.Tombstone{UID: "A", Object: object("A", "3")})
	d.observe(testKey, nil, object("B", "5"), event.CauseSnapshot, true, time.Unix(7, 0))
	for name, c := range map[string]struct {
		live *event.Object
		want event.View
	}{
		"the UID reported":                {object("B", "5"), event.View{Cause: event.CauseSnapshot, Observed: time.Unix(7, 0), FirstSync: true}},
		"the UID reported, in a later RV": {object("B", "6"), event.View{Cause: event.CauseSnapshot, Observed: time.Unix(7, 0), FirstSync: true}},
		"another UID":                     {object("C", "9"), event.View{}},
		"nothing live":                    {nil, event.View{}},
	} {
		t.Run(name, func(t *testing.T) {
			v := event.View{Live: c.live}
			d.describe(testKey, &v)
			if v.Cause != c.want.Cause || v.Observed != c.want.Observed || v.FirstSync != c.want.FirstSync {
				t.Errorf("got %+v, want %+v", v, c.want)
			}
			if len(v.Tombstones) != 1 || v.Tombstones[0].UID != "A" {
				t.Fatalf("got tombstones %+v, want that of A", v.Tombstones)
			}
			v.Tombstones[0].UID = "changed"
		})
	}
	if got, want := describeDirty(d), "B.5 first [A.3]"; got != want {
		t.Errorf("a view changed what is kept: got %q, want %q", got, want)
	}
}

// While the bus is down a name may be taken again and again. What fails to be
// published is settled too, so that only the deletes are kept which the bus has to
// be told.
func TestTombstonesOfANameDoNotPileUp(t *testing.T) {
	d := newDirty()
	for n := range 100 {
		d.bury(testKey, event.Tombstone{UID: fmt.Sprint(n), Object: &event.Object{}})
		d.settle(testKey, event.Acked{UID: "0", ResourceVersion: "1"}, "7")
	}
	var v event.View
	d.describe(testKey, &v)
	var got []string
	for _, tomb := range v.Tombstones {
		got = append(got, tomb.UID)
	}
	if want := []string{"0", "7"}; !slices.Equal(got, want) {
		t.Errorf("tombstones of %v are kept, want %v: what the bus shows and what it may show", got, want)
	}
}
