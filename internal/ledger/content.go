package ledger

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/decode"
)

// NeedsState reports whether a change needs the state on the bus: as the last state of an object whose delete
// was inferred, or as the previous state of an update. must means that the change can't be published without
// that state. must is true for an inferred delete, and for an update that is due only if its content differs
// from the content on the bus.
func NeedsState(c *event.Change, acked event.Acked) (needs, must bool) {
	switch {
	case acked.Position == 0:
		return false, false
	case c.Object == nil:
		return true, true
	}
	return c.Type == event.Updated && c.Before == nil, decides(c, acked)
}

// Complete sets the fields of a change that come from the bus. last is the state that was read
// from the bus, or nil. If no informer watches the API version of the change's object anymore, Complete
// derives the resource from the object. same reports whether the bus already has the content of the
// change.
func Complete(c *event.Change, last *event.Object, acked event.Acked) (same bool, err error) {
	if last != nil && !isStateOf(last, c.Key, acked) {
		last = nil
	}
	switch {
	case c.Object == nil && last != nil:
		c.Object = last
	case c.Object == nil:
		c.Object = acked.Identity(c.Key)
	case c.Type == event.Updated && c.Before == nil && last != nil && !last.Body.None():
		c.Before = last
	}
	// The watched API version might have changed since the object was last seen.
	moved := c.Object.APIVersion != "" && c.Object.APIVersion != c.Resource.APIVersion()
	if c.Resource == (event.Resource{}) || moved {
		c.Resource = event.ResourceOf(c.Key, c.Object)
	}
	return sameContent(c, acked)
}

// isStateOf reports whether an object read from the bus is the last known state of a key. It
// verifies only projected digests, because a digest of the text cannot be computed from the
// published form.
func isStateOf(o *event.Object, k event.Key, acked event.Acked) bool {
	if o.Namespace != k.Namespace || o.Name != k.Name || string(o.UID) != acked.UID || o.ResourceVersion != acked.ResourceVersion {
		return false
	}
	if o.Body.None() || !o.Digest.Projected() {
		return true
	}
	d, err := decode.DigestOf(o.Body)
	return err == nil && d == o.Digest
}

// decides reports whether the decision to publish an update depends on the state on the bus. It
// does in two cases: a projection applies to the object and did not apply before, or the version is
// unchanged but its digest differs or is unknown. In the second case, two different JSON texts can
// have the same content.
func decides(c *event.Change, acked event.Acked) bool {
	switch {
	case c.Type != event.Updated || c.Uncertain || acked.Digest.Projected():
		return false
	case c.Object.Digest.Projected():
		return true
	}
	return c.After != 0
}

// sameContent reports whether the bus holds the content of c. Versions of different epochs
// are not comparable.
func sameContent(c *event.Change, acked event.Acked) (bool, error) {
	switch {
	case c.Type != event.Updated || c.Repairs || c.Uncertain || c.Epoch != acked.Epoch:
		return false, nil
	case acked.Digest.Projected() && !c.Object.Digest.Projected() && c.After != 0:
		d, err := decode.DigestOf(c.Object.Body)
		return err == nil && d == acked.Digest, err
	case c.After != 0 && c.Before != nil && acked.Digest.Projected() && c.Object.Digest != acked.Digest && c.Object.Digest == c.Before.Digest:
		// The bus lost the event, and another forwarder published this state at the same position.
		return !c.Before.Body.None(), nil
	case !decides(c, acked) || c.Before == nil:
		return false, nil
	case c.Object.Digest.Projected():
		d, err := decode.DigestOf(c.Before.Body)
		return err == nil && d == c.Object.Digest, err
	}
	return event.SameContent(c.Before.Body, c.Object.Body)
}

// isState reports whether an event on the bus has the live state. It does not compare the content
// of an object without a digest, such as a Secret, whose hashes change with the hash key.
func isState(v event.View, shown event.Stored) bool {
	switch live := v.Live; {
	case !isPresent(v, shown.Acked):
		return false
	case live.Digest.None():
		return true
	}
	return isOfGroup(shown.Object, v.Resource) && isSameContent(shown.Object, v.Live)
}

// isOfGroup reports whether an object read from the bus belongs to the group of a resource. The API
// version of the object can differ from the watched version.
func isOfGroup(o *event.Object, r event.Resource) bool {
	if o == nil || o.APIVersion == "" {
		return true
	}
	gv, err := schema.ParseGroupVersion(o.APIVersion)
	return err == nil && gv.Group == r.Group
}

// isTruncated reports whether an event on the bus can be the truncated form of the live state. The
// forwarder still tries the full form, because only a publish shows whether the bus accepts it.
func isTruncated(v event.View, shown event.Stored) bool {
	if !isPresent(v, shown.Acked) || shown.Acked.Digest != v.Live.Digest || shown.Truncated.None() || !isOfGroup(shown.Object, v.Resource) {
		return false
	}
	same, err := event.IsTruncated(shown.Truncated, v.Live, v.Resource)
	return err == nil && same
}

// hasClaimedContent reports whether the data of an event matches the digest in its attributes. A text
// digest can be verified only if the live state has the same digest. Otherwise the result is false.
func hasClaimedContent(shown event.Stored, live *event.Object) bool {
	claimed, o := shown.Acked.Digest, shown.Object
	if claimed.Projected() && o != nil && !o.Body.None() {
		d, err := decode.DigestOf(o.Body)
		return err == nil && d == claimed
	}
	return live != nil && claimed == live.Digest && isSameContent(o, live)
}

// isSameContent reports whether an object read from the bus and an object in the cluster have the
// same content.
func isSameContent(bus, o *event.Object) bool {
	switch {
	case bus == nil || bus.Body.None() || o.Body.None():
		return false
	case o.Digest.Projected():
		d, err := decode.DigestOf(bus.Body)
		return err == nil && d == o.Digest
	}
	same, err := event.SameContent(bus.Body, o.Body)
	return err == nil && same
}
