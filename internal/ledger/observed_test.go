package ledger

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
)

var (
	testResource = event.Resource{Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true}
	testKey      = testResource.Key("default", "web")
)

// wanted is the interest in an object that belongs on the bus.
var wanted = Interest{Selected: true, Published: true}

// wantedAfter is wanted after a number of reports.
func wantedAfter(reports uint64) Interest {
	return Interest{Selected: true, Published: true, Reports: reports}
}

// showsNothing means that an informer that stopped showed no object.
var showsNothing map[event.Key]string

// newLedger returns a ledger with a term.
func newLedger() *Ledger {
	l := New()
	l.NewTerm()
	return l
}

// describe formats the dirty part of testKey: the reported state and, in brackets, the tombstones. A
// question mark stands for an unknown last state.
func describe(d *Ledger) string {
	m := d.find(testKey).others().dirty
	if m == nil {
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
	if m.outlived != nil {
		words = append(words, fmt.Sprintf("outlived %d", m.confirmed().Position))
	}
	return strings.Join(words, " ")
}

func TestDirty(t *testing.T) {
	observe := func(uid, version string) func(*Ledger) {
		return func(d *Ledger) {
			d.Observe(testKey, nil, object(uid, version), event.CauseWatch, false, time.Unix(1, 0))
		}
	}
	first := func(uid, version string) func(*Ledger) {
		return func(d *Ledger) {
			d.Observe(testKey, nil, object(uid, version), event.CauseSnapshot, true, time.Unix(1, 0))
		}
	}
	bury := func(uid, version string) func(*Ledger) {
		return func(d *Ledger) {
			d.AddTombstone(testKey, event.Tombstone{UID: uid, Cause: event.CauseWatch, Object: object(uid, version)})
		}
	}
	leave := func(uid, version string) func(*Ledger) {
		return func(d *Ledger) {
			d.AddTombstone(testKey, event.Tombstone{UID: uid, Deselected: true, Cause: event.CauseWatch, Object: object(uid, version)})
		}
	}
	infer := func(uid string) func(*Ledger) {
		return func(d *Ledger) { d.AddTombstone(testKey, event.Tombstone{UID: uid, Cause: event.CauseReconcile}) }
	}
	settle := func(a event.Acked) func(*Ledger) {
		return func(d *Ledger) { d.term.Settle(testKey, a, wantedAfter(d.Reports()), a.UID) }
	}
	settleEarlier := func(a event.Acked) func(*Ledger) { // the last tombstone came after the informers were asked
		return func(d *Ledger) { d.term.Settle(testKey, a, wantedAfter(d.Reports()-1), a.UID) }
	}
	settleUnseen := func(a event.Acked) func(*Ledger) { // the informers show no object
		return func(d *Ledger) { d.term.Settle(testKey, a, wantedAfter(d.Reports()), "") }
	}
	acknowledge := func(a event.Acked) func(*Ledger) {
		return func(d *Ledger) { d.term.Acknowledge(testKey, a, nil, wanted) }
	}
	abandon := func(d *Ledger) { d.Abandon(func(k event.Key) bool { return k == testKey }, showsNothing) }
	abandonShown := func(uid string) func(*Ledger) { // the informer had not reported that the object returned
		return func(d *Ledger) { d.Abandon(all, map[event.Key]string{testKey: uid}) }
	}
	confirm := func(uid string) func(*Ledger) {
		return func(d *Ledger) {
			d.AddTombstone(testKey, event.Tombstone{UID: uid, Confirmed: true, Contradicts: 1, Cause: event.CauseReconcile})
		}
	}
	confirmAfterLoss := func(d *Ledger) { // the bus had lost the last event
		d.AddTombstone(testKey, event.Tombstone{UID: "A", Confirmed: true, Cause: event.CauseReconcile})
	}
	abandonOther := func(d *Ledger) { d.Abandon(func(k event.Key) bool { return k != testKey }, showsNothing) }

	for name, c := range map[string]struct {
		steps []func(*Ledger)
		want  string
		first int // keys that the first sync still waits for
	}{
		"reported":                          {[]func(*Ledger){observe("A", "1")}, "A.1", 0},
		"reported again":                    {[]func(*Ledger){observe("A", "1"), observe("A", "2")}, "A.2", 0},
		"acknowledged":                      {[]func(*Ledger){observe("A", "1"), settle(live("A", "1"))}, "nothing", 0},
		"an earlier state acknowledged":     {[]func(*Ledger){observe("A", "2"), settle(live("A", "1"))}, "A.2", 0},
		"a later state acknowledged before": {[]func(*Ledger){observe("A", "1"), settle(live("A", "2"))}, "A.1", 0}, // the informer will report that state too
		"another UID acknowledged":          {[]func(*Ledger){observe("B", "2"), settle(live("A", "2"))}, "B.2", 0},
		"its delete acknowledged":           {[]func(*Ledger){observe("A", "1"), settle(deleted("A", "1"))}, "A.1", 0},
		"nothing on the bus":                {[]func(*Ledger){observe("A", "1"), settle(event.Acked{})}, "A.1", 0},

		"deleted": {[]func(*Ledger){bury("A", "3")}, "[A.3]", 0},
		"deleted, returned unreported, abandoned":    {[]func(*Ledger){bury("A", "3"), abandonShown("A")}, "nothing", 0},
		"deselected, returned unreported, abandoned": {[]func(*Ledger){leave("A", "3"), abandonShown("A")}, "nothing", 0},
		"deleted, another UID unreported, abandoned": {[]func(*Ledger){bury("A", "3"), abandonShown("B")}, "[A.3]", 0},
		"a delete confirmed, shown, and abandoned":   {[]func(*Ledger){confirm("A"), abandonShown("A")}, "[A.?]", 0},
		"a delete confirmed after a loss":            {[]func(*Ledger){confirmAfterLoss, abandonShown("A")}, "[A.?]", 0},
		"deleted, the bus shows it":                  {[]func(*Ledger){bury("A", "3"), settle(live("A", "2"))}, "[A.3]", 0},
		"deleted, the bus has the delete":            {[]func(*Ledger){bury("A", "3"), settle(deleted("A", "3"))}, "nothing", 0},
		"deleted, the bus never had it":              {[]func(*Ledger){bury("A", "3"), settle(event.Acked{})}, "nothing", 0},
		"deleted before it was published":            {[]func(*Ledger){observe("A", "1"), bury("A", "1")}, "[A.1]", 0},
		"deleted while an update is in flight":       {[]func(*Ledger){observe("A", "2"), bury("A", "3"), settle(live("A", "2"))}, "[A.3]", 0},
		"deleted twice, the object stays":            {[]func(*Ledger){bury("A", "3"), infer("A")}, "[A.3]", 0},
		"a delete inferred and then reported":        {[]func(*Ledger){infer("A"), bury("A", "3")}, "[A.3]", 0},
		"a delete inferred":                          {[]func(*Ledger){infer("A")}, "[A.?]", 0},
		"deleted and back":                           {[]func(*Ledger){bury("A", "3"), observe("A", "5")}, "A.5", 0},
		"recreated":                                  {[]func(*Ledger){bury("A", "3"), observe("B", "5")}, "B.5 [A.3]", 0},
		"recreated, the delete acknowledged":         {[]func(*Ledger){bury("A", "3"), observe("B", "5"), settle(deleted("A", "3"))}, "B.5", 0},
		"recreated, all acknowledged":                {[]func(*Ledger){bury("A", "3"), observe("B", "5"), settle(deleted("A", "3")), settle(live("B", "5"))}, "nothing", 0},
		"recreated, the old state in flight":         {[]func(*Ledger){bury("A", "3"), observe("B", "5"), settle(live("A", "3"))}, "B.5 [A.3]", 0},
		"recreated and deleted":                      {[]func(*Ledger){bury("A", "3"), observe("B", "5"), bury("B", "6")}, "[A.3] [B.6]", 0},
		"recreated and deleted, the bus shows A":     {[]func(*Ledger){bury("A", "3"), bury("B", "6"), settle(live("A", "3"))}, "[A.3]", 0},
		"recreated and deleted, the bus shows B":     {[]func(*Ledger){bury("A", "3"), bury("B", "6"), settle(live("B", "5"))}, "[B.6]", 0},
		"recreated and deleted, A's delete landed":   {[]func(*Ledger){bury("A", "3"), bury("B", "6"), settle(deleted("A", "3"))}, "nothing", 0},
		"the old UID's delete comes late":            {[]func(*Ledger){observe("B", "5"), bury("A", "3")}, "B.5 [A.3]", 0},

		"deselected, and it is back":               {[]func(*Ledger){leave("A", "3"), settle(live("A", "3"))}, "nothing", 0},
		"deselected after the informers are asked": {[]func(*Ledger){leave("A", "3"), settleEarlier(live("A", "3"))}, "[A.3]", 0},
		"deselected, and gone from the informers":  {[]func(*Ledger){leave("A", "3"), settleUnseen(live("A", "3"))}, "[A.3]", 0},
		"deselected again while it is compared":    {[]func(*Ledger){leave("A", "3"), func(d *Ledger) { d.term.Settle(testKey, live("A", "3"), Interest{}, "") }}, "[A.3]", 0},
		"deselected, the bus shows it":             {[]func(*Ledger){leave("A", "3"), acknowledge(live("A", "3"))}, "[A.3]", 0},
		"deselected and deleted, and it is shown":  {[]func(*Ledger){leave("A", "3"), bury("A", "4"), settle(live("A", "3"))}, "[A.4]", 0},
		"first sync":                             {[]func(*Ledger){first("A", "1")}, "A.1 first", 1},
		"first sync, acknowledged":               {[]func(*Ledger){first("A", "1"), settle(live("A", "1"))}, "nothing", 0},
		"first sync, listed twice":               {[]func(*Ledger){first("A", "1"), first("A", "1"), settle(live("A", "1"))}, "nothing", 0},
		"first sync, updated before published":   {[]func(*Ledger){first("A", "1"), observe("A", "2"), settle(live("A", "1"))}, "A.2 first", 1},
		"first sync, the update acknowledged":    {[]func(*Ledger){first("A", "1"), observe("A", "2"), settle(live("A", "2"))}, "nothing", 0},
		"first sync, deleted before published":   {[]func(*Ledger){first("A", "1"), bury("A", "1")}, "[A.1]", 1},
		"first sync, deleted, and answered":      {[]func(*Ledger){first("A", "1"), bury("A", "1"), settle(live("A", "1"))}, "[A.1]", 0},
		"first sync, deleted, bus has nothing":   {[]func(*Ledger){first("A", "1"), bury("A", "1"), settle(event.Acked{})}, "nothing", 0},
		"first sync, recreated before published": {[]func(*Ledger){first("A", "1"), bury("A", "1"), observe("B", "3")}, "B.3 [A.1]", 1},
		"first sync, recreated, and answered":    {[]func(*Ledger){first("A", "1"), bury("A", "1"), observe("B", "3"), settle(live("A", "1"))}, "B.3 [A.1]", 0},

		"informer stopped":                  {[]func(*Ledger){first("A", "1"), abandon}, "nothing", 0},
		"informer stopped, delete due":      {[]func(*Ledger){bury("A", "3"), first("B", "5"), abandon}, "[A.3]", 1},
		"informer stopped, delete answered": {[]func(*Ledger){bury("A", "3"), first("B", "5"), abandon, settle(event.Acked{})}, "nothing", 0},
		"another informer stopped":          {[]func(*Ledger){bury("A", "3"), first("B", "5"), abandonOther}, "B.5 first [A.3]", 1},
		"informer stopped and started":      {[]func(*Ledger){first("A", "1"), abandon, first("A", "1")}, "A.1 first", 1},
		"settled, nothing was remembered":   {[]func(*Ledger){settle(live("A", "1"))}, "nothing", 0},
		"settled before the first report":   {[]func(*Ledger){settle(live("A", "1")), first("A", "1")}, "A.1 first", 1},
		"reported after it had landed":      {[]func(*Ledger){first("A", "1"), settle(live("A", "2")), observe("A", "2"), settle(live("A", "2"))}, "nothing", 0},
		"a state that is acknowledged anew": {[]func(*Ledger){observe("A", "1"), settle(live("A", "1")), observe("A", "1")}, "A.1", 0},
	} {
		t.Run(name, func(t *testing.T) {
			d := newLedger()
			for _, step := range c.steps {
				step(d)
			}
			if got := describe(d); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if got := d.FirstSyncLeft(testResource.GroupResource()); got != c.first {
				t.Errorf("%d of the first sync are left, want %d", got, c.first)
			}
			if got, want := d.DirtyLen(), len(d.Dirty()); got != want {
				t.Errorf("len is %d, want %d", got, want)
			}
			if c.want == "nothing" && len(d.tables) > 0 {
				t.Error("a table of a clean key is left")
			}
		})
	}
}

// TestDescribe verifies that a report about one UID does not describe another live UID, and that a
// view shares no memory with the ledger.
func TestDescribe(t *testing.T) {
	d := newLedger()
	d.AddTombstone(testKey, event.Tombstone{UID: "A", Object: object("A", "3")})
	d.Observe(testKey, nil, object("B", "5"), event.CauseSnapshot, true, time.Unix(7, 0))
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
			d.Describe(testKey, &v)
			if v.Cause != c.want.Cause || v.Observed != c.want.Observed || v.FirstSync != c.want.FirstSync {
				t.Errorf("got %+v, want %+v", v, c.want)
			}
			if len(v.Tombstones) != 1 || v.Tombstones[0].UID != "A" {
				t.Fatalf("got tombstones %+v, want that of A", v.Tombstones)
			}
			v.Tombstones[0].UID = "changed"
		})
	}
	if got, want := describe(d), "B.5 first [A.3]"; got != want {
		t.Errorf("a change of the view changed the ledger: got %q, want %q", got, want)
	}
}

