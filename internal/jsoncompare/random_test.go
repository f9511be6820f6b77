package jsoncompare

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
)

func randomValue(r *rand.Rand, depth int) any {
	switch k := r.IntN(10); {
	case depth > 0 && k < 3:
		return randomObject(r, depth-1)
	case depth > 0 && k < 6:
		s := make([]any, r.IntN(13))
		for n := range s {
			s[n] = randomValue(r, depth-2)
		}
		return s
	}
	return scalars[r.IntN(len(scalars))]
}

func randomObject(r *rand.Rand, depth int) map[string]any {
	m := map[string]any{}
	for range r.IntN(5) {
		m[names[r.IntN(len(names))]] = randomValue(r, depth)
	}
	return m
}

// alter returns a copy with some changed values.
func alter(r *rand.Rand, value any, depth int) any {
	switch v := value.(type) {
	case map[string]any:
		m := map[string]any{}
		for _, name := range names {
			old, ok := v[name]
			switch k := r.IntN(20); {
			case k == 0:
				m[name] = randomValue(r, depth)
			case ok && k != 1:
				m[name] = alter(r, old, depth-1)
			}
		}
		return m
	case []any:
		var s []any
		for _, item := range v {
			if r.IntN(15) > 0 {
				s = append(s, alter(r, item, depth-1))
			}
		}
		if r.IntN(5) == 0 || s == nil {
			s = append(s, randomValue(r, depth))
		}
		return s
	}
	if r.IntN(10) == 0 {
		return randomValue(r, depth)
	}
	return value
}

// write encodes a value as JSON, with members in random order, and with random spaces and
// escapes.
func write(r *rand.Rand, value any) []byte {
	var b bytes.Buffer
	writeTo(&b, r, value)
	return b.Bytes()
}

func writeTo(b *bytes.Buffer, r *rand.Rand, value any) {
	space := func() { b.WriteString([]string{"", "", "", " ", "\n\t"}[r.IntN(5)]) }
	space()
	defer space()
	switch v := value.(type) {
	case map[string]any:
		b.WriteByte('{')
		comma := ""
		for name, member := range v { // in random order
			b.WriteString(comma)
			comma = ","
			space()
			writeTo(b, r, name)
			b.WriteByte(':')
			writeTo(b, r, member)
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for n, item := range v {
			if n > 0 {
				b.WriteByte(',')
			}
			writeTo(b, r, item)
		}
		space()
		b.WriteByte(']')
	case string:
		if r.IntN(4) > 0 {
			text, _ := json.Marshal(v)
			b.Write(text)
			return
		}
		b.WriteByte('"')
		for _, c := range v {
			fmt.Fprintf(b, `\u%04x`, c)
		}
		b.WriteByte('"')
	default:
		text, _ := json.Marshal(v)
		b.Write(text)
	}
}
