package checkpoint

import (
	"encoding/hex"
	"iter"
	"strconv"

	"github.com/kuberelay/kuberelay/internal/event"
)

// table is a map of what is acknowledged. It is as large as the cluster, so an
// entry holds no pointers and less than half of what an [event.Acked] with its
// two strings takes. What the API server of Kubernetes itself never makes, a UID
// that is no UUID or a version that is no number, is kept as it is.
type table struct {
	packed map[event.Key]entry
	odd    map[event.Key]event.Acked
}

type entry struct {
	uid      [16]byte
	digest   event.Digest
	version  uint64
	position uint64
	stored   uint32
	epoch    uint16

	deleted, deselected bool
}

func newTable(size int) table {
	return table{packed: make(map[event.Key]entry, size), odd: map[event.Key]event.Acked{}}
}

func (t table) len() int { return len(t.packed) + len(t.odd) }

// get gives the zero value for what is not there.
func (t table) get(k event.Key) event.Acked {
	if e, ok := t.packed[k]; ok {
		return e.unpack()
	}
	return t.odd[k]
}

// put takes the zero value for what is to be removed.
func (t table) put(k event.Key, a event.Acked) {
	e, ok := pack(a)
	switch {
	case ok:
		t.packed[k] = e
		delete(t.odd, k)
	case a == event.Acked{}:
		delete(t.packed, k)
		delete(t.odd, k)
	default:
		t.odd[k] = a
		delete(t.packed, k)
	}
}

func (t table) keys() iter.Seq[event.Key] {
	return func(yield func(event.Key) bool) {
		for k := range t.packed {
			if !yield(k) {
				return
			}
		}
		for k := range t.odd {
			if !yield(k) {
				return
			}
		}
	}
}

func (t table) epoch() uint16 {
	var highest uint16
	for _, e := range t.packed {
		highest = max(highest, e.epoch)
	}
	for _, a := range t.odd {
		highest = max(highest, a.Epoch)
	}
	return highest
}

// pack is exact: it refuses what unpack would not give back byte for byte.
func pack(a event.Acked) (entry, bool) {
	e := entry{digest: a.Digest, position: a.Position, stored: a.Stored, epoch: a.Epoch, deleted: a.Deleted, deselected: a.Deselected}
	var err error
	if e.version, err = strconv.ParseUint(a.ResourceVersion, 10, 64); err != nil || len(a.UID) != len(uuidForm) {
		return entry{}, false
	}
	digits := make([]byte, 0, 2*len(e.uid))
	for i := range len(a.UID) {
		if uuidForm[i] != '-' {
			digits = append(digits, a.UID[i])
		}
	}
	if _, err := hex.Decode(e.uid[:], digits); err != nil {
		return entry{}, false
	}
	return e, e.unpack() == a
}

const uuidForm = "00000000-0000-0000-0000-000000000000"

func (e entry) unpack() event.Acked {
	var stack [len(uuidForm)]byte
	uid := hex.AppendEncode(stack[:0], e.uid[:4])
	for _, part := range [][]byte{e.uid[4:6], e.uid[6:8], e.uid[8:10], e.uid[10:]} {
		uid = hex.AppendEncode(append(uid, '-'), part)
	}
	return event.Acked{
		UID: string(uid), ResourceVersion: strconv.FormatUint(e.version, 10),
		Digest: e.digest, Epoch: e.epoch, Deleted: e.deleted, Deselected: e.deselected, Stored: e.stored, Position: e.position,
	}
}
