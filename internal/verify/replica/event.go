package replica

import (
	"strings"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/verify/normal"
	"github.com/kuberelay/kuberelay/internal/verify/wire"
)

// Event is the part of a message that a follower keeps.
type Event struct {
	Key      event.Key
	Position uint64
	Stored   time.Time

	ID       string
	Type     wire.Type
	UID      string
	Version  string // resourceVersion
	Previous string // previousversion
	Epoch    uint16
	API      string // apiversion, in which the data is written

	Again     bool   // an earlier event might have the same version, for example because the object was deselected in between
	Repairs   uint64 // position of the foreign event that this event repairs, or 0 for none
	Truncated bool   // the data is only metadata
	Whole     bool   // nothing is missing before it; see publish.Delivery

	// Content is the digest of the data without resourceVersion and generation, if some objects are
	// published in part. Otherwise, Content is zero, because another version then always means
	// another state.
	Content normal.Digest

	// Digest is the digest of the data in normal form, or of the metadata of a truncated event. It
	// is zero for a removal, and usually for an event that wasn't the last of its object when
	// reading began.
	Digest normal.Digest
}

// Live reports whether the object exists according to the event. The zero value means no event, so
// Live returns false for it.
func (e Event) Live() bool { return e.UID != "" && !e.Type.Removes() }

// compareVersions orders two resourceVersions of one resource. Kubernetes has allowed this
// comparison since 1.35 (KEP-5504). ok is false if one of them is not a number.
func compareVersions(a, b string) (order int, ok bool) {
	if !wire.IsNumber(a) || !wire.IsNumber(b) {
		return 0, false
	}
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	if len(a) != len(b) {
		return len(a) - len(b), true
	}
	return strings.Compare(a, b), true
}

// Newer reports whether version a is known to be later than b.
func Newer(a, b string) bool {
	order, ok := compareVersions(a, b)
	return ok && order > 0
}