// TestUnpublishable verifies that a state stays unpublishable until another state is reported.
func TestUnpublishable(t *testing.T) {
	d := newLedger()
	observe := func(uid, version string) {
		d.Observe(testKey, nil, object(uid, version), event.CauseWatch, true, time.Unix(1, 0))
	}
	is := func() bool {
		var v event.View
		d.Describe(testKey, &v)
		return v.Unpublishable
	}
	for _, next := range [][2]string{{"A", "2"}, {"B", "1"}} {
		observe("A", "1")
		if is() {
			t.Error("a state is unpublishable at once")
		}
		d.MarkUnpublishable(testKey)
		if observe("A", "1"); !is() {
			t.Error("the same state, reported again, is not unpublishable")
		}
		if observe(next[0], next[1]); is() {
			t.Errorf("%v is unpublishable, but only A.1 was marked", next)
		}
	}
	if d.MarkUnpublishable(testKey); d.FirstSyncLeft(testKey.GroupResource()) != 0 {
		t.Error("a first sync waits for an unpublishable state")
	}
}

// TestTombstonesOfANameDoNotPileUp verifies that an unacknowledged publish drops the tombstones
// whose delete the bus does not need. While the bus is down, many objects can use one name, one after another.
func TestTombstonesOfANameDoNotPileUp(t *testing.T) {
	d := newLedger()
	for n := range 100 {
		d.AddTombstone(testKey, event.Tombstone{UID: fmt.Sprint(n), Object: &event.Object{}})
		d.term.Unanswered(testKey, event.Acked{UID: "0", ResourceVersion: "1"}, event.Acked{UID: "7"}, nil, wanted)
	}
	var v event.View
	d.Describe(testKey, &v)
	var got []string
	for _, tomb := range v.Tombstones {
		got = append(got, tomb.UID)
	}
	if want := []string{"0", "7"}; !slices.Equal(got, want) {
		t.Errorf("tombstones of %v are kept, want %v: the UID that the bus shows, and the UID that it may show", got, want)
	}
}

