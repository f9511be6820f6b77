package event

import (
	"bytes"
	"math"
	"time"
)

// newestTime returns the newest time in metadata.managedFields, in seconds of Unix time, or 0
// if there is none.
//
// Only an entry has the member "time": the names of fields begin with "f:", and quotes within
// a name are escaped. The search is for the end of a time, because its first letter is rare.
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
		// Times in UTC, without fractions of a second: their order is that of the texts.
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
