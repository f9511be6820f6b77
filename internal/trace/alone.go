package trace

import "time"

// Judged returns f with a verdict that is based on f alone. The verdict takes the current state of the
// object from the forwarder's watch, and the last event from its checkpoint.
func (f Forwarder) Judged(o Object, now time.Time) Forwarder {
	d := Document{Time: now, Object: o, Forwarder: f, APIServer: APIServer{State: Unknown}, Bus: Bus{State: Unknown}}
	if f.Selection != nil {
		d.Selection = *f.Selection
	}
	switch w := f.Watch; {
	case f.Role == Starting:
		d.APIServer.Error = "the forwarder is starting" + colon(f.Error)
	case w == nil:
		d.APIServer.Error = "no watch covers the object"
	case w.Error != nil: // the object in the cache might be old
		d.APIServer.Error = "the watch of " + o.Resource + " fails" + d.lasting(w.Error.Since) + colon(w.Error.Message)
	case w.Object == Unknown:
		d.APIServer.Error = "the first list of " + o.Resource + " is not complete"
	default:
		d.APIServer = APIServer{State: w.Object, UID: w.UID, Version: w.Version}
	}
	switch {
	case f.Role == Standby:
		d.Bus.Error = "this forwarder is a standby; " + f.whoLeads("ask the leader, ")
	case f.Checkpoint != nil && f.Checkpoint.Foreign:
		d.Bus.Error = "the last event on the bus is from another writer; the forwarder is comparing it with the cluster"
	}
	v := d.judge()
	f.Verdict = &v
	return f
}