// TestOldest verifies that the age of a missing change counts from the first change that the bus
// lacks, even if the object changes all the time. Once the bus has that change, the age counts from
// the latest change.
func TestOldest(t *testing.T) {
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	d := newLedger()
	check := func(what string, want time.Time) {
		t.Helper()
		if got := d.Oldest(); !got.Equal(want) {
			t.Errorf("%s: the oldest missing change is from %v, want %v", what, got, want)
		}
	}
	other := testResource.Key("default", "other")
	check("nothing is dirty", time.Time{})
	d.Observe(testKey, nil, object("A", "1"), event.CauseWatch, false, at(10))
	d.Observe(other, nil, object("B", "1"), event.CauseWatch, false, at(20))
	d.Observe(testKey, nil, object("A", "2"), event.CauseWatch, false, at(30))
	check("a later change of the same object", at(10))
	d.term.Settle(testKey, event.Acked{}, wanted, "")
	check("a failed try", at(10))
	d.term.Acknowledge(testKey, live("A", "1"), object("A", "1"), wanted)
	check("the first change is on the bus", at(20))
	d.term.Acknowledge(other, live("B", "1"), object("B", "1"), wanted)
	check("the other object is clean", at(30))
	d.AddTombstone(testKey, event.Tombstone{UID: "A", Observed: at(40)})
	check("what was to be sent is gone", at(30))
	d.term.Settle(testKey, deleted("A", "2"), wanted, "")
	check("nothing is dirty any more", time.Time{})
	d.AddTombstone(testKey, event.Tombstone{UID: "C", Observed: at(50)})
	check("a delete alone", at(50))
	d.Abandon(all, showsNothing)
	check("a delete is not abandoned", at(50))
	d.ForgetBefore(at(60))
	check("a delete is forgotten", time.Time{})
	d.Observe(testKey, nil, object("D", "1"), event.CauseWatch, false, at(70))
	d.Observe(testKey, nil, object("D", "2"), event.CauseWatch, false, at(90))
	d.ForgetBefore(at(60))
	check("nothing is that old", at(70))
	d.ForgetBefore(at(80))
	check("the first change is forgotten", at(80))
	d.term.Settle(testKey, live("D", "2"), wanted, "")
	if len(d.since) != 0 {
		t.Errorf("seconds are left: %v", d.since)
	}
}

