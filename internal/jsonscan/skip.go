package jsonscan

import (
	"encoding/binary"
	"math/bits"
)

// maxDepth is the limit of encoding/json.
const maxDepth = 10_000

// skip returns the position after the value that begins at i, or -1 if the value is invalid or
// incomplete. depth is the number of objects and arrays around it.
//
// The bits of a word track the open objects and arrays, with 1 for an object. Beyond 64
// levels, skip calls itself.
func skip(b []byte, i, depth int) int {
	var objects uint64
	open := 0
value:
	switch c := at(b, i); c {
	case '"':
		if i = str(b, i+1); i < 0 {
			return -1
		}
		goto end
	case '{', '[':
		if open == 64 {
			if i = skip(b, i, depth+open); i < 0 {
				return -1
			}
			goto end
		}
		if open++; depth+open > maxDepth {
			return -1
		}
		i = space(b, i+1)
		if c == '[' {
			objects <<= 1
			if at(b, i) == ']' {
				goto closed
			}
			goto value
		}
		objects = objects<<1 | 1
		if at(b, i) == '}' {
			goto closed
		}
		goto key
	case 't':
		i = word(b, i, "true")
	case 'f':
		i = word(b, i, "false")
	case 'n':
		i = word(b, i, "null")
	default:
		i = number(b, i)
	}
	if i < 0 {
		return -1
	}
	goto end
key:
	if i = key(b, i); i < 0 {
		return -1
	}
	goto value
closed:
	i++
	open--
	objects >>= 1
end:
	if open == 0 {
		return i
	}
	i = space(b, i)
	c := at(b, i)
	switch {
	case c == ',' && objects&1 == 1:
		i = space(b, i+1)
		goto key
	case c == ',':
		i = space(b, i+1)
		goto value
	case c == '}' && objects&1 == 1, c == ']' && objects&1 == 0:
		goto closed
	}
	return -1
}

// at returns the byte at i. At the end of the text, it returns 0, which is never valid JSON.
func at(b []byte, i int) byte {
	if i < len(b) {
		return b[i]
	}
	return 0
}

// space returns the position of the next byte that is not white space.
func space(b []byte, i int) int {
	if i < len(b) && b[i] > ' ' {
		return i
	}
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// key returns the position of the value of a member whose name begins at i, or -1 if the member is
// invalid.
func key(b []byte, i int) int {
	if at(b, i) != '"' {
		return -1
	}
	if i = str(b, i+1); i < 0 {
		return -1
	}
	if i = space(b, i); at(b, i) != ':' {
		return -1
	}
	return space(b, i+1)
}

func word(b []byte, i int, w string) int {
	if len(b)-i < len(w) || string(b[i:i+len(w)]) != w {
		return -1
	}
	return i + len(w)
}

func number(b []byte, i int) int {
	if at(b, i) == '-' {
		i++
	}
	switch c := at(b, i); {
	case c == '0':
		i++
	case isDigit(c):
		i = digits(b, i)
	default:
		return -1
	}
	if at(b, i) == '.' {
		if i++; !isDigit(at(b, i)) {
			return -1
		}
		i = digits(b, i)
	}
	if c := at(b, i); c == 'e' || c == 'E' {
		if i++; at(b, i) == '+' || at(b, i) == '-' {
			i++
		}
		if !isDigit(at(b, i)) {
			return -1
		}
		i = digits(b, i)
	}
	return i
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func digits(b []byte, i int) int {
	for i < len(b) && isDigit(b[i]) {
		i++
	}
	return i
}

// str returns the position after the closing quote of a string. i is the position after the opening
// quote. str reads eight bytes at a time: see "Determine if a word has a byte less than n" in
// Anderson's Bit Twiddling Hacks. Only the lowest bit in found is reliable, and str uses only that
// bit.
func str(b []byte, i int) int {
	const low, high = 0x0101010101010101, 0x8080808080808080
	for {
		if i+8 <= len(b) {
			w := binary.LittleEndian.Uint64(b[i:])
			quote, backslash := w^low*'"', w^low*'\\'
			found := ((quote-low)&^quote | (backslash-low)&^backslash | (w-low*' ')&^w) & high
			if found == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(found) / 8
		} else {
			for i < len(b) && b[i] >= ' ' && b[i] != '"' && b[i] != '\\' {
				i++
			}
		}
		switch at(b, i) {
		case '"':
			return i + 1
		case '\\':
			if i = escape(b, i+1); i < 0 {
				return -1
			}
		default: // a control character, or the end
			return -1
		}
	}
}

// escape returns the position after an escape. i is the position after the backslash.
func escape(b []byte, i int) int {
	switch at(b, i) {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 1
	case 'u':
		for range 4 {
			i++
			if c := at(b, i) | 0x20; !isDigit(at(b, i)) && (c < 'a' || c > 'f') {
				return -1
			}
		}
		return i + 1
	}
	return -1
}
