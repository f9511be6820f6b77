package loglimit

import (
	"log/slog"
	"strings"
)

// maxKinds is the maximum number of causes that a message about objects can have. Without a limit, an
// error that names its object would be a new cause for each object.
const maxKinds = 8

// keys returns the key of a record's cause. A record with the attribute "name" is about a single
// object. Its key consists of the message and the innermost error, and shared is true. For other
// records, the key also has the string attributes, so that each resource, topic, or setting has its
// own line.
func keys(with []slog.Attr, r slog.Record) (key string, shared bool) {
	var texts, name strings.Builder
	var err error
	visit := func(a slog.Attr) bool {
		switch v := a.Value.Resolve(); {
		case a.Key == "err":
			err, _ = v.Any().(error)
		case a.Key == "name":
			name.WriteString(v.String())
		case v.Kind() == slog.KindString:
			texts.WriteString("\x00" + a.Key + "\x00" + v.String())
		}
		return true
	}
	for _, a := range with {
		visit(a)
	}
	r.Attrs(visit)
	key = r.Message
	if err != nil {
		key += "\x00" + innermost(err)
	}
	if name.Len() > 0 {
		return key, true
	}
	return key + texts.String(), false
}

// innermost returns the text of the error at the end of the chain. The errors around it name
// objects and positions.
func innermost(err error) string {
	for {
		var inner error
		switch x := any(err).(type) {
		case interface{ Unwrap() error }:
			inner = x.Unwrap()
		case interface{ Unwrap() []error }:
			if all := x.Unwrap(); len(all) > 0 {
				inner = all[len(all)-1]
			}
		}
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}
