package torture

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/decode"
	"github.com/kuberelay/kuberelay/internal/filter"
	"github.com/kuberelay/kuberelay/internal/projection"
	"github.com/kuberelay/kuberelay/test/harness"
)

// dropped, filter and form configure the content of events. Namespaces have no data, so the filter
// expression fails for them, and the forwarder publishes them.
func (w *world) dropped() string {
	if !w.settings.shaped {
		return ""
	}
	return "*:.data.noise"
}

func (w *world) filter() string {
	if !w.settings.shaped {
		return ""
	}
	return "!has(object.data.hidden)"
}

func (w *world) form() string {
	if w.settings.asChange {
		return "change"
	}
	return "object"
}

// shape returns the same configuration for verify.
func (w *world) shape() func(event.Resource) decode.Shape {
	if !w.settings.shaped {
		return nil
	}
	drop, err := projection.ParseDrop([]string{w.dropped()})
	if err != nil {
		w.t.Fatal(err)
	}
	expression, err := filter.Compile(w.filter())
	if err != nil {
		w.t.Fatal(err)
	}
	return func(r event.Resource) decode.Shape {
		shape := drop.For(r)
		if selects := expression.For(r); selects != nil {
			shape.Select = selects
		}
		return shape
	}
}

// project drops the configured fields without the forwarder's code.
func project(object map[string]any) {
	if data, ok := object["data"].(map[string]any); ok {
		delete(data, "noise")
	}
}

func isHidden(object map[string]any) bool {
	data, _ := object["data"].(map[string]any)
	return data["hidden"] != nil
}

// hidden contains the UIDs of all objects that were ever hidden. It includes objects of earlier
// worlds, whose namespaces may still be terminating.
var hidden sync.Map

// maybeHidden contains the objects whose hide request failed, as namespace/name. The API server may have hidden
// them.
var maybeHidden sync.Map

// wasHidden reports whether the object of an event may have been hidden.
func wasHidden(m harness.Received) bool {
	_, was := hidden.Load(m.Attributes["uid"])
	_, maybe := maybeHidden.Load(m.Attributes["namespace"] + "/" + m.Attributes["name"])
	return was || maybe
}

// objectOf returns the object in an event's data, in either form.
func objectOf(m harness.Received) (map[string]any, error) {
	var data map[string]any
	if err := json.Unmarshal(m.Data, &data); err != nil || m.Attributes["dataschema"] == "" {
		return data, err
	}
	object, ok := data["object"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("there is no object in %.300s", m.Data)
	}
	return object, nil
}

// showsVersion reports whether an event has an object's current version, or an earlier version with
// the same published content.
func (w *world) showsVersion(m harness.Received, o unstructured.Unstructured) bool {
	if m.Attributes["resourceversion"] == o.GetResourceVersion() {
		return true
	}
	return w.settings.shaped && len(w.contentDiffers(m, o)) == 0
}

// contentDiffers returns where an event's data differs from the current object, apart from the
// version.
func (w *world) contentDiffers(m harness.Received, o unstructured.Unstructured) []string {
	shown, err := objectOf(m)
	if err != nil {
		return []string{err.Error()}
	}
	is := published(&o)
	if w.settings.shaped {
		project(is)
	}
	if m.Attributes["truncated"] == "true" {
		is = map[string]any{"metadata": is["metadata"]}
	}
	for _, object := range []map[string]any{is, shown} {
		delete(object, "apiVersion") // one of the served versions
		delete(object, "kind")
		if metadata, ok := object["metadata"].(map[string]any); ok {
			delete(metadata, "resourceVersion")
			delete(metadata, "generation")
		}
	}
	return places("", plainJSON(is), shown)
}

// plainJSON returns an object with numbers as encoding/json decodes them.
func plainJSON(object map[string]any) (plain map[string]any) {
	text, _ := json.Marshal(object)
	_ = json.Unmarshal(text, &plain)
	return plain
}

