package trace

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/kuberelay/kuberelay/internal/terminal"
)

// Verdict is the result of [Judge].
type Verdict struct {
	Reason  Reason `json:"reason"`
	Code    int    `json:"exitCode"`
	Summary string `json:"summary"` // one line
	Fix     string `json:"fix,omitempty"`
}

// Reason identifies a kind of verdict.
type Reason string

// The reasons.
const (
	OnBus           Reason = "on_bus"
	Unchanged       Reason = "unchanged"
	DeleteOnBus     Reason = "deleted"
	Deselection     Reason = "not_selected"
	Forbidden       Reason = "forbidden"
	WatchFailing    Reason = "watch_failing"
	WatchBehind     Reason = "watch_behind"
	StartingUp      Reason = "starting"
	BusUnavailable  Reason = "bus_unavailable"
	Refused         Reason = "refused"
	Lost            Reason = "lost"
	Waiting         Reason = "waiting"
	Behind          Reason = "behind"
	ConsumerBehind  Reason = "consumer_behind"
	ConsumerUnknown Reason = "consumer_unknown"
	NoObject        Reason = "no_object"
	CannotTell      Reason = "unknown"
)

// Cause describes a reason.
type Cause struct {
	Reason  Reason
	Code    int // the exit code: 0 if the bus has the current state, 1 if it does not, 2 if unknown
	Meaning string
	Fix     string
}

// Causes returns all causes.
func Causes() []Cause {
	return []Cause{
		{OnBus, 0, "the last event is the current state", ""},
		{Unchanged, 0, "the current state differs from the last event only in fields that are not published", ""},
		{DeleteOnBus, 0, "the object is gone, and the last event says so", ""},
		{Deselection, 1, "a setting does not select the object", "change the setting, and restart the forwarder; forwarder resources shows what KUBERELAY_RESOURCES matches"},
		{Forbidden, 1, "the forwarder is not allowed to watch the object", "grant get, list, and watch"},
		{WatchFailing, 1, "the list or the watch of the resource fails", "repair what the error names; forwarder status shows more about the resource"},
		{WatchBehind, 1, "the watch does not show the last change yet", "wait; if it lasts, the API server or the network is slow"},
		{StartingUp, 1, "the forwarder is starting", "wait; if it lasts, see forwarder status"},
		{BusUnavailable, 1, "the bus is unavailable", "check that it is running; check KUBERELAY_NATS_URL or KUBERELAY_KAFKA_BROKERS, the credentials, and the permissions"},
		{Refused, 1, "the bus rejects the event", "repair what the error names; a full bus needs space"},
		{Lost, 1, "the bus had the current state, but has lost it", "wait for KUBERELAY_CHECKPOINT_REFRESH: the forwarder finds what the bus lost, and publishes it again"},
		{Waiting, 1, "the change is on its way", "wait; if it lasts, see forwarder status"},
		{Behind, 1, "the bus lacks the change, and no leader says why", "ask the forwarder that leads, with --address"},
		{ConsumerBehind, 1, "the bus has the change, but the consumer has not acknowledged it", "see the consumer's log"},
		{ConsumerUnknown, 2, "the bus has the change, but how far the consumer has read is unknown", "check the name in --consumer, and the permissions"},
		{NoObject, 2, "neither the API server nor the bus has the object", "check the name and --namespace; the delete of an object stays on the bus for KUBERELAY_DELETE_RETENTION"},
		{CannotTell, 2, "the current state is unknown", "repair what the error names, and trace the object again"},
	}
}

func verdict(r Reason, format string, args ...any) Verdict {
	all := Causes()
	c := all[slices.IndexFunc(all, func(c Cause) bool { return c.Reason == r })]
	return Verdict{Reason: r, Code: c.Code, Summary: terminal.OneLine(fmt.Sprintf(format, args...)), Fix: c.Fix}
}

// Judge returns the document with its verdict.
func Judge(d Document) Document {
	d.Verdict = d.judge()
	if c := d.Consumer; c != nil && d.Verdict.Code == 0 {
		d.Verdict = d.judgeConsumer(d.Verdict)
	}
	return d
}

// last returns the object's last event, as read from the bus. If the bus could not be read, it
// returns the last event in the forwarder's checkpoint.
func (d Document) last() Entry {
	switch c := d.Forwarder.Checkpoint; {
	case c != nil && d.Bus.State == Absent && (c.State == Deleted || c.State == Deselected):
		return *c // the bus had the delete, and has removed it
	case d.Bus.State != Unknown || c == nil:
		return Entry{State: d.Bus.State, UID: d.Bus.UID, Version: d.Bus.Version, Position: d.Bus.Position, Time: d.Bus.Time}
	case c.Foreign:
		return Entry{State: Unknown}
	default:
		return *c
	}
}

