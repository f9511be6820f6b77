package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/kuberelay/kuberelay/internal/config"
)

// configuration returns the section config, which has a value for every variable.
func configuration(fields []config.Field) value {
	all := section("config", "The configuration of the forwarder: one value for each of its environment variables. For an empty value, or a value that equals the default, the chart sets no variable.")
	for _, f := range fields {
		all.values = append(all.values, variable(f))
	}
	return all
}

// valueName returns the name of a variable's value, such as natsTlsCaFile for KUBERELAY_NATS_TLS_CA_FILE.
func valueName(f config.Field) string {
	words := strings.Split(strings.ToLower(strings.TrimPrefix(f.Name, config.Prefix)), "_")
	for i, w := range words[1:] {
		words[i+1] = strings.ToUpper(w[:1]) + w[1:]
	}
	return strings.Join(words, "")
}

// remarks are additions to the descriptions that apply only to the chart.
var remarks = map[string]string{
	"KUBERELAY_LEADER_ELECTION": " Not set: true with an external bus, so that two replicas run, and an upgrade starts a new replica before it ends an old one.",
	"KUBERELAY_LEASE_NAME":      " Not set: the name that the chart's other objects have.",
	"KUBERELAY_METRICS_AUTH":    " The chart grants the permissions that this requires, and makes the probes and the ServiceMonitor use TLS.",
	"KUBERELAY_NATS_MAX_BYTES":  " In the chart, 0 means three quarters of `persistence.size`, unless `persistence.existingClaim` is set.",
	"KUBERELAY_RESOURCES":       " In the chart, write plurals with their group, because the chart generates RBAC rules from them.",
}

// presets are the chart's defaults for variables whose own default doesn't suit a pod.
var presets = map[string]string{"KUBERELAY_DATA_DIR": "/var/lib/kuberelay", "KUBERELAY_LEASE_NAME": ""}

// decided has the variables whose default the templates choose.
var decided = map[string]bool{"KUBERELAY_LEADER_ELECTION": true}

func variable(f config.Field) value {
	v := value{name: valueName(f), description: describe(f), brief: brief(f), kind: f.Type}
	if f.File {
		return file(v, f)
	}
	preset := f.Default
	if p, ok := presets[f.Name]; ok {
		preset = p
	}
	switch kindOf(f) {
	case "list":
		v.form = listForm(object{"type": "string", "pattern": itemPattern(f)})
		v.preset = []any{}
	case "number":
		v.form = object{"type": "integer"}
		v.preset = integer(preset)
		if f.Minimum != "" {
			v.form["minimum"] = integer(f.Minimum)
		}
		if f.Maximum != "" {
			v.form["maximum"] = integer(f.Maximum)
		}
	case "switch":
		v.form = object{"type": "boolean"}
		v.preset = preset == "true"
	default:
		v.form = object{"type": "string"}
		v.preset = preset
		switch {
		case presets[f.Name] != "": // a directory, at which a volume is mounted
			v.form["pattern"] = "^/."
		case f.Values != nil && f.Default == "":
			v.form["enum"] = append([]string{""}, f.Values...)
		case f.Values != nil:
			v.form["enum"] = f.Values
		case f.Type == "address":
			v.form["pattern"] = `^[^ ]*:[0-9]{1,5}$`
		}
	}
	if decided[f.Name] {
		v.form["type"], v.preset = []any{v.form["type"], "null"}, nil
	}
	return v
}

// kindOf returns the kind of a variable's value. The kind determines how the templates convert the value
// to text.
func kindOf(f config.Field) string {
	switch {
	case f.File:
		return "file"
	case f.Type == "number":
		return "number"
	case f.Type == "true or false":
		return "switch"
	case f.Values == nil && strings.HasPrefix(f.Type, "list"):
		return "list"
	case f.Type == "duration": // the templates check durations: unlike the schema, they can show an example in the error
		return "duration"
	default:
		return "text"
	}
}

func itemPattern(f config.Field) string {
	switch f.Type {
	case "list of URLs":
		return `^(nats|tls|ws|wss)://[^@,\s]+$`
	case "list of addresses":
		return `^[^@,/\s]+$`
	case "list of paths":
		return `^[^:,\s]+:[.\[][^\n]*$`
	default:
		return `^[^,\s]+$`
	}
}

func describe(f config.Field) string {
	d := f.Description + remarks[f.Name]
	if f.Example != "" {
		d += " Example: `" + f.Example + "`."
	}
	d += unset(f)
	if f.Bounds != "" {
		d += fmt.Sprintf(" Allowed: %s.", f.Bounds)
	}
	return d + " (`" + f.Name + "`)"
}

// brief returns the first sentence of the description, and what differs in the chart. The README links
// to docs/configuration.md for the rest.
func brief(f config.Field) string {
	first, _, _ := strings.Cut(f.Description, ". ")
	return strings.TrimSuffix(first, ".") + "." + remarks[f.Name] + strings.Replace(unset(f), " Not set: none.", "", 1) + " (`" + f.Name + "`)"
}

func unset(f config.Field) string {
	if f.Default != "" || f.Unset == "" || presets[f.Name] != "" {
		return ""
	}
	return fmt.Sprintf(" Not set: %s.", f.Unset)
}

// file completes the value of a variable that names a file. The file is a key of an existing Secret or
// ConfigMap, or a path.
func file(v value, f config.Field) value {
	v.values = []value{text("secret", "", "Name of an existing Secret that contains the file.")}
	if !f.Secret {
		v.values = append(v.values, text("configMap", "", "Name of an existing ConfigMap that contains the file."))
	}
	v.values = append(v.values,
		text("key", fileKey(f.Name), "Key of the file in the Secret or ConfigMap."),
		text("path", "", "Path of a file that the container already has, for example from `extraVolumes`, instead of a Secret or ConfigMap."))
	return v
}

// fileKey returns the conventional key for a file in a Secret or ConfigMap. For TLS files, it is the key
// that cert-manager and kubectl create secret tls use.
func fileKey(name string) string {
	for suffix, key := range map[string]string{
		"_TLS_CA_FILE": "ca.crt", "_TLS_CERT_FILE": "tls.crt", "_TLS_KEY_FILE": "tls.key",
		"_PASSWORD_FILE": "password", "_TOKEN_FILE": "token", "_CREDS_FILE": "nats.creds", "_NKEY_FILE": "nkey",
	} {
		if strings.HasSuffix(name, suffix) {
			return key
		}
	}
	return "key"
}

func integer(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic("not a number in package config: " + s) // the tests of package config prevent this
	}
	return n
}

// writeVariables writes the table that maps values to variables, for the templates.
func writeVariables(w io.Writer, fields []config.Field) error {
	var b strings.Builder
	b.WriteString("{{/* Made by \"make generate\" from internal/config. Do not edit. */}}\n{{- define \"kuberelay.variables\" -}}\n")
	for _, f := range fields {
		fmt.Fprintf(&b, "- {value: %s, name: %s, kind: %s, preset: %q", valueName(f), f.Name, kindOf(f), f.Default)
		if kindOf(f) == "duration" {
			fmt.Fprintf(&b, ", min: %q, max: %q, bounds: %q", f.Minimum, f.Maximum, f.Bounds)
		}
		b.WriteString("}\n")
	}
	b.WriteString("{{- end }}\n")
	_, err := io.WriteString(w, b.String())
	return err
}
