package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/explain"
)

func selectionChecks() []Check {
	const group = "selection"
	return []Check{
		{ID: "resources-matched", Group: group, check: withSelection(checkResources)},
		{ID: "excluded-resources-matched", Group: group, check: withSelection(checkExcluded)},
		{ID: "namespaces-found", Group: group, check: withSelection(checkNamespaces)},
		{ID: "fields-matched", Group: group, check: withSelection(checkFields)},
		{ID: "secret-fields", Group: group, check: withSelection(checkSecretFields)},
		{ID: "anything-watched", Group: group, check: withSelection(checkAnything)},
		{ID: "lists", Group: group, check: withSelection(checkLists)},
	}
}

// watches reports whether a resource is watched, at least in part.
func (f *Facts) watches(resource string) bool {
	return slices.ContainsFunc(f.Selection.Watched(), func(r explain.Explained) bool { return r.Name == resource })
}

// unmatched lists entries that match nothing, each with a similar name.
func (f *Facts) unmatched(entries []string) string {
	var all []string
	for _, e := range entries {
		if similar := f.Selection.Suggestions[e]; similar != "" {
			e += " (did you mean " + similar + "?)"
		}
		all = append(all, e)
	}
	return names(all)
}

const spelling = "correct the spelling, or remove the entry; an entry for a resource that is installed later can stay"

func checkResources(f *Facts) verdict {
	if entries := f.Selection.Unmatched; len(entries) > 0 {
		return warn(spelling, "KUBERELAY_RESOURCES has entries that match nothing: %s", f.unmatched(entries))
	}
	return pass("every entry of KUBERELAY_RESOURCES matches a resource")
}

func checkExcluded(f *Facts) verdict {
	switch entries := f.Selection.UnmatchedExclude; {
	case len(f.Settings.Watch.ExcludeResources) == 0:
		return skip("KUBERELAY_EXCLUDE_RESOURCES is not set")
	case len(entries) > 0:
		return warn(spelling, "KUBERELAY_EXCLUDE_RESOURCES has entries that match nothing: %s", f.unmatched(entries))
	}
	return pass("every entry of KUBERELAY_EXCLUDE_RESOURCES matches a resource")
}

func checkNamespaces(f *Facts) verdict {
	n := f.Selection.Namespaces
	switch {
	case n.Error != "" && f.Settings.Watch.NamespaceSelector == "":
		return warn("grant list and watch on namespaces", "the namespaces cannot be read, so a misspelled name in KUBERELAY_EXCLUDE_NAMESPACES goes unnoticed: %s", n.Error)
	case n.Error != "":
		return fail("grant list and watch on namespaces, or name the namespaces in KUBERELAY_NAMESPACES", "the namespaces cannot be read: %s", n.Error)
	case len(n.NotFound) > 0:
		return warn("correct the spelling of KUBERELAY_NAMESPACES; a namespace that is created later is watched then", "namespaces do not exist: %s", f.unmatched(n.NotFound))
	case n.All:
		return pass("all namespaces are selected")
	case len(n.Selected) == 0:
		return warn("check KUBERELAY_NAMESPACE_SELECTOR and KUBERELAY_EXCLUDE_NAMESPACES for typos", "no namespace is selected")
	}
	return pass("%d %s selected", len(n.Selected), plural(len(n.Selected), "namespace"))
}

func checkFields(f *Facts) verdict {
	c := f.Settings.Content
	switch entries := f.Selection.UnmatchedFields; {
	case len(f.Selection.UnmatchedFollow) > 0:
		return warn("correct the name of the resource: its plural, with the group", "entries of KUBERELAY_FOLLOW match no watched resource: %s", names(f.Selection.UnmatchedFollow))
	case len(c.DropFields)+len(c.HashFields) == 0:
		return skip("KUBERELAY_DROP_FIELDS and KUBERELAY_HASH_FIELDS are not set")
	case len(entries) > 0:
		return warn("correct the name of the resource: a plural, a singular, or a Kind, with the group", "entries of KUBERELAY_DROP_FIELDS or KUBERELAY_HASH_FIELDS match no watched resource: %s", names(entries))
	}
	return pass("every entry of KUBERELAY_DROP_FIELDS and KUBERELAY_HASH_FIELDS matches a watched resource")
}

func checkSecretFields(f *Facts) verdict {
	if fields := f.Selection.ReadableFields; len(fields) > 0 {
		return warn("set KUBERELAY_HASH_KNOWN_FIELDS=true, drop or hash the fields, or exclude the resources", "fields that are known to hold secrets are published: %s", names(fields))
	}
	return pass("no field that is known to hold secrets is published")
}

func checkAnything(f *Facts) verdict {
	watched := len(f.Selection.Watched())
	if watched == 0 {
		return fail("correct KUBERELAY_RESOURCES, or grant list and watch; forwarder resources says why each resource is not watched", "nothing is watched")
	}
	return pass("%d %s watched; forwarder resources lists them", watched, plural(watched, "resource"))
}

func checkLists(f *Facts) verdict {
	var failing []string
	for _, l := range f.Lists {
		if l.Err != nil {
			failing = append(failing, fmt.Sprintf("%s (%v)", l.Resource, l.Err))
		}
	}
	switch {
	case len(f.Lists) == 0:
		return skip("nothing is watched")
	case len(failing) > 0:
		return fail("depending on the error, repair the conversion webhook of the CustomResourceDefinition, or use fields in KUBERELAY_FIELD_SELECTOR that every watched resource supports", "lists fail: %s", names(failing))
	}
	return pass("every watched resource can be listed")
}

// selectors names the settings that prevent the API server from counting objects.
func selectors(w config.Watch) string {
	var set []string
	for _, s := range []struct{ name, value string }{
		{"KUBERELAY_LABEL_SELECTOR", w.LabelSelector}, {"KUBERELAY_FIELD_SELECTOR", w.FieldSelector},
	} {
		if s.value != "" {
			set = append(set, s.name)
		}
	}
	return strings.Join(set, " and ")
}