func (d Document) judge() Verdict {
	now, last := d.APIServer, d.last()
	removed := last.State == Deleted || last.State == Deselected
	switch {
	case now.State == Unknown && d.Selection.Selected == IsForbidden:
		return verdict(Forbidden, "not watched: %s", d.Selection.Detail)
	case now.State == Unknown && d.Selection.Selected == NotSelected:
		return verdict(Deselection, "not selected: %s", d.Selection.Detail)
	case now.State == Unknown:
		return verdict(CannotTell, "unknown: the current state cannot be determined: %s%s", now.Error, d.has(last))
	case last.State == Unknown && d.Forwarder.BusUnavailable == nil:
		return verdict(CannotTell, "unknown: the state on the bus cannot be determined: %s", d.Bus.Error)
	case now.State == Absent && removed:
		return verdict(DeleteOnBus, "deleted, and the bus has the delete%s%s", d.since(d.Bus.Stored), d.unread())
	case now.State == Absent && last.State == Absent:
		return verdict(NoObject, "unknown object: neither the API server nor the bus has %s", d.Object)
	case now.State == Exists && last.State == Exists && last.UID == now.UID && (last.Version == now.Version || d.isNewer(last)) && !d.isForeign():
		return d.onBus(last)
	}
	return d.why(last)
}

// isNewer reports whether the bus has a later state than the API server's response, because the
// object changed after the response. After a restore of the cluster, a later state on the bus can
// be from before the restore. In that case, the forwarder's watch has the version of the API
// server.
func (d Document) isNewer(last Entry) bool {
	order, err := resourceversion.CompareResourceVersion(last.Version, d.APIServer.Version)
	w := d.Forwarder.Watch
	return err == nil && order > 0 && (w == nil || w.Version != d.APIServer.Version)
}

func (d Document) onBus(last Entry) Verdict {
	v := verdict(OnBus, "on the bus: version %s%s%s", last.Version, d.since(d.Bus.Stored), d.unread())
	if d.Bus.Truncated {
		v.Summary += ", its metadata only: it is too large for the bus"
	}
	if s := d.Selection; s.Selected == NotSelected || s.Selected == IsForbidden {
		v.Summary += "; later changes are not published: " + s.Detail
	}
	return v
}

// unread returns a note if the last event could not be read from the bus.
func (d Document) unread() string {
	if d.Bus.State != Unknown || d.Bus.Error == "" {
		return ""
	}
	return ", according to the forwarder: the bus cannot be read: " + d.Bus.Error
}

// why returns why the bus does not have the current state.
func (d Document) why(last Entry) Verdict {
	f, has := d.Forwarder, d.has(last)
	switch d.Selection.Selected {
	case NotSelected:
		return verdict(Deselection, "not selected: %s%s", d.Selection.Detail, has)
	case IsForbidden:
		return verdict(Forbidden, "not watched: %s%s", d.Selection.Detail, has)
	}
	if f.BusUnavailable != nil {
		return verdict(BusUnavailable, "waiting: bus unavailable%s: %s%s", d.lasting(f.BusUnavailable.Since), f.BusUnavailable.Message, has)
	}
	switch f.Role {
	case Unreachable:
		return verdict(Behind, "behind: %s%s; the forwarder does not respond: %s", d.present(), has, f.Error)
	case Starting:
		return verdict(StartingUp, "waiting: the forwarder is starting%s%s", colon(f.Error), has)
	}
	switch w := f.Watch; {
	case w == nil:
		return verdict(WatchFailing, "waiting: no watch covers the object yet%s", has)
	case w.State == "degraded" && w.Error != nil:
		return verdict(WatchFailing, "waiting: the watch of %s fails%s: %s%s", d.Object.Resource, d.lasting(w.Error.Since), w.Error.Message, has)
	case w.Object == Unknown:
		return verdict(StartingUp, "waiting: the first list of %s is not complete%s", d.Object.Resource, has)
	}
	if f.Role == Standby {
		return verdict(Behind, "behind: %s%s; this forwarder is a standby; %s", d.present(), has, f.whoLeads("the leader is "))
	}
	return d.waits(last)
}

