package wire

import (
	"cmp"
	"net/url"
	"strings"
)

const hexDigits = "0123456789ABCDEF"

// asToken encodes a token of a subject.
func asToken(s string) string {
	var b strings.Builder
	for i := range len(s) {
		writeEscaped(&b, '=', s[i], !inToken(s[i]))
	}
	return b.String()
}

func writeEscaped(b *strings.Builder, mark, c byte, escape bool) {
	if escape {
		b.WriteByte(mark)
		b.WriteByte(hexDigits[c/16])
		c = hexDigits[c%16]
	}
	b.WriteByte(c)
}

// ClusterFilter returns the filter that matches every subject of a cluster.
func ClusterFilter(prefix, cluster string) string { return prefix + "." + asToken(cluster) + ".>" }

// Subject returns the subject of the events of an object.
func Subject(prefix, cluster string, o Object) string {
	group, namespace := core, noNamespace
	if o.Group != "" {
		var b strings.Builder
		for i := range len(o.Group) {
			switch c := o.Group[i]; {
			case c == '.' && i > 0:
				b.WriteByte('_')
			default:
				writeEscaped(&b, '=', c, !inToken(c) || c == '_' || i == 0 && o.Group == core)
			}
		}
		group = b.String()
	}
	switch o.Namespace {
	case "":
	case noNamespace:
		namespace = "=5F"
	default:
		namespace = asToken(o.Namespace)
	}
	return strings.Join([]string{prefix, asToken(cluster), group, asToken(o.Resource), namespace, asToken(o.Name)}, ".")
}

// KeyPrefix returns the prefix of the record keys of a cluster. No other keys have it.
func KeyPrefix(cluster string) string {
	var b strings.Builder
	must := mustEncode(cluster, true)
	for i := range len(cluster) {
		writeEscaped(&b, '%', cluster[i], must[i])
	}
	return b.String() + "/"
}

// Topic returns the topic of a resource's events. The template may contain {group} and
// {resource}.
func Topic(template string, o Object) string {
	return strings.NewReplacer("{group}", cmp.Or(o.Group, core), "{resource}", o.Resource).Replace(template)
}

// Path returns the API path of an object, or of a collection if o has no name. The version may
// be "".
func Path(o Object, version string) string {
	segments := []string{"", "api"}
	if o.Group != "" {
		segments = []string{"", "apis", o.Group}
	}
	if version != "" {
		segments = append(segments, version)
	}
	if o.Namespace != "" {
		segments = append(segments, "namespaces", o.Namespace)
	}
	segments = append(segments, o.Resource)
	if o.Name != "" {
		segments = append(segments, o.Name)
	}
	for i := range segments {
		segments[i] = url.PathEscape(segments[i])
	}
	return strings.Join(segments, "/")
}
