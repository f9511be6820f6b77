package trace

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/test/lab/golden"
)

var now = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func ago(d time.Duration) *time.Time {
	t := now.Add(-d)
	return &t
}

const uid = "5f0c91d2-8b1e-4c53-a0f4-2f6c7a9c1b11"

// well returns the document of an object whose current state is on the bus.
func well() Document {
	return Document{
		Time: now, Cluster: "prod-eu1", Object: Object{Resource: "deployments.apps", Namespace: "shop", Name: "web"},
		APIServer: APIServer{State: Exists, UID: uid, Version: "812"},
		Selection: Selection{Selected: IsSelected, From: FromForwarder, Selector: "deployments.apps", Filter: FilterTrue},
		Forwarder: Forwarder{
			Role: Leading, Address: "localhost:8080", Cluster: "prod-eu1",
			Watch:      &Watch{State: "synced", Object: Exists, UID: uid, Version: "812"},
			Checkpoint: &Entry{State: Exists, UID: uid, Version: "812", Position: "1042", Time: ago(41*time.Second + 12*time.Millisecond)}, Decision: "unchanged",
		},
		Bus: Bus{
			Source: "stream KUBERELAY", State: Exists, Type: "updated", UID: uid, Version: "812", Position: "1042",
			Time: ago(41*time.Second + 12*time.Millisecond), Stored: ago(41 * time.Second),
		},
	}
}

func set(changes ...func(*Document)) func(*Document) {
	return func(d *Document) {
		for _, change := range changes {
			change(d)
		}
	}
}

// Changes to a document.
var (
	changed = func(d *Document) { d.APIServer.Version = "815" }
	seen    = set(changed, func(d *Document) {
		d.Forwarder.Watch.Version, d.Forwarder.Decision, d.Forwarder.Unsent = "815", "updated", ago(3*time.Minute)
	})
	gone             = func(d *Document) { d.APIServer = APIServer{State: Absent} }
	noBus            = func(d *Document) { d.Bus = Bus{State: Unknown, Error: "no route"} }
	notOnBus         = func(d *Document) { d.Bus = Bus{State: Absent}; d.Forwarder.Checkpoint = &Entry{State: Absent} }
	deleted          = func(d *Document) { d.Bus.State, d.Bus.Type = Deleted, "deleted" }
	silent           = func(d *Document) { d.Forwarder = Forwarder{Role: Unreachable, Error: "refused"} }
	standby          = func(d *Document) { d.Forwarder.Role, d.Forwarder.Holder = Standby, "kuberelay-1" }
	unsure           = func(d *Document) { d.APIServer = APIServer{State: Unknown, Error: "no such host"} }
	busIsUnavailable = func(d *Document) {
		d.Forwarder.BusUnavailable = &Error{Message: "dial tcp", Since: ago(6 * time.Minute)}
	}
	refused = func(d *Document) {
		d.Forwarder.PublishError = &PublishError{Message: "maximum bytes exceeded", Since: ago(5 * time.Minute)}
	}
	forged = func(d *Document) {
		d.Bus.Position, d.Forwarder.Checkpoint.Position, d.Forwarder.Checkpoint.Foreign = "1043", "1043", true
	}
	fails = func(d *Document) {
		d.Forwarder.Watch.State, d.Forwarder.Watch.Error = "degraded", &Error{"no leader", ago(time.Minute)}
	}
	filtered = func(d *Document) {
		d.Selection.Selected, d.Selection.Detail, d.Selection.Filter = NotSelected, "KUBERELAY_FILTER is false", FilterFalse
	}
	forbidden = func(d *Document) { d.Selection.Selected, d.Selection.Detail = IsForbidden, "access denied" }
	decides   = func(what string) func(*Document) { return func(d *Document) { d.Forwarder.Decision = what } }
	at        = func(place string) func(*Document) {
		return func(d *Document) { d.Forwarder.Queue, d.Forwarder.Attempts = place, 5 }
	}
	consumer = func(c Consumer) func(*Document) { return func(d *Document) { c.Name = "table"; d.Consumer = &c } }
)

func number(n int64) *int64 { return &n }

