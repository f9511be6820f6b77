package projection

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// step is a part of a path: a name, all members or elements, or the elements that match a
// condition.
type step struct {
	name  string
	every bool
	where *condition
}

// condition matches the elements of a list that have a field with this value: a string, a
// json.Number, or a bool.
type condition struct {
	path  []string
	value any
}

// matches reports whether an element has the value. An element that does not match cannot match
// after fields are dropped from it. So dropping twice is the same as dropping once.
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

// identity lists the fields that can be neither dropped nor hashed.
var identity = [][]string{
	{"apiVersion"}, {"kind"}, {"metadata", "name"}, {"metadata", "namespace"}, {"metadata", "uid"}, {"metadata", "resourceVersion"},
}

// checkIdentity rejects a path to a field of the identity or to a parent of such a field.
func checkIdentity(path []step) error {
	for _, names := range identity {
		if len(path) > len(names) {
			continue
		}
		leads := func(s step, name string) bool { return s.every || s.where == nil && s.name == name }
		if slices.EqualFunc(path, names[:len(path)], leads) {
			return fmt.Errorf("it contains %s, which identifies the object; list the other fields one by one", strings.Join(names, "."))
		}
	}
	return nil
}

type parser struct {
	rest string
}

func parsePath(text string) ([]step, error) {
	switch {
	case text == "":
		return nil, errors.New("the path after the colon is missing; write it as .status or .metadata.annotations[\"example.com/checksum\"]")
	case text[0] == '{':
		return nil, errors.New("a path has no braces; remove { and }")
	case text[0] == '$' || text[0] == '@':
		return nil, fmt.Errorf("a path always begins at the object; remove %c", text[0])
	case text[0] == ' ' || text[0] == '\t':
		return nil, errors.New("there is a space after the colon; remove it")
	case text[0] == '/':
		return nil, fmt.Errorf("a path is not a JSON Pointer; write it with dots, as in .%s", strings.ReplaceAll(text[1:], "/", "."))
	case text[0] != '.' && text[0] != '[':
		return nil, errors.New("a path begins with a dot; add one")
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

// take consumes prefix if the rest begins with it, and reports whether it did.
func (p *parser) take(prefix string) bool {
	rest, ok := strings.CutPrefix(p.rest, prefix)
	p.rest = rest
	return ok
}

func (p *parser) step() (step, error) {
	switch {
	case p.take(".."):
		return step{}, errors.New("recursive descent (..) is not supported; write the whole path, or [*] for everything at one level")
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
	return step{}, fmt.Errorf("%q cannot follow the part before it; put a dot before a name, or quote the whole name as [\"…\"]", p.rest)
}

// name reads an unquoted name.
func (p *parser) name() (string, error) {
	var name strings.Builder
	escaped, slash := false, false // whether the current name has an escape, and a slash
	for p.rest != "" {
		c := p.rest[0]
		switch {
		case c == '\\':
			if len(p.rest) == 1 {
				return "", errors.New("the path ends with a backslash; remove it")
			}
			escaped = true
			name.WriteByte(p.rest[1])
			p.rest = p.rest[2:]
			continue
		case c == '.' || c == '[':
			return p.named(name.String(), slash && !escaped)
		case c == ' ' || c == '\t' || c == ';':
			return "", fmt.Errorf("%q does not separate entries; use a comma or a line break, or quote a name that contains it, as [\"…\"]", firstRune(p.rest))
		case !plain(c):
			return "", fmt.Errorf("%q cannot be in an unquoted name; write the name as [\"…\"]", firstRune(p.rest))
		case c == '/':
			slash = true
		}
		name.WriteByte(c)
		p.rest = p.rest[1:]
	}
	return p.named(name.String(), slash && !escaped)
}

// named checks a name. It rejects a split name: .example.com/checksum parses as two names, but is
// meant as one.
func (p *parser) named(name string, split bool) (string, error) {
	switch {
	case name == "":
		return "", errors.New("a name is missing after a dot; add one, or remove the dot")
	case split:
		return "", fmt.Errorf("a dot in a name must be quoted or escaped, and %q looks like the end of such a name; "+
			"write it as [\"example.com/checksum\"] or .example\\.com/checksum", name)
	}
	return name, nil
}

// plain reports whether an unquoted name can contain c. It accepts the characters that occur in the
// names of fields, labels, and annotations, except the dot.
func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("_-/", c) >= 0
}

func firstRune(s string) string {
	for _, r := range s {
		return string(r)
	}
	return ""
}

// brackets reads the rest of a step after a bracket that begins neither [*] nor a filter.
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
			return step{}, fmt.Errorf("positions such as [%s] are not supported, because they change when elements are dropped; write [*] for all elements, or [?(@.name==\"…\")] for some", inside)
		}
		return step{}, fmt.Errorf("[%s] is neither a quoted name nor [*]; quote a name, as in [\"example.com/checksum\"]", inside)
	}
	name, err := p.quoted()
	switch {
	case err != nil:
		return step{}, err
	case name == "":
		return step{}, errors.New("the name between the quotes is empty; write one")
	case p.take("]"):
		return step{name: name}, nil
	case strings.HasPrefix(p.rest, ","):
		return step{}, errors.New("brackets hold one name; write a separate entry for each name")
	}
	return step{}, errUnclosed
}

var errUnclosed = errors.New("a bracket is not closed; put ] after the name")

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

var errFilter = errors.New("a filter compares one field of an element with a string, a number, true, or false; write it as [?(@.type==\"Ready\")]")

// filter reads the rest of a step after "[?".
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

// field reads the name of a field in a filter. Such a name has only letters, digits, _, and -.
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
