package projection

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// step is one of a path: a name, all members, or the elements that match.
type step struct {
	name  string
	every bool
	where *condition
}

// condition is what an element of a list must have: a field with this value, which is a
// string, a json.Number or a bool.
type condition struct {
	path  []string
	value any
}

// matches is never true of less of an element if it is false of the whole. To drop twice
// would not be the same as to drop once otherwise.
func (c *condition) matches(element any) bool {
	for _, name := range c.path {
		fields, ok := element.(map[string]any)
		if !ok {
			return false
		}
		element = fields[name]
	}
	return element == c.value
}

// identity is what may not be dropped.
var identity = [][]string{
	{"apiVersion"}, {"kind"}, {"metadata", "name"}, {"metadata", "namespace"}, {"metadata", "uid"}, {"metadata", "resourceVersion"},
}

// checkIdentity refuses a path that leads to a part of the identity, or to what it is in.
func checkIdentity(path []step) error {
	for _, names := range identity {
		if len(path) > len(names) {
			continue
		}
		leads := func(s step, name string) bool { return s.every || s.where == nil && s.name == name }
		if slices.EqualFunc(path, names[:len(path)], leads) {
			return fmt.Errorf("it would drop %s, by which events tell objects apart; name the fields to drop one by one", strings.Join(names, "."))
		}
	}
	return nil
}

// parser reads a path from left to right.
type parser struct {
	rest string
}

func parsePath(text string) ([]step, error) {
	switch {
	case text == "":
		return nil, errors.New("there is no path after the colon; write it as .status or .metadata.annotations[\"example.com/checksum\"]")
	case text[0] == '{':
		return nil, errors.New("a path has no braces here; leave { and } out")
	case text[0] == '$' || text[0] == '@':
		return nil, fmt.Errorf("a path begins at the object by itself; leave %c out", text[0])
	case text[0] == ' ' || text[0] == '\t':
		return nil, errors.New("there is a space after the colon; leave it out")
	case text[0] == '/':
		return nil, fmt.Errorf("a path is no JSON Pointer; write it with dots, as .%s", strings.ReplaceAll(text[1:], "/", "."))
	case text[0] != '.' && text[0] != '[':
		return nil, errors.New("a path begins with a dot; put one in front of it")
	}
	p := parser{rest: text}
	var steps []step
	for p.rest != "" {
		s, err := p.step()
		if err != nil {
			return nil, err
		}
		steps = append(steps, s)
	}
	return steps, nil
}

// take cuts off prefix if that comes next.
func (p *parser) take(prefix string) bool {
	rest, ok := strings.CutPrefix(p.rest, prefix)
	p.rest = rest
	return ok
}

func (p *parser) step() (step, error) {
	switch {
	case p.take(".."):
		return step{}, errors.New("there is no search at every depth (..); write the whole path, or [*] for all of one level")
	case p.take(".*"), p.take("[*]"):
		return step{every: true}, nil
	case p.take("[?"):
		return p.filter()
	case p.take("["):
		return p.brackets()
	case p.take("."):
		name, err := p.name()
		return step{name: name}, err
	}
	return step{}, fmt.Errorf("%q does not follow on what is before it; put a dot in front of a name, or quote the whole name as [\"…\"]", p.rest)
}

// name reads a name without quotes.
func (p *parser) name() (string, error) {
	var name strings.Builder
	escaped, slash := false, false
	for p.rest != "" {
		c := p.rest[0]
		switch {
		case c == '\\':
			if len(p.rest) == 1 {
				return "", errors.New("there is nothing after the last backslash; remove it")
			}
			escaped = true
			name.WriteByte(p.rest[1])
			p.rest = p.rest[2:]
			continue
		case c == '.' || c == '[':
			return p.named(name.String(), slash && !escaped)
		case c == ' ' || c == '\t' || c == ';':
			return "", fmt.Errorf("%q does not end an entry; put a comma or a line break between two, or quotes around a name that has it, as [\"…\"]", firstRune(p.rest))
		case !plain(c):
			return "", fmt.Errorf("%q cannot be in a name without quotes; write the name as [\"…\"]", firstRune(p.rest))
		case c == '/':
			slash = true
		}
		name.WriteByte(c)
		p.rest = p.rest[1:]
	}
	return p.named(name.String(), slash && !escaped)
}

