package status

import (
	"fmt"
	"strings"
)

// Sentence says which entry matches nothing, and suggests a similar name.
func (u Unmatched) Sentence() string {
	switch {
	case u.Setting == "KUBERELAY_FILTER":
		return "KUBERELAY_FILTER selects no object of " + u.Entry
	case u.Suggestion != "":
		return fmt.Sprintf("%s: %s matches nothing; did you mean %s?", u.Setting, u.Entry, u.Suggestion)
	}
	return fmt.Sprintf("%s: %s matches nothing", u.Setting, u.Entry)
}

// SelectingNothing returns the label and field selectors if every list is complete and no object
// is selected. A verdict has one finding for all of them.
func (d Document) SelectingNothing() (all []Unmatched) {
	if !d.selectsNothing() {
		return nil
	}
	for _, s := range d.Selectors {
		if setting, entry, _ := strings.Cut(s, "="); setting == "KUBERELAY_LABEL_SELECTOR" || setting == "KUBERELAY_FIELD_SELECTOR" {
			all = append(all, Unmatched{Setting: setting, Entry: entry})
		}
	}
	return all
}

// selectsNothing reports whether every list is complete, and no object is selected.
func (d Document) selectsNothing() bool {
	for _, r := range d.Resources {
		if r.State != "synced" || r.Objects > 0 {
			return false
		}
	}
	return len(d.Resources) > 0 && len(d.Selectors) > 0
}
