package event

import (
	"bytes"
	"math"
	"time"
)

// newestTime returns the newest time in metadata.managedFields, in seconds of Unix time, or 0
// if there is none.
//
// Only an entry has the member: the names of fields begin with "f:", and quotes within a
// name are escaped.
func newestTime(managedFields []byte) uint32 {
	member := []byte(`"time":"`)
	var newest []byte
	for {
		i := bytes.Index(managedFields, member)
		if i < 0 {
			break
		}
		managedFields = managedFields[i+len(member):]
		// Times in UTC, without fractions of a second: their order is that of the texts.
		if text := managedFields[:min(len("2006-01-02T15:04:05Z"), len(managedFields))]; bytes.Compare(text, newest) > 0 {
			newest = text
		}
	}
	var at time.Time
	if at.UnmarshalText(newest) != nil || at.Unix() <= 0 || at.Unix() > math.MaxUint32 {
		return 0
	}
	return uint32(at.Unix())
}