// TestAnObjectThatGoesWhileATermBeginsIsNotBroughtBack verifies that Include does not replace a
// delete or a later state that was reported after the object was read from the cache.
func TestAnObjectThatGoesWhileATermBeginsIsNotBroughtBack(t *testing.T) {
	d, now := newLedger(), time.Now()
	d.AddTombstone(testKey, event.Tombstone{UID: "A", Observed: now, Object: object("A", "2")})
	d.Include(testKey, object("A", "1"), now)
	if !d.HasTombstone(testKey) || d.FirstSyncLeft(testKey.GroupResource()) > 0 {
		t.Error("the tombstone is gone, or the first sync waits for the object")
	}
	d = newLedger()
	d.Observe(testKey, nil, object("A", "2"), event.CauseWatch, false, now)
	d.Include(testKey, object("A", "1"), now)
	d.term.Settle(testKey, live("A", "2"), wanted, "")
	if n := d.FirstSyncLeft(testKey.GroupResource()); n > 0 || d.DirtyLen() > 0 {
		t.Error("the first sync waits for a version that nobody will publish")
	}
}

// TestForgetAll verifies that Forget also forgets tombstones. A new epoch must not contain
// tombstones of the previous epoch.
func TestForgetAll(t *testing.T) {
	d, now := newLedger(), time.Unix(100, 0)
	of, other := event.Key{Resource: "pods", Name: "web"}, event.Key{Resource: "nodes", Name: "web"}
	for _, k := range []event.Key{of, other} {
		d.Observe(k, nil, object("B", "2"), event.CauseWatch, true, now)
		d.AddTombstone(k, event.Tombstone{UID: "A", Observed: now})
		d.MarkOutlived(k, event.Outlived{Position: 7}, now)
	}
	d.Forget(func(k event.Key) bool { return k == of })
	if got := d.Dirty(); !slices.Equal(got, []event.Key{other}) {
		t.Errorf("dirty: %v, want %v", got, other)
	}
	if !d.HasTombstone(other) || d.FirstSyncLeft(of.GroupResource()) != 0 || d.FirstSyncLeft(other.GroupResource()) != 1 {
		t.Error("Forget changed another key")
	}
}

