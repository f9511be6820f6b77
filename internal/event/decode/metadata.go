package decode

import (
	"bytes"
	"math"
	"time"

	"github.com/kuberelay/kuberelay/internal/jsonscan"
)

const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// cut is a part of the text to leave out.
type cut struct{ from, to int }

func (d *Decoder) metadata(s *jsonscan.Scanner, f *fields) {
	s.Object()
	m := members{end: s.Position()}
	for s.Next() {
		d.member(&m, s)
		switch string(s.Key()) {
		case "name":
			readText(s, &f.name)
		case "namespace":
			readText(s, &f.namespace)
		case "uid":
			readText(s, &f.uid)
		case "resourceVersion":
			readText(s, &f.version)
		case "managedFields":
			f.managed = s.Skip()
			d.drop(&m, s)
			continue
		case "annotations":
			if !s.IsObject() {
				s.Skip()
			} else if d.annotations(s) {
				d.drop(&m, s)
				continue
			}
		default:
			s.Skip()
		}
		m.keep(s)
	}
	d.end(&m, s)
}

// annotations scans the annotations. It reports whether the scan dropped annotations and kept none.
func (d *Decoder) annotations(s *jsonscan.Scanner) bool {
	before := len(d.cuts)
	s.Object()
	m := members{end: s.Position()}
	for s.Next() {
		d.member(&m, s)
		dropped := string(s.Key()) == lastApplied
		s.Skip()
		if dropped {
			d.drop(&m, s)
		} else {
			m.keep(s)
		}
	}
	d.end(&m, s)
	if m.dropped && !m.kept {
		d.cuts = d.cuts[:before]
		return true
	}
	return false
}

// readText reads a string or null. A duplicate is an error.
func readText(s *jsonscan.Scanner, to *[]byte) {
	if *to != nil || !s.Null() {
		*to = once(s, *to)
	}
}

// once reads a string. It fails if before is set, which means that the field occurs twice.
func once(s *jsonscan.Scanner, before []byte) []byte {
	if before != nil {
		s.Fail()
	}
	return s.Text()
}

// members is the state of a scan that drops some members of an object. The scan drops the comma
// before each dropped member. If it has kept no earlier member, it drops the comma after the
// dropped member instead.
type members struct {
	end           int // where the last kept member ends, or the opening bracket if none is kept
	kept, dropped bool
}

// member is called at the beginning of each member. If all earlier members are dropped, it extends
// their cut up to this member.
func (d *Decoder) member(m *members, s *jsonscan.Scanner) {
	if m.dropped && !m.kept {
		d.cut(m.end, s.KeyPosition())
	}
}

func (d *Decoder) drop(m *members, s *jsonscan.Scanner) {
	m.dropped = true
	if m.kept {
		d.cut(m.end, s.Position())
	}
}

func (m *members) keep(s *jsonscan.Scanner) { m.kept, m.end = true, s.Position() }

// end is called after the closing bracket. If all members are dropped, it extends their cut up to
// the bracket.
func (d *Decoder) end(m *members, s *jsonscan.Scanner) {
	if m.dropped && !m.kept {
		d.cut(m.end, s.Position()-1)
	}
}

// cut records a part to leave out, or extends the last one.
func (d *Decoder) cut(from, to int) {
	if n := len(d.cuts); n > 0 && d.cuts[n-1].from == from {
		d.cuts[n-1].to = to
		return
	}
	d.cuts = append(d.cuts, cut{from, to})
}

// newestTime returns the newest time in metadata.managedFields, as Unix time in seconds, or 0 if
// metadata.managedFields records no valid time.
//
// Only an entry of managedFields has a member "time": the names of fields begin with "f:", and
// quotes within a name are escaped. newestTime searches for the final Z of a time, because this
// letter is rare elsewhere.
func newestTime(managedFields []byte) uint32 {
	const member, length = `"time":"`, len("2006-01-02T15:04:05Z")
	var newest []byte
	for from := 0; ; {
		i := bytes.Index(managedFields[from:], []byte(`Z"`))
		if i < 0 {
			break
		}
		from += i + 1
		begin := from - length
		if begin < len(member) || string(managedFields[begin-len(member):begin]) != member {
			continue
		}
		// The times are in UTC, without fractions of a second, so their texts sort like the times.
		if text := managedFields[begin:from]; bytes.Compare(text, newest) > 0 {
			newest = text
		}
	}
	var at time.Time
	if at.UnmarshalText(newest) != nil || at.Unix() <= 0 || at.Unix() > math.MaxUint32 {
		return 0
	}
	return uint32(at.Unix())
}