var cases = []struct {
	name   string
	change func(*Document)
	reason Reason
	says   string
}{
	{"on bus", set(), OnBus, "on the bus: version 812, stored 41s ago"},
	{"truncated", func(d *Document) { d.Bus.Truncated = true }, OnBus, "on the bus: version 812, stored 41s ago, its metadata only: it is too large for the bus"},
	{"no longer selected", filtered, OnBus, "on the bus: version 812, stored 41s ago; later changes are not published: KUBERELAY_FILTER is false"},
	{"no longer allowed", forbidden, OnBus, "on the bus: version 812, stored 41s ago; later changes are not published: access denied"},
	{"forwarder is silent", silent, OnBus, "on the bus: version 812, stored 41s ago"},
	{"bus is unreadable", noBus, OnBus, "on the bus: version 812, according to the forwarder: the bus cannot be read: no route"},
	{"bus is unreadable, deleted", set(gone, noBus, func(d *Document) { d.Forwarder.Checkpoint = &Entry{State: Deleted} }), DeleteOnBus,
		"deleted, and the bus has the delete, according to the forwarder: the bus cannot be read: no route"},
	{"bus is unreadable, dropped fields", set(changed, noBus, func(d *Document) { d.Forwarder.Watch.Version = "815" }), Unchanged,
		"on the bus: version 812; version 815 differs only in fields that are not published, according to the forwarder: the bus cannot be read: no route"},
	{"bus is unreadable, forwarder is silent", set(noBus, silent), CannotTell, "unknown: the state on the bus cannot be determined: no route"},
	{"bus is unreadable, foreign event", set(noBus, func(d *Document) { d.Forwarder.Checkpoint.Foreign = true }), CannotTell, "unknown: the state on the bus cannot be determined: no route"},
	{"bus is ahead", func(d *Document) { d.Bus.Version = "815"; d.Forwarder.Watch.Version = "815" }, OnBus, "on the bus: version 815, stored 41s ago"},
	{"history went back", func(d *Document) {
		d.Bus.Version, d.Forwarder.Checkpoint.Version, d.Forwarder.Decision = "900", "900", "stale"
	}, Waiting, "waiting: the bus has a later state than the watch: the forwarder asks the API server; the bus has version 900"},
	{"recreated", set(seen, func(d *Document) { d.APIServer.UID, d.Forwarder.Watch.UID = "other", "other" }, decides("await")), Waiting,
		"waiting: the object on the bus is not known to be gone: the forwarder compares the bus with the cluster; the bus has version 812"},
	{"lost", func(d *Document) { d.Bus = Bus{State: Absent} }, Lost, "lost: the forwarder published version 812 at 1042, and the bus does not have it; the bus has no event of it"},
	{"lost its end", func(d *Document) { d.Bus.Version = "810" }, Lost, "lost: the forwarder published version 812 at 1042, and the bus does not have it; the bus has version 810"},
	{"same version of another object", func(d *Document) { d.Bus.UID = "other" }, Lost, "lost: the forwarder published version 812 at 1042, and the bus does not have it; the bus has version 812"},
	{"same version of another object, without a checkpoint", func(d *Document) { d.Bus.UID = "other"; d.Forwarder.Checkpoint = nil }, Waiting,
		"waiting: the API server has version 812; the bus has version 812"},

	{"dropped fields", set(changed, func(d *Document) { d.Forwarder.Watch.Version = "815" }), Unchanged, "on the bus: version 812; version 815 differs only in fields that are not published"},
	{"dropped fields, not settled", set(seen, decides("unchanged")), Waiting, "waiting: the API server has version 815; the bus has version 812"},
	{"deleted", set(gone, deleted), DeleteOnBus, "deleted, and the bus has the delete, stored 41s ago"},
	{"deselected and deleted", set(gone, deleted, func(d *Document) { d.Bus.State = Deselected }), DeleteOnBus, "deleted, and the bus has the delete, stored 41s ago"},
	{"delete was purged", set(gone, notOnBus, func(d *Document) { d.Forwarder.Checkpoint = &Entry{State: Deleted} }), DeleteOnBus, "deleted, and the bus has the delete"},
	{"unknown object", set(gone, notOnBus), NoObject, "unknown object: neither the API server nor the bus has deployments.apps shop/web"},
	{"delete not seen", gone, WatchBehind, "behind: the watch does not show the delete; the bus has version 812"},
	{"delete not sent", set(gone, func(d *Document) {
		d.Forwarder.Watch = &Watch{State: "synced", Object: Absent}
		d.Forwarder.Decision = "deleted"
	}, at("in_flight")), Waiting,
		"waiting: the event is on its way to the bus; the bus has version 812"},

	{"API server unavailable", unsure, CannotTell, "unknown: the current state cannot be determined: no such host; the bus has version 812"},
	{"API server unavailable, not selected", set(unsure, filtered), Deselection, "not selected: KUBERELAY_FILTER is false"},
	{"API server denies", set(unsure, forbidden), Forbidden, "not watched: access denied"},
	{"filter", set(filtered, notOnBus), Deselection, "not selected: KUBERELAY_FILTER is false; the bus has no event of it"},
	{"deselected", set(filtered, func(d *Document) { d.Bus.State = Deselected }), Deselection, "not selected: KUBERELAY_FILTER is false; the bus has it as deselected"},
	{"denied", set(forbidden, notOnBus), Forbidden, "not watched: access denied; the bus has no event of it"},
	{"forwarder is silent and behind", set(changed, silent), Behind, "behind: the API server has version 815; the bus has version 812; the forwarder does not respond: refused"},
	{"nobody leads", set(seen, func(d *Document) { d.Forwarder.Role, d.Forwarder.Error = Standby, "no space" }), Behind, "behind: the API server has version 815; the bus has version 812; this forwarder is a standby; nobody is known to lead: no space"},
	{"standby", set(seen, standby), Behind, "behind: the API server has version 815; the bus has version 812; this forwarder is a standby; the leader is kuberelay-1"},
	{"starting", set(changed, func(d *Document) { d.Forwarder = Forwarder{Role: Starting, Error: "no API server"} }), StartingUp,
		"waiting: the forwarder is starting: no API server; the bus has version 812"},
	{"starting without a bus", set(changed, noBus, func(d *Document) {
		d.Forwarder = Forwarder{Role: Starting, BusUnavailable: &Error{Message: "dial tcp"}}
	}), BusUnavailable, "waiting: bus unavailable: dial tcp"},
	{"no watch", set(changed, func(d *Document) { d.Forwarder.Watch = nil }), WatchFailing, "waiting: no watch covers the object yet; the bus has version 812"},
	{"watch fails", set(changed, fails), WatchFailing, "waiting: the watch of deployments.apps fails for 60s: no leader; the bus has version 812"},
	{"not listed", set(changed, func(d *Document) { d.Forwarder.Watch = &Watch{State: "starting", Object: Unknown} }), StartingUp,
		"waiting: the first list of deployments.apps is not complete; the bus has version 812"},
	{"watch is behind", changed, WatchBehind, "behind: the watch has version 812 of 815; the bus has version 812"},
	{"watch lacks it", set(notOnBus, func(d *Document) { d.Forwarder.Watch = &Watch{State: "synced", Object: Absent} }), WatchBehind,
		"behind: the watch does not show the object; the bus has no event of it"},
	{"bus unavailable", set(seen, busIsUnavailable, at("parked")), BusUnavailable, "waiting: bus unavailable for 6m: dial tcp; the bus has version 812"},
	{"bus unavailable, unreadable", set(seen, busIsUnavailable, noBus), BusUnavailable, "waiting: bus unavailable for 6m: dial tcp; the bus has version 812"},
	{"refused", set(seen, refused, at("back_off")), Refused, "waiting: the bus has rejected it for 5m: maximum bytes exceeded; the bus has version 812"},
	{"unpublishable", set(seen, refused, func(d *Document) { d.Forwarder.Unpublishable = true }), Refused, "waiting: the bus has rejected it: maximum bytes exceeded; the bus has version 812"},
	{"others are refused", set(seen, refused, func(d *Document) { d.Forwarder.PublishError.OtherObject = true }), Refused,
		"waiting: the bus has rejected other objects of deployments.apps for 5m: maximum bytes exceeded; the bus has version 812"},
	{"hold", set(seen, decides("hold")), Waiting, "waiting: an owner of the object is not known yet; the bus has version 812"},
	{"foreign", set(seen, decides("foreign")), Waiting, "waiting: the last event on the bus is from another writer; the forwarder is comparing it with the cluster; the bus has version 812"},
	{"foreign, in the current version", set(forged, decides("foreign")), Waiting, "waiting: the last event on the bus is from another writer; the forwarder is comparing it with the cluster; the bus has version 812"},
	{"foreign, and not decided", forged, Waiting, "waiting: the last event on the bus is from another writer; the forwarder is comparing it with the cluster; the bus has version 812"},
	{"foreign, and repaired meanwhile", set(forged, func(d *Document) { d.Bus.Position = "1044" }), OnBus, "on the bus: version 812, stored 41s ago"},
	{"published meanwhile", set(seen, at("in_flight"), func(d *Document) { d.Bus.Version = "814" }), Waiting, "waiting: the event is on its way to the bus for 3m; the bus has version 814"},
	{"queued", set(seen, at("queued")), Waiting, "waiting: the event is in the queue for 3m; the bus has version 812"},

	{"consumer is done", consumer(Consumer{Event: 1042, Acknowledged: 1042, Delivered: number(1050)}), OnBus, "on the bus: version 812, stored 41s ago; the consumer table has acknowledged it"},
	{"consumer works", consumer(Consumer{Event: 1042, Acknowledged: 1041, Delivered: number(1042), Behind: 1}), ConsumerBehind,
		"on the bus: version 812, stored 41s ago; the consumer table has received it, but has not acknowledged everything up to it"},
	{"consumer is behind", consumer(Consumer{Event: 1042, Acknowledged: 1030, Delivered: number(1041), Behind: 12}), ConsumerBehind,
		"on the bus: version 812, stored 41s ago; the consumer table has not received it: it is 12 messages behind"},
	{"group has nothing", consumer(Consumer{Event: 0, Acknowledged: -1, Behind: 3}), ConsumerBehind,
		"on the bus: version 812, stored 41s ago; the consumer table has not received it: it is 3 messages behind"},
	{"consumer of others", consumer(Consumer{Other: "its filter is other"}), ConsumerBehind, "on the bus: version 812, stored 41s ago; the consumer table does not receive it: its filter is other"},
	{"no consumer", consumer(Consumer{Error: "not found"}), ConsumerUnknown, "on the bus: version 812, stored 41s ago; the consumer table is unknown: not found"},
	{"consumer of an old state", set(seen, at("queued"), consumer(Consumer{Event: 1042, Acknowledged: 1042})), Waiting, "waiting: the event is in the queue for 3m; the bus has version 812"},
}