// projectedDigest is the length of the digest of an object with dropped fields. Other digests are
// shorter.
const projectedDigest = 32

// shape checks that an event's data and digest have the configured form, and that the data contains
// no dropped field and no hidden object.
func (c *streamCheck) shape(m harness.Received, object map[string]any) {
	s := c.conf
	if got := m.Attributes["dataschema"] != ""; got != s.asChange {
		c.wrong(m, "dataschema is %q", m.Attributes["dataschema"])
	}
	if was, ok := c.runs[m.Subject]; gone(m) && ok && was != c.run {
		return // the last state may be from the bus, with an earlier configuration
	}
	digest, whole := m.Attributes["digest"], m.Attributes["finalstateunknown"] != "true"
	invented := gone(m) && strings.HasPrefix(m.Attributes["uid"], inventedUIDs) // the last state is the foreign writer's
	// The last state can also be the foreign writer's copy of an event of an earlier configuration, which a forwarder
	// reads when it starts.
	copied := gone(m) && c.foreign[m.Subject] && digest == c.claimed[m.Subject].Attributes["digest"]
	if (len(digest) == projectedDigest) != (s.shaped && whole) && !invented && !copied {
		c.wrong(m, "the digest is %q", digest)
	}
	if !s.shaped {
		return
	}
	if data, _ := object["data"].(map[string]any); data["noise"] != nil || data["hidden"] != nil {
		c.wrong(m, "the data has a dropped field or a hidden object: %v", data)
	}
}

// told counts the events in all worlds that list their changes. patched counts the events with a
// patch that isn't empty.
var told, patched atomic.Int64

// isUnanswered reports whether a publish between two events of an object wasn't acknowledged. The
// forwarder then publishes the current state even if the bus already had its content.
func (w *world) isUnanswered(last, m harness.Received) bool {
	for _, nd := range w.nodes {
		if logsUnanswered(nd.Log(), last, m) {
			return true
		}
	}
	return false
}

// logsUnanswered reports whether a forwarder's log shows an unacknowledged publish between two events of an
// object. If the forwarder logs many failed publishes, it suppresses the lines after the first five, and a
// later line says how many. A suppressed line can be about any object, so logsUnanswered also returns true
// for the fifth line and for a line that counts suppressed ones.
func logsUnanswered(log string, last, m harness.Received) bool {
	written := 0
	for line := range strings.Lines(log) {
		var is struct {
			Level, Msg string
			EventID    string `json:"event_id"`
			Suppressed int
		}
		if !strings.Contains(line, failing) || json.Unmarshal([]byte(line), &is) != nil || is.Level != "WARN" {
			continue
		}
		uid, version, _ := strings.Cut(is.EventID, ".")
		version, _, _ = strings.Cut(version, ".")
		if written++; written == 5 || is.Suppressed > 0 || uid == m.Attributes["uid"] &&
			isBetween(last.Attributes["resourceversion"], version, m.Attributes["resourceversion"]) {
			return true
		}
	}
	return false
}

// isBetween reports whether a version is at least from and at most to.
func isBetween(from, version, to string) bool {
	after, err := resourceversion.CompareResourceVersion(version, from)
	before, err2 := resourceversion.CompareResourceVersion(version, to)
	return err == nil && err2 == nil && after >= 0 && before <= 0
}

