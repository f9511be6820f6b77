package topics

import (
	"cmp"
	"regexp"
	"strings"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/record"
)

// Placeholders in a topic template for the group and resource of an object. The core group
// is written as core.
const (
	groupPlace    = "{group}"
	resourcePlace = "{resource}"
)

// Template is the topic of the events. If it has a placeholder, each resource has its own topic.
type Template string

// isPerResource reports whether each resource has its own topic.
func (t Template) isPerResource() bool {
	return strings.Contains(string(t), groupPlace) || strings.Contains(string(t), resourcePlace)
}

// Of returns the topic of a key's events.
func (t Template) Of(k event.Key) string {
	if !t.isPerResource() {
		return string(t)
	}
	if k == (event.Key{}) { // the claim of a cluster name
		k = event.Key{Group: "kuberelay.io", Resource: "clusters"}
	}
	return t.with(cmp.Or(k.Group, "core"), k.Resource)
}

func (t Template) with(group, resource string) string {
	return strings.NewReplacer(groupPlace, group, resourcePlace, resource).Replace(string(t))
}

// DefaultCheckpoint returns <topic>.checkpoint, without the placeholders of a template.
func (t Template) DefaultCheckpoint() string {
	topic := strings.Trim(regexp.MustCompile(`[._-]{2,}`).ReplaceAllString(t.with("", ""), "."), "._-")
	return strings.TrimPrefix(topic+".checkpoint", ".")
}

// pattern returns an expression that matches the topics of the template.
func (t Template) pattern() *regexp.Regexp {
	p := regexp.QuoteMeta(string(t))
	for _, place := range []string{groupPlace, resourcePlace} {
		p = strings.ReplaceAll(p, regexp.QuoteMeta(place), `[a-z0-9.-]+`)
	}
	return regexp.MustCompile("^" + p + "$")
}

// Validate checks the template and the name of the checkpoint topic.
func (t Template) Validate(checkpoint string) error {
	perResource := t.isPerResource()
	switch {
	case !record.IsTopic(t.with("g", "r")):
		return failure.Misconfigured("KUBERELAY_KAFKA_TOPIC is %q: use letters, digits, dots, underscores, and hyphens, and the placeholders %s and %s", string(t), groupPlace, resourcePlace)
	case !perResource && strings.ContainsAny(string(t), "{}"), perResource && !strings.Contains(string(t), resourcePlace):
		return failure.Misconfigured("KUBERELAY_KAFKA_TOPIC is %q: a topic per resource needs the placeholder %s, and may use %s", string(t), resourcePlace, groupPlace)
	case !record.IsTopic(checkpoint):
		return failure.Misconfigured("KUBERELAY_KAFKA_CHECKPOINT_TOPIC is %q: use letters, digits, dots, underscores, and hyphens", checkpoint)
	case checkpoint == string(t):
		return failure.Misconfigured("KUBERELAY_KAFKA_CHECKPOINT_TOPIC is %q, the same as KUBERELAY_KAFKA_TOPIC: use another name, or unset it to use %q", checkpoint, t.DefaultCheckpoint())
	}
	return nil
}