// waits returns the verdict for an object that the leader watches.
func (d Document) waits(last Entry) Verdict {
	f, w, now, has := d.Forwarder, d.Forwarder.Watch, d.APIServer, d.has(last)
	seen := w.Object == now.State && w.UID == now.UID && w.Version == now.Version
	switch e := f.PublishError; {
	case !seen && w.Object == Absent && now.State == Exists:
		return verdict(WatchBehind, "behind: the watch does not show the object%s", has)
	case !seen && now.State == Exists:
		return verdict(WatchBehind, "behind: the watch has version %s of %s%s", w.Version, now.Version, has)
	case !seen:
		return verdict(WatchBehind, "behind: the watch does not show the delete%s", has)
	case d.isLost():
		return verdict(Lost, "lost: the forwarder published version %s at %s, and the bus does not have it%s", f.Checkpoint.Version, f.Checkpoint.Position, has)
	case f.Decision == "unchanged" && f.Unsent == nil && last.State == Exists && last.UID == now.UID && !d.isForeign():
		return verdict(Unchanged, "on the bus: version %s; version %s differs only in fields that are not published%s", last.Version, now.Version, d.unread())
	case f.Unpublishable:
		return verdict(Refused, "waiting: the bus has rejected it%s%s", colon(messageOf(e)), has)
	case e != nil && !e.OtherObject:
		return verdict(Refused, "waiting: the bus has rejected it%s: %s%s", d.lasting(e.Since), e.Message, has)
	case e != nil && f.Unsent != nil:
		return verdict(Refused, "waiting: the bus has rejected other objects of %s%s: %s%s", d.Object.Resource, d.lasting(e.Since), e.Message, has)
	}
	if text, ok := decisions[f.Decision]; ok {
		return verdict(Waiting, "waiting: %s%s", text, has)
	}
	if text, ok := queues[f.Queue]; ok {
		return verdict(Waiting, "waiting: the event is %s%s%s", text, d.lasting(f.Unsent), has)
	}
	if d.isForeign() {
		return verdict(Waiting, "waiting: %s%s", decisions["foreign"], has)
	}
	return verdict(Waiting, "waiting: %s%s", d.present(), has)
}

// isLost reports whether the last event on the bus differs from that in the leader's checkpoint,
// although no change waits to be published. The bus was read after the forwarder responded.
func (d Document) isLost() bool {
	c, b := d.Forwarder.Checkpoint, d.Bus
	return c != nil && !c.Foreign && c.State == Exists && d.Forwarder.Unsent == nil && b.State != Unknown && (b.UID != c.UID || b.Version != c.Version)
}

// isForeign reports whether another writer might have written the last event on the bus. The content of
// such an event can be wrong, whatever its version.
func (d Document) isForeign() bool {
	c, b := d.Forwarder.Checkpoint, d.Bus
	return c != nil && c.Foreign && b.State != Unknown && b.Position == c.Position
}

// decisions describes the decisions of package forward that make a key wait for something other
// than the bus.
var decisions = map[string]string{
	"hold":    "an owner of the object is not known yet",
	"await":   "the object on the bus is not known to be gone: the forwarder compares the bus with the cluster",
	"stale":   "the bus has a later state than the watch: the forwarder asks the API server",
	"denied":  "the bus has a delete of this version: the forwarder asks the API server",
	"foreign": "the last event on the bus is from another writer; the forwarder is comparing it with the cluster",
}

// queues describes the places of package workqueue.
var queues = map[string]string{
	"queued":              "in the queue",
	"queued_low_priority": "in the queue, behind the changes",
	"in_flight":           "on its way to the bus",
	"back_off":            "in backoff",
	"parked":              "parked until the bus is back",
}

func (d Document) judgeConsumer(v Verdict) Verdict {
	switch c := d.Consumer; {
	case c.Error != "":
		return verdict(ConsumerUnknown, "%s; the consumer %s is unknown: %s", v.Summary, c.Name, c.Error)
	case c.Other != "":
		return verdict(ConsumerBehind, "%s; the consumer %s does not receive it: %s", v.Summary, c.Name, c.Other)
	case c.Acknowledged >= c.Event:
		v.Summary += "; the consumer " + c.Name + " has acknowledged it"
	case c.Delivered != nil && *c.Delivered >= c.Event:
		return verdict(ConsumerBehind, "%s; the consumer %s has received it, but has not acknowledged everything up to it", v.Summary, c.Name)
	default:
		return verdict(ConsumerBehind, "%s; the consumer %s has not received it: it is %d messages behind", v.Summary, c.Name, c.Behind)
	}
	return v
}
