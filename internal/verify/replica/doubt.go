package replica

import (
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/verify/report"
)

// doubt is a violation that might have a legitimate reason.
type doubt struct {
	problem report.Problem
	from    int  // object.count at the event that violates the rule
	purge   bool // a purge explains the violation
}

func (h *history) report(e Event, kind report.Kind, detail string) {
	h.keep(e.Key, busProblem(e, kind, detail))
}

// suspect reports a violation if it is certain. Otherwise, it records a doubt.
func (h *history) suspect(o *object, e Event, certain, purge bool, detail string) {
	if certain {
		h.report(e, report.Misordered, detail)
		return
	}
	h.doubts[e.Key] = append(h.doubts[e.Key], doubt{busProblem(e, report.Misordered, detail), o.count, purge})
}

func busProblem(e Event, kind report.Kind, detail string) report.Problem {
	p := report.Problem{Kind: kind, Bus: e.Version, Position: e.Position, Detail: detail}
	p.SetKey(e.Key)
	return p
}

// excused reports whether a legitimate reason for a doubt about an object is known by now. Later
// messages can provide such a reason.
func (h *history) excused(k event.Key, d doubt) bool {
	return d.purge || h.objects[k].count-d.from+1 >= h.depth
}

// settleDoubts reports the doubts up to a position that are not excused, and drops all doubts. Call
// it at the end, when every object in doubt has been read to its last message.
func (h *history) settleDoubts(upTo uint64) {
	for k, doubts := range h.doubts {
		for _, d := range doubts {
			if d.problem.Position <= upTo && !h.excused(k, d) {
				h.keep(k, d.problem)
			}
		}
	}
	clear(h.doubts)
}
