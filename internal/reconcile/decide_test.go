package reconcile

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kuberelay/kuberelay/internal/event"
)

func unselected(uid, version string) *event.Object {
	o := object(uid, version)
	o.Body, o.Unselected = event.Body{}, true
	return o
}

func TestOutOfStep(t *testing.T) {
	with := func(o *event.Object, digest byte) *event.Object { o.Digest = event.Digest{digest}; return o }
	ackedWith := func(a event.Acked, digest byte) event.Acked { a.Digest = event.Digest{digest}; return a }
	for name, c := range map[string]struct {
		live  *event.Object
		acked event.Acked
		want  bool
	}{
		"the same":                             {object("A", "1"), live("A", "1"), false},
		"another version":                      {object("A", "2"), live("A", "1"), true},
		"deleted on the bus":                   {object("A", "2"), deleted("A", "1"), true},
		"not selected, and the bus has it":     {unselected("A", "1"), live("A", "1"), true},
		"not selected, and the bus knows":      {unselected("A", "2"), deleted("A", "1"), false},
		"another version of the same content":  {with(object("A", "2"), 1), ackedWith(live("A", "1"), 1), false},
		"the same version of another content":  {with(object("A", "1"), 2), ackedWith(live("A", "1"), 1), true},
		"projected now":                        {with(object("A", "1"), 2), live("A", "1"), true},
		"projected no more":                    {object("A", "1"), ackedWith(live("A", "1"), 1), true},
		"the same content, deleted on the bus": {with(object("A", "2"), 1), ackedWith(deleted("A", "1"), 1), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := isOutOfStep(c.live, c.acked); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

// TestConclude has a case for each combination of a read's finding and the informers' view after it.
func TestConclude(t *testing.T) {
	gone, there := readResult{finding: isGone}, readResult{isThere, "A", "5", ""}
	synced := ObjectView{Covered: true, Synced: true}
	for name, c := range map[string]struct {
		found   readResult
		acked   event.Acked
		live    *event.Object
		view    ObjectView
		publish bool
		want    decision
	}{
		"not read":                                  {readResult{}, live("A", "5"), nil, synced, false, agree},
		"gone":                                      {gone, live("A", "5"), nil, synced, false, inferDelete},
		"gone, another is shown":                    {gone, live("A", "5"), object("B", "6"), synced, false, inferDelete},
		"gone, and shown still":                     {gone, live("A", "5"), object("A", "5"), synced, false, wait},
		"gone, and the informer was replaced":       {gone, live("A", "5"), nil, ObjectView{Covered: true}, false, wait},
		"gone, and nothing covers it any more":      {gone, live("A", "5"), nil, ObjectView{}, false, wait},
		"gone, and the watch is behind":             {readResult{finding: isUnseen}, live("A", "5"), nil, synced, false, wait},
		"older":                                     {readResult{finding: isOlder}, live("A", "5"), nil, ObjectView{}, false, restored},
		"there, the informer will show it":          {there, live("A", "5"), nil, synced, false, wait},
		"there, deleted on the bus, no version":     {there, deleted("A", ""), object("A", "5"), synced, false, markOutlived},
		"not there, deleted on the bus, no version": {readResult{finding: isThere}, deleted("A", ""), object("A", "5"), synced, false, wait},
		"there, deleted on the bus":                 {there, deleted("A", "5"), object("A", "5"), synced, false, markOutlived},
		"there, the informer shows another state":   {there, deleted("A", "6"), object("A", "6"), synced, false, wait},
		"there, filtered":                           {there, live("A", "4"), nil, ObjectView{Covered: true, Synced: true, Filtered: true}, false, leaveOnBus},
		"there, filtered, and published":            {there, live("A", "4"), nil, ObjectView{Covered: true, Synced: true, Filtered: true, Version: "5"}, true, deselect},
		"there, filtered, and the watch is behind":  {there, live("A", "4"), nil, ObjectView{Covered: true, Synced: true, Filtered: true, Version: "4"}, true, wait},
	} {
		t.Run(name, func(t *testing.T) {
			c.view.Live = c.live
			if got := c.found.conclude(c.acked, c.view, 0, c.publish); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

// TestDecideLeaving verifies that an object does not count as gone if listing it is forbidden.
func TestDecideLeaving(t *testing.T) {
	for name, c := range map[string]struct {
		uids  map[string]string
		err   error
		want  decision
		fails bool
	}{
		"there":           {map[string]string{"web": "A"}, nil, deselect, false},
		"gone":            {map[string]string{}, nil, inferDelete, false},
		"another's name":  {map[string]string{"web": "B"}, nil, inferDelete, false},
		"forbidden":       {nil, forbiddenError("configmaps", ""), deselect, false},
		"nothing is told": {nil, apierrors.NewInternalError(errors.New("webhook")), agree, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := decideLeaving(pair{key: testKey, acked: live("A", "5")}, c.uids, c.err); got != c.want || (err != nil) != c.fails {
				t.Errorf("got %d, %v; want %d", got, err, c.want)
			}
		})
	}
}
