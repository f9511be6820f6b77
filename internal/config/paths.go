package config

import (
	"errors"
	"strings"

	"github.com/kelseyhightower/envconfig"
)

// Paths is a list of paths in objects, separated by commas or line breaks. A separator in brackets
// or after a backslash does not end a path. Spaces around an item are ignored.
type Paths []string

var _ envconfig.Decoder = (*Paths)(nil)

// Decode implements envconfig.Decoder.
func (p *Paths) Decode(value string) error {
	*p = nil
	for value != "" {
		end := pathEnd(value)
		item := strings.TrimSpace(value[:end])
		comma := end < len(value) && value[end] == ','
		last := end == len(value)
		switch {
		case item != "":
			*p = append(*p, item)
		case comma:
			return errNoPath
		}
		if last {
			return nil
		}
		value = value[end+1:]
		if comma && strings.TrimSpace(value) == "" {
			return errNoPath
		}
	}
	return nil
}

var errNoPath = errors.New("an item is empty; remove the extra comma")

// pathEnd returns the end of the first path: a comma or a line break outside brackets. Inside
// brackets, only quotes can contain a closing bracket.
func pathEnd(text string) int {
	var quote byte
	brackets := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case brackets && (c == '"' || c == '\''):
			quote = c
		case c == '[':
			brackets = true
		case c == ']':
			brackets = false
		case !brackets && (c == ',' || c == '\n'):
			return i
		}
	}
	return len(text)
}
