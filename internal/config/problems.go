package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// problems collects the problems of the configuration.
type problems struct {
	variables map[string]variable
	order     map[string]int
	found     []problem
}

type problem struct {
	name string
	err  error
}

func newProblems(vs []variable) *problems {
	p := &problems{variables: map[string]variable{}, order: map[string]int{}}
	for i, v := range vs {
		p.variables[v.Name], p.order[v.Name] = v, i
	}
	return p
}

// add adds a problem of a variable. The text follows its name and value.
func (p *problems) add(name, format string, args ...any) {
	v, ok := p.variables[name]
	if !ok {
		panic("no variable is called " + name)
	}
	shown := name
	if value := lookup(name); value != "" && v.mayShow(value) {
		shown += "=" + strconv.Quote(v.show(value))
	}
	text := shown + ": " + fmt.Errorf(format, args...).Error()
	p.found = append(p.found, problem{name, errors.New(strings.ReplaceAll(text, "\n", " "))})
}

// addItem adds a problem of one item of a list. It names the item if the list has other items.
func (p *problems) addItem(name string, list List, item string, err error) {
	if len(list) > 1 {
		err = fmt.Errorf("%q: %w", item, err)
	}
	p.add(name, "%w", err)
}

// has reports whether a variable already has a problem. Checks that depend on the variable then
// report nothing.
func (p *problems) has(name string) bool {
	return slices.ContainsFunc(p.found, func(f problem) bool { return f.name == name })
}

// err joins the problems in the order of the documentation. Unknown variables come last.
func (p *problems) err() error {
	rank := func(f problem) int {
		if i, ok := p.order[f.name]; ok {
			return i
		}
		return len(p.order)
	}
	slices.SortStableFunc(p.found, func(a, b problem) int { return rank(a) - rank(b) })
	var errs []error
	for _, f := range p.found {
		errs = append(errs, f.err)
	}
	return errors.Join(errs...)
}

// mayShow reports whether an error may show value. It returns false if value might be the secret
// itself rather than the path of the file that holds it.
func (v variable) mayShow(value string) bool {
	if v.kind != kindSecret {
		return true
	}
	for _, start := range []string{"/", "./", "../", "~/"} {
		if strings.HasPrefix(value, start) {
			return true
		}
	}
	return false
}

func (v variable) show(value string) string {
	switch v.kind {
	case kindURL:
		return maskURLs(value)
	case kindHTTPS:
		return maskEndpoint(value)
	case kindBrokers:
		return maskBrokers(value)
	}
	return value
}
