package trace

import (
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// present describes the current state.
func (d Document) present() string {
	if d.APIServer.State == Absent {
		return "the object is deleted"
	}
	return "the API server has version " + d.APIServer.Version
}

// has describes the state of the object on the bus.
func (d Document) has(last Entry) string {
	switch last.State {
	case Exists:
		return "; the bus has version " + last.Version
	case Deleted, Deselected:
		return "; the bus has it as " + string(last.State)
	case Absent:
		return "; the bus has no event of it"
	}
	return ""
}

func (d Document) since(t *time.Time) string {
	if t == nil {
		return ""
	}
	return ", stored " + d.age(t) + " ago"
}

func (d Document) lasting(t *time.Time) string {
	if t == nil {
		return ""
	}
	return " for " + d.age(t)
}

func (d Document) age(t *time.Time) string {
	return duration.HumanDuration(max(0, d.Time.Sub(*t)))
}

func colon(s string) string {
	if s == "" {
		return ""
	}
	return ": " + s
}

func messageOf(e *PublishError) string {
	if e == nil || e.OtherObject {
		return ""
	}
	return e.Message
}

// whoLeads returns words followed by the name of the leader, or the reason why no leader is known.
func (f Forwarder) whoLeads(words string) string {
	if f.Holder == "" {
		return "nobody is known to lead" + colon(f.Error)
	}
	return words + f.Holder
}