// TestAcknowledgeWithoutAReport verifies that Acknowledge returns whether the ledger has a report about the
// object.
func TestAcknowledgeWithoutAReport(t *testing.T) {
	key, all := event.Key{Resource: "pods", Name: "web"}, Interest{Selected: true, Published: true}
	o := &event.Object{UID: "A", ResourceVersion: "5", Name: "web"}
	for name, c := range map[string]struct {
		since func(*Ledger)
		want  bool
	}{
		"reported": {func(*Ledger) {}, true},
		"reported again": {func(l *Ledger) {
			l.Observe(key, nil, &event.Object{UID: "A", ResourceVersion: "6"}, event.CauseWatch, false, time.Now())
		}, true},
		"the informer ended": {func(l *Ledger) { l.Abandon(func(event.Key) bool { return true }, showsNothing) }, false},
		"deleted":            {func(l *Ledger) { l.AddTombstone(key, event.Tombstone{UID: "A"}) }, true},
		"of another object": {func(l *Ledger) {
			l.Observe(key, nil, &event.Object{UID: "B", ResourceVersion: "7"}, event.CauseWatch, false, time.Now())
		}, false},
	} {
		l := New()
		term := l.NewTerm()
		l.Observe(key, nil, o, event.CauseWatch, false, time.Now())
		c.since(l)
		if got := term.Acknowledge(key, event.Acked{UID: "A", ResourceVersion: "5", Position: 1}, o, all); got != c.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

// TestAConfirmedTombstone verifies that a tombstone has the last state that a watch showed, and the
// position of the event that the last consistent read contradicted. The position can be lower than
// that of an earlier read, because the bus may have lost messages. If it has lost the last event of
// the object, the position is 0.
func TestAConfirmedTombstone(t *testing.T) {
	k, now := event.Key{Resource: "pods", Name: "web"}, time.Unix(100, 0)
	watched := event.Tombstone{UID: "A", Object: object("A", "3"), Observed: now}
	read := func(position uint64) event.Tombstone {
		return event.Tombstone{UID: "A", Confirmed: true, Contradicts: position, Observed: now}
	}
	for name, c := range map[string]struct {
		tombstones []event.Tombstone
		confirmed  bool
		position   uint64
	}{
		"only a watch":                {[]event.Tombstone{watched, watched}, false, 0},
		"a read":                      {[]event.Tombstone{watched, read(7)}, true, 7},
		"a watch after a read":        {[]event.Tombstone{read(7), watched}, true, 7},
		"a later read":                {[]event.Tombstone{read(5), watched, read(7)}, true, 7},
		"the bus lost messages":       {[]event.Tombstone{read(7), read(5), watched}, true, 5},
		"the bus lost the last event": {[]event.Tombstone{read(7), watched, read(0)}, true, 0},
	} {
		d := newLedger()
		for _, t := range c.tombstones {
			d.AddTombstone(k, t)
		}
		var v event.View
		d.Describe(k, &v)
		got, ok := v.Tombstone("A")
		hasObject := slices.ContainsFunc(c.tombstones, func(t event.Tombstone) bool { return t.Object != nil })
		if !ok || got.Confirmed != c.confirmed || got.Contradicts != c.position || hasObject != (got.Object != nil) {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

// TestForgetOthers verifies that an object that stays on the bus doesn't leave its key dirty because of the tombstone
// of another object (found by the simulator). The tombstones that the bus may still need stay.
func TestForgetOthers(t *testing.T) {
	for name, c := range map[string]struct {
		gone, attempt string // UIDs
		removed       bool   // the last known event is a removal
		dirty         bool
	}{
		"another object":            {gone: "B"},
		"after a removal":           {gone: "B", removed: true, dirty: true}, // the publish of B can be in flight
		"the object on the bus":     {gone: "A", dirty: true},
		"an unacknowledged publish": {gone: "B", attempt: "B", dirty: true},
	} {
		t.Run(name, func(t *testing.T) {
			d := newLedger()
			d.term.Put(testKey, at(live("A", "5"), 7))
			if c.removed {
				d.term.Put(testKey, at(deleted("A", "5"), 7))
			}
			if c.attempt != "" {
				d.term.Unanswered(testKey, at(live("A", "5"), 7), message(c.attempt, "9"), nil, wanted)
			}
			d.AddTombstone(testKey, tombstone(c.gone, "12"))
			d.ForgetOthers(testKey)
			if got := d.IsDirty(testKey); got != c.dirty {
				t.Errorf("dirty: %t, want %t", got, c.dirty)
			}
		})
	}
}
