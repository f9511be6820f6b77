package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/kuberelay/kuberelay/internal/selector"
)

// serviceName and servicePort match the variables that Kubernetes sets in every container for the
// Services of its namespace. The variables of a Service named kuberelay, or kuberelay-something,
// also begin with KUBERELAY_.
// https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
var (
	serviceName = regexp.MustCompile(`^KUBERELAY_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)
	servicePort = regexp.MustCompile(`^KUBERELAY_([A-Z0-9_]+_)?PORT=(tcp|udp|sctp)://`)
)

// addUnknown adds a problem for each unknown variable with the prefix. The problem does not show
// the value, which might be a secret.
func (p *problems) addUnknown(environ []string) {
	names := slices.Collect(maps.Keys(p.variables))
	for _, pair := range slices.Sorted(slices.Values(environ)) {
		name, _, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, Prefix) || slices.Contains(names, name) ||
			serviceName.MatchString(name) || servicePort.MatchString(pair) {
			continue
		}
		if name == Prefix+"SKIP" { // a common guess
			p.found = append(p.found, problem{name, fmt.Errorf("%s: there is no such variable; to skip operations, filter by event type in the subscriber (docs/choosing.md)", name)})
			continue
		}
		p.found = append(p.found, problem{name,
			fmt.Errorf("%s: there is no such variable; did you mean %s?", name, nearest(name, names))})
	}
}

// nearest returns the known variable that is most similar to an unknown variable. Users easily
// forget the suffix _FILE.
func nearest(unknown string, names []string) string {
	all := slices.Clone(names)
	for _, name := range names {
		if short, ok := strings.CutSuffix(name, "_FILE"); ok && !slices.Contains(names, short) {
			all = append(all, short)
		}
	}
	name := selector.Nearest(unknown, all)
	if !slices.Contains(names, name) {
		name += "_FILE"
	}
	return name
}