// named refuses example.com/checksum, which is two names, and meant as one.
func (p *parser) named(name string, torn bool) (string, error) {
	switch {
	case name == "":
		return "", errors.New("there is no name after a dot; write one, or remove the dot")
	case torn:
		return "", fmt.Errorf("a dot in a name must not look like one between names, and %q seems to be the end of such a name; "+
			"write it as [\"example.com/checksum\"] or .example\\.com/checksum", name)
	}
	return name, nil
}

// plain tells what can be in a name without quotes: the characters of fields, labels and
// annotations.
func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("_-/", c) >= 0
}

func firstRune(s string) string {
	for _, r := range s {
		return string(r)
	}
	return ""
}

// brackets reads what follows a bracket that is neither [*] nor a filter.
func (p *parser) brackets() (step, error) {
	if p.rest == "" {
		return step{}, errUnclosed
	}
	if c := p.rest[0]; c != '"' && c != '\'' {
		inside, _, closed := strings.Cut(p.rest, "]")
		switch {
		case !closed:
			return step{}, errUnclosed
		case inside != "" && strings.Trim(inside, "0123456789:-,") == "":
			return step{}, fmt.Errorf("positions such as [%s] change with what is dropped; write [*] for all elements, or [?(@.name==\"…\")] for some", inside)
		}
		return step{}, fmt.Errorf("[%s] is neither a name nor [*]; quote a name, as [\"example.com/checksum\"]", inside)
	}
	name, err := p.quoted()
	switch {
	case err != nil:
		return step{}, err
	case name == "":
		return step{}, errors.New("there is no name between the quotes; write one")
	case p.take("]"):
		return step{name: name}, nil
	case strings.HasPrefix(p.rest, ","):
		return step{}, errors.New("there is one name in brackets; write an entry of its own for each")
	}
	return step{}, errUnclosed
}

var errUnclosed = errors.New("a bracket is not closed; put ] after the name")

// quoted reads a string, up to the quote that it begins with.
func (p *parser) quoted() (string, error) {
	quote := p.rest[0]
	var s strings.Builder
	for i := 1; i < len(p.rest); i++ {
		switch c := p.rest[i]; c {
		case quote:
			p.rest = p.rest[i+1:]
			return s.String(), nil
		case '\\':
			if i++; i < len(p.rest) {
				s.WriteByte(p.rest[i])
			}
		default:
			s.WriteByte(c)
		}
	}
	return "", fmt.Errorf("a quote is not closed; put %c after the name", quote)
}

var errFilter = errors.New("a filter compares one field of an element with a string, a number, true or false; write it as [?(@.type==\"Ready\")]")

// filter reads what follows «[?».
func (p *parser) filter() (step, error) {
	if !p.take("(") || !p.spaces().take("@.") {
		return step{}, errFilter
	}
	var c condition
	for {
		name, err := p.field()
		if err != nil {
			return step{}, err
		}
		c.path = append(c.path, name)
		if !p.take(".") {
			break
		}
	}
	if !p.spaces().take("==") {
		return step{}, errFilter
	}
	value, err := p.spaces().literal()
	if err != nil {
		return step{}, err
	}
	c.value = value
	if !p.spaces().take(")") || !p.take("]") {
		return step{}, errFilter
	}
	return step{where: &c}, nil
}

func (p *parser) spaces() *parser {
	p.rest = strings.TrimLeft(p.rest, " ")
	return p
}

// field reads a field's name in a filter, where there are only letters, digits, _ and -.
func (p *parser) field() (string, error) {
	end := 0
	for end < len(p.rest) && p.rest[end] != '/' && plain(p.rest[end]) {
		end++
	}
	name := p.rest[:end]
	p.rest = p.rest[end:]
	if name == "" {
		return "", errFilter
	}
	return name, nil
}

func (p *parser) literal() (any, error) {
	if p.rest == "" {
		return nil, errFilter
	}
	if p.rest[0] == '"' || p.rest[0] == '\'' {
		return p.quoted()
	}
	end := strings.IndexAny(p.rest, " )")
	if end < 0 {
		return nil, errFilter
	}
	word := p.rest[:end]
	p.rest = p.rest[end:]
	var value any
	d := json.NewDecoder(strings.NewReader(word))
	d.UseNumber()
	if d.Decode(&value) != nil || d.More() {
		return nil, errFilter
	}
	switch value.(type) {
	case bool, json.Number:
		return value, nil
	}
	return nil, errFilter
}
