package config

import (
	"fmt"
	"reflect"
	"strings"
	"time"
)

// Field describes one variable.
type Field struct {
	Name        string   // "KUBERELAY_RESYNC_PERIOD"
	Group       string   // the topic; a heading
	Note        string   // a note on the whole topic; can be ""
	Type        string   // the type in words: "duration", "list", "binary or structured"
	Default     string   // the default as text; "" for none
	Unset       string   // what happens without a value, if Default is ""
	Example     string   // "" if Default serves as the example
	Description string   // sentences
	Bounds      string   // "1 to 5", "at least 1s"; "" for none
	Minimum     string   // the lowest number or shortest duration, as text; "" for none
	Maximum     string   // the highest number or longest duration, as text; "" for none
	Values      []string // the possible values; nil if they are not a fixed list
	Required    bool     // required by the commands that need [Forwarding]
	File        bool     // the value is the path of a file
	Secret      bool     // the file holds a secret
}

// Fields returns the variables in the order of the documentation, by group.
func Fields() []Field {
	var fields []Field
	for _, v := range variables(&Config{}) {
		fields = append(fields, v.Field)
	}
	return fields
}

// The values of the tag "kind". The kind of a variable determines the form of its value.
const (
	kindAddress = "address" // host:port to listen on
	kindFile    = "file"    // path of a readable file
	kindSecret  = "secret"  // path of a readable file that holds a secret
	kindURL     = "url"     // list of URLs; a user might have written a password into one
	kindHTTPS   = "https"   // one URL of an HTTPS server; a user might have written a password into it
	kindBrokers = "brokers" // list of host:port; a user might have written a password into one
)

// variable is a field of a Config and its tags.
type variable struct {
	Field
	kind  string
	tag   reflect.StructTag
	value reflect.Value
}

func variables(c *Config) []variable {
	var vs []variable
	top := reflect.ValueOf(c).Elem()
	for i := range top.NumField() {
		topic, group := top.Type().Field(i), top.Field(i)
		for j := range group.NumField() {
			v := variable{tag: group.Type().Field(j).Tag, value: group.Field(j)}
			v.kind = v.tag.Get("kind")
			v.Field = Field{
				Name:        v.tag.Get("envconfig"),
				Group:       topic.Tag.Get("title"),
				Note:        topic.Tag.Get("note"),
				Default:     v.tag.Get("default"),
				Unset:       v.tag.Get("unset"),
				Example:     v.tag.Get("example"),
				Description: v.tag.Get("desc"),
				Bounds:      bounds(v.tag.Get("min"), v.tag.Get("max")),
				Minimum:     v.tag.Get("min"),
				Maximum:     v.tag.Get("max"),
				Values:      v.oneOf(),
				Required:    v.tag.Get("required") == "true",
				File:        v.kind == kindFile || v.kind == kindSecret,
				Secret:      v.kind == kindSecret,
				Type:        v.typeName(),
			}
			vs = append(vs, v)
		}
	}
	return vs
}

func (v variable) typeName() string {
	if values := v.oneOf(); values != nil {
		return Alternatives(values)
	}
	switch v.kind {
	case kindAddress:
		return "address"
	case kindFile:
		return "file"
	case kindSecret:
		return "file with a secret"
	case kindURL:
		return "list of URLs"
	case kindHTTPS:
		return "URL"
	case kindBrokers:
		return "list of addresses"
	}
	switch v.value.Interface().(type) {
	case List:
		return "list"
	case Paths:
		return "list of paths"
	case int:
		return "number"
	case time.Duration:
		return "duration"
	case bool:
		return "true or false"
	default:
		return "text"
	}
}

func (v variable) oneOf() []string {
	if values, ok := v.tag.Lookup("oneof"); ok {
		return strings.Split(values, ",")
	}
	return nil
}

// text returns the value in the form of the environment.
func (v variable) text() string {
	switch x := v.value.Interface().(type) {
	case List:
		return strings.Join(x, ",")
	case Paths:
		return strings.Join(x, ",")
	case time.Duration:
		return formatDuration(x)
	default:
		return fmt.Sprint(x)
	}
}

// formatDuration writes 10m, which the standard library writes as 10m0s.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func bounds(minimum, maximum string) string {
	switch {
	case minimum != "" && maximum != "":
		return minimum + " to " + maximum
	case minimum != "":
		return "at least " + minimum
	default:
		return ""
	}
}

// Alternatives returns "a, b, or c", or "a or b".
func Alternatives(values []string) string {
	if len(values) == 1 {
		return values[0]
	}
	last := len(values) - 1
	if last == 1 {
		return values[0] + " or " + values[1]
	}
	return strings.Join(values[:last], ", ") + ", or " + values[last]
}

// Value is a variable and its effective value.
type Value struct {
	Field
	Value string // the value as text; for a file, its path
	Set   bool   // set by the environment; otherwise Value is the default
}

// Effective returns the effective values in the order of [Fields]. It contains no secret.
func (c Config) Effective() []Value {
	var values []Value
	for _, v := range variables(&c) {
		text := v.text()
		if address, _, has := strings.Cut(text, "?"); v.kind == kindHTTPS && has {
			text = address + "?***" // a query can have credentials
		}
		values = append(values, Value{Field: v.Field, Value: text, Set: lookup(v.Name) != ""})
	}
	return values
}