func TestJudge(t *testing.T) {
	judged := map[Reason]bool{}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d := well()
			c.change(&d)
			before, _ := json.Marshal(d)
			v := Judge(d).Verdict
			judged[v.Reason] = true
			if v.Reason != c.reason || v.Summary != c.says {
				t.Errorf("got %s: %s\nwant %s: %s", v.Reason, v.Summary, c.reason, c.says)
			}
			if (v.Code == 0) != (v.Fix == "") {
				t.Errorf("exit code %d, fix %q", v.Code, v.Fix)
			}
			if after, _ := json.Marshal(d); string(after) != string(before) {
				t.Errorf("the facts have changed")
			}
		})
	}
	for _, cause := range Causes() {
		if !judged[cause.Reason] {
			t.Errorf("no case has %s", cause.Reason)
		}
	}
}

// TestPrint compares the output with the golden files.
func TestPrint(t *testing.T) {
	goldens := map[string]Document{"ok": well(), "waiting": well(), "deselected": well(), "silent": well()}
	for name, change := range map[string]func(*Document){
		"ok":         consumer(Consumer{Event: 1042, Acknowledged: 1042, Delivered: number(1050), Behind: 8}),
		"waiting":    set(seen, refused, at("back_off")),
		"deselected": set(filtered, notOnBus),
		"silent":     set(changed, silent, noBus, consumer(Consumer{Error: "the bus has no event of the object to compare with"})),
	} {
		d := goldens[name]
		change(&d)
		for format, write := range Printers() {
			var b strings.Builder
			if err := write(&b, Judge(d)); err != nil {
				t.Fatal(err)
			}
			golden.Check(t, name+"."+format, b.String())
		}
	}
}

// TestJSON verifies that a program that parses the JSON obtains the same document.
func TestJSON(t *testing.T) {
	var b strings.Builder
	d := Judge(well())
	var read Document
	if err := Printers()["json"](&b, d); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(b.String()), &read); err != nil || !reflect.DeepEqual(read, d) {
		t.Errorf("got %+v, %v, want %+v", read, err, d)
	}
}
