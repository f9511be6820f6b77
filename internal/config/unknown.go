package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Kubernetes gives every container variables for the Services of its namespace.
// A Service called kuberelay, or kuberelay-something, gets names with our prefix.
// https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
var (
	serviceName = regexp.MustCompile(`^KUBERELAY_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)
	servicePort = regexp.MustCompile(`^KUBERELAY_([A-Z0-9_]+_)?PORT=(tcp|udp|sctp)://`)
)

// addUnknown notes the names with our prefix that mean nothing. Their values are
// not shown: they may be anything.
func (p *problems) addUnknown(environ []string) {
	names := make([]string, 0, len(p.variables))
	for name := range p.variables {
		names = append(names, name)
	}
	environ = slices.Sorted(slices.Values(environ))
	for _, pair := range environ {
		name, _, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, Prefix) || slices.Contains(names, name) ||
			serviceName.MatchString(name) || servicePort.MatchString(pair) {
			continue
		}
		if name == Prefix+"SKIP" { // what people look for first
			p.found = append(p.found, problem{name, fmt.Errorf("%s: there is no such variable, on purpose: a subscriber leaves out operations by the type of an event (docs/choosing.md)", name)})
			continue
		}
		p.found = append(p.found, problem{name,
			fmt.Errorf("%s: there is no such variable; did you mean %s?", name, nearest(name, names))})
	}
}

// nearest gives the name with the smallest edit distance, of several the first by
// the alphabet. To forget that a value comes from a file counts as one edit.
func nearest(name string, names []string) string {
	slices.Sort(names)
	edits := func(known string) int {
		return min(distance(name, known), distance(name, strings.TrimSuffix(known, "_FILE"))+1)
	}
	return slices.MinFunc(names, func(a, b string) int { return edits(a) - edits(b) })
}

// distance is Levenshtein's, in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next := min(row[j+1]+1, row[j]+1, diagonal+cost)
			diagonal, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}