// change checks the changes that an event lists against the event before it.
func (c *streamCheck) change(last, m harness.Received) {
	changed := m.Attributes["changed"]
	update := m.Kind() == "updated"
	if !update && changed != "" {
		c.wrong(m, "changed is %q", changed)
	}
	before, err := objectOf(last)
	after, err2 := objectOf(m)
	if err != nil || err2 != nil {
		return // another check reports it
	}
	whole := last.Attributes["truncated"] != "true" && m.Attributes["truncated"] != "true" && c.runs[m.Subject] == c.run
	if c.conf.shaped && update && whole && !isProjected(m) &&
		last.Attributes["sequence"][:4] == m.Attributes["sequence"][:4] && reflect.DeepEqual(stateOf(before), stateOf(after)) && !c.world.isUnanswered(last, m) {
		c.wrong(m, "no published field has changed since %s", last.Place)
	}
	if before["apiVersion"] != after["apiVersion"] {
		// The previous state may be from the cluster, in the current version of the API.
		before = maps.Clone(before)
		if changed != strings.Join(places("", before, after), ",") {
			before["apiVersion"] = after["apiVersion"]
		}
	}
	if update && changed != "" && whole {
		told.Add(1)
		if want := strings.Join(places("", before, after), ","); changed != want {
			c.wrong(m, "changed is %q, want %q", changed, want)
		}
	}
	if !c.conf.asChange {
		return
	}
	var data struct{ Object, Previous, Patch json.RawMessage }
	if err := json.Unmarshal(m.Data, &data); err != nil {
		c.wrong(m, "data: %v", err)
		return
	}
	if string(data.Previous) == "null" || string(data.Patch) == "null" {
		if string(data.Previous) != string(data.Patch) {
			c.wrong(m, "only one of previous and patch is null")
		}
		return
	}
	patch, err := jsonpatch.DecodePatch(data.Patch)
	if err != nil {
		c.wrong(m, "patch: %v", err)
		return
	}
	result, err := patch.Apply(data.Previous)
	switch {
	case err != nil:
		c.wrong(m, "the patch cannot be applied: %v", err)
	case !jsonpatch.Equal(result, data.Object):
		c.wrong(m, "the patch gives %.300s, want %.300s", result, data.Object)
	}
	var previous map[string]any
	err = json.Unmarshal(data.Previous, &previous)
	if previous["apiVersion"] == after["apiVersion"] && before["apiVersion"] != after["apiVersion"] {
		before = maps.Clone(before)
		before["apiVersion"] = after["apiVersion"]
	}
	if err != nil || whole && !reflect.DeepEqual(stateOf(previous), stateOf(before)) {
		c.wrong(m, "previous is %.300v, want %.300v (%v)", previous, before, err)
	}
	if !reflect.DeepEqual(previous, after) {
		patched.Add(1)
	}
}

// stateOf returns an object without its version. If two states have the same published content, the
// forwarder may know either of them as the previous state.
func stateOf(object map[string]any) map[string]any {
	object = maps.Clone(object)
	if metadata, ok := object["metadata"].(map[string]any); ok {
		metadata = maps.Clone(metadata)
		delete(metadata, "resourceVersion")
		delete(metadata, "generation")
		object["metadata"] = metadata
	}
	return object
}

// places returns the JSON Pointers of the differences of two values, as in docs/events.md.
func places(at string, a, b any) []string {
	var all []string
	switch {
	case at == "/metadata/resourceVersion" || reflect.DeepEqual(a, b):
		return nil
	case reflect.TypeOf(a) == reflect.TypeOf(b) && reflect.TypeOf(a).Kind() == reflect.Map:
		of, with := a.(map[string]any), b.(map[string]any)
		names := maps.Clone(of)
		maps.Copy(names, with)
		for name := range names {
			x, inA := of[name]
			y, inB := with[name]
			escaped := strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
			next := at + "/" + strings.ReplaceAll(url.PathEscape(escaped), ",", "%2C")
			if inA && inB {
				all = append(all, places(next, x, y)...)
			} else {
				all = append(all, next)
			}
		}
	case reflect.TypeOf(a) == reflect.TypeOf(b) && reflect.TypeOf(a).Kind() == reflect.Slice:
		of, with := a.([]any), b.([]any)
		for n := range max(len(of), len(with)) {
			next := at + "/" + strconv.Itoa(n)
			if n < len(of) && n < len(with) {
				all = append(all, places(next, of[n], with[n])...)
			} else {
				all = append(all, next)
			}
		}
	default:
		all = []string{at}
	}
	slices.Sort(all)
	return all
}
