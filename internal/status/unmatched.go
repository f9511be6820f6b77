package status

import "fmt"

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

// selectsNothing reports whether every list is complete, and no object is selected.
func (d Document) selectsNothing() bool {
	for _, r := range d.Resources {
		if r.State != "synced" || r.Objects > 0 {
			return false
		}
	}
	return len(d.Resources) > 0 && len(d.Selectors) > 0
}
