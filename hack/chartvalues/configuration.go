package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/kuberelay/kuberelay/internal/config"
)

// configuration gives a value for every variable.
func configuration(fields []config.Field) value {
	all := section("config", "What the forwarder is told: a value for every one of its variables. One that is set to its default, or to nothing, sets no variable.")
	for _, f := range fields {
		all.values = append(all.values, variable(f))
	}
	return all
}

// valueName is natsTlsCaFile for KUBERELAY_NATS_TLS_CA_FILE.
func valueName(f config.Field) string {
	words := strings.Split(strings.ToLower(strings.TrimPrefix(f.Name, config.Prefix)), "_")
	for i, w := range words[1:] {
		words[i+1] = strings.ToUpper(w[:1]) + w[1:]
	}
	return strings.Join(words, "")
}

// remarks are what the chart has to add.
var remarks = map[string]string{
	"KUBERELAY_LEADER_ELECTION": " Not set: on where the bus is outside, so that two replicas run and a new one is ready before an old one ends.",
	"KUBERELAY_LEASE_NAME":      " Not set: the release's and the chart's name, as of everything.",
	"KUBERELAY_RESOURCES":       " Here they are plurals, with the group where there is one, since the chart makes RBAC of them.",
}

// presets are the chart's own defaults, where there is none that would do in a pod.
var presets = map[string]string{"KUBERELAY_DATA_DIR": "/var/lib/kuberelay", "KUBERELAY_LEASE_NAME": ""}

// decided are the switches whose default the templates find out.
var decided = map[string]bool{"KUBERELAY_LEADER_ELECTION": true}

func variable(f config.Field) value {
	v := value{name: valueName(f), description: describe(f), kind: f.Type}
	if f.File {
		return file(v, f)
	}
	preset := f.Default
	if p, ok := presets[f.Name]; ok {
		preset = p
	}
	switch kindOf(f) {
	case "list":
		v.form = object{"type": "array", "items": object{"type": "string", "pattern": itemPattern(f)}}
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
		if decided[f.Name] {
			v.form, v.preset = object{"type": []string{"boolean", "null"}}, nil
		}
	default:
		v.form = object{"type": "string"}
		v.preset = preset
		switch {
		case presets[f.Name] != "": // a folder, where a volume is mounted
			v.form["pattern"] = "^/."
		case f.Values != nil && f.Default == "":
			v.form["enum"] = append([]string{""}, f.Values...)
		case f.Values != nil:
			v.form["enum"] = f.Values
		case f.Type == "duration":
			v.form["pattern"] = `^(0|([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+)$`
		case f.Type == "address":
			v.form["pattern"] = `^[^ ]*:[0-9]{1,5}$`
		}
	}
	return v
}

// kindOf is how a value becomes a variable's text.
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
	if f.Default == "" && f.Unset != "" && presets[f.Name] == "" {
		d += fmt.Sprintf(" Not set: %s.", f.Unset)
	}
	if f.Bounds != "" {
		d += fmt.Sprintf(" Allowed: %s.", f.Bounds)
	}
	return d + " (`" + f.Name + "`)"
}

// file is what a variable is that names a file: a key of something that exists.
func file(v value, f config.Field) value {
	v.values = []value{text("secret", "", "Name of an existing Secret that holds it.")}
	if !f.Secret {
		v.values = append(v.values, text("configMap", "", "Name of an existing ConfigMap that holds it."))
	}
	v.values = append(v.values,
		text("key", fileKey(f.Name), "The key in it."),
		text("path", "", "Instead of these, the path of a file that is there anyway, such as from `extraVolumes`."))
	return v
}

// fileKey is the key that such a Secret has by convention, that of cert-manager and
// of kubectl create secret tls where there is one.
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
		panic("not a number in package config: " + s) // its own tests see to it
	}
	return n
}

// writeVariables writes the templates' table of values and variables.
func writeVariables(w io.Writer, fields []config.Field) error {
	var b strings.Builder
	b.WriteString("{{/* Made by \"make generate\" from internal/config. Do not edit. */}}\n{{- define \"kuberelay.variables\" -}}\n")
	for _, f := range fields {
		fmt.Fprintf(&b, "- {value: %s, name: %s, kind: %s, preset: %q}\n", valueName(f), f.Name, kindOf(f), f.Default)
	}
	b.WriteString("{{- end }}\n")
	_, err := io.WriteString(w, b.String())
	return err
}
