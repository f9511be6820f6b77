package projection

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/selector"
)

func parseSelector(text string) (selector.Selector, error) {
	if text == "" {
		return selector.Selector{}, errors.New("the resource before the colon is missing; write one, or * for all resources")
	}
	s, err := selector.Parse(text)
	if version := cmp.Or(s.Version, s.Group); err == nil && selector.IsVersion(version) {
		return selector.Selector{}, fmt.Errorf("an entry applies to every version of a resource; remove %q", "."+version)
	}
	return s, err
}

func matches(s selector.Selector, r event.Resource) bool {
	return s.HasGroup(r.Group) && (s.IsWildcard() || strings.EqualFold(s.Name, r.Resource) || strings.EqualFold(s.Name, r.Kind))
}
