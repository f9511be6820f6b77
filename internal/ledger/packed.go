package ledger

import (
	"encoding/hex"
	"strconv"

	"github.com/kuberelay/kuberelay/internal/event"
)

// packed is an [event.Acked] without pointers. It takes less than half of the memory. An entry
// cannot be packed if it is foreign, if its UID is not a UUID, or if its version is not a number.
// kube-apiserver creates only UUIDs and numbers.
type packed struct {
	uid      [16]byte
	digest   event.Digest
	version  uint64
	position uint64
	state    state
}

// state holds a time in the upper 46 bits, then an epoch in 16 bits, then two flags. Separate
// fields would make each record larger.
type state uint64

const (
	deletedFlag = 1 << iota
	deselectedFlag

	epochShift = 2
	timeShift  = epochShift + 16
)

// stateOf returns the state of an entry. It drops the upper bits of a time that does not fit.
func stateOf(a event.Acked) state {
	s := state(a.Epoch) << epochShift
	if a.Deleted {
		s |= deletedFlag
	}
	if a.Deselected {
		s |= deselectedFlag
	}
	return s.at(a.Time)
}

// at returns a copy of the state with another time.
func (s state) at(ms int64) state { return s&(1<<timeShift-1) | state(ms)<<timeShift }

func (s state) time() int64      { return int64(s >> timeShift) }
func (s state) epoch() uint16    { return uint16(s >> epochShift) }
func (s state) deleted() bool    { return s&deletedFlag != 0 }
func (s state) deselected() bool { return s&deselectedFlag != 0 }

// pack returns the packed form of an entry. It returns false for an entry that unpack would not
// restore exactly, and for an entry whose packed form would be the zero value, which means no event.
func pack(a event.Acked) (packed, bool) {
	p := packed{digest: a.Digest, position: a.Position, state: stateOf(a)}
	var err error
	if p.version, err = strconv.ParseUint(a.ResourceVersion, 10, 64); err != nil || len(a.UID) != len(uuidForm) {
		return packed{}, false
	}
	digits := make([]byte, 0, 2*len(p.uid))
	for i := range len(a.UID) {
		if uuidForm[i] != '-' {
			digits = append(digits, a.UID[i])
		}
	}
	if _, err := hex.Decode(p.uid[:], digits); err != nil {
		return packed{}, false
	}
	if p == (packed{}) || p.unpack() != a {
		return packed{}, false
	}
	return p, true
}

const uuidForm = "00000000-0000-0000-0000-000000000000"

func (p packed) unpack() event.Acked {
	var stack [len(uuidForm)]byte
	uid := hex.AppendEncode(stack[:0], p.uid[:4])
	for _, part := range [][]byte{p.uid[4:6], p.uid[6:8], p.uid[8:10], p.uid[10:]} {
		uid = hex.AppendEncode(append(uid, '-'), part)
	}
	return event.Acked{
		UID: string(uid), ResourceVersion: strconv.FormatUint(p.version, 10),
		Digest: p.digest, Epoch: p.state.epoch(), Deleted: p.state.deleted(), Deselected: p.state.deselected(), Time: p.state.time(), Position: p.position,
	}
}
