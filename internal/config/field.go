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
	Group       string   // the topic, a heading
	Note        string   // what holds for the whole topic, "" for nothing
	Type        string   // for people: "duration", "list", "binary or structured"
	Default     string   // as one would write it; "" if there is none
	Unset       string   // what happens without a value, where Default is ""
	Example     string   // "" where Default serves as one
	Description string   // sentences
	Bounds      string   // "1 to 5", "at least 1s"; "" for none
	Minimum     string   // of a number or a duration, as one would write it; "" for none
	Maximum     string   // likewise
	Values      []string // all that it may be; nil if that is not a choice of a few
	Required    bool     // by the command that forwards
	File        bool     // the value is the path of a file
	Secret      bool     // ... and the file holds a secret
}

// Fields gives the variables in the order in which to show them, those of a group
// next to each other.
func Fields() []Field {
	var fields []Field
	for _, v := range variables(&Config{}) {
		fields = append(fields, v.Field)
	}
	return fields
}

// The forms that a value can be asked to have by the tag kind.
const (
	kindAddress = "address" // host:port to listen on
	kindFile    = "file"    // path of a file that can be read
	kindSecret  = "secret"  // the same, and the file is not to be shown
	kindURL     = "url"     // list of URLs, in which a user might have put a password
	kindBrokers = "brokers" // list of host:port, likewise
)

// variable is a field of a Config and what its tags say.
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
		return alternatives(values)
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

// text is the value as one would write it.
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

// formatDuration writes 10m where the standard library writes 10m0s.
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

// alternatives is "a, b or c".
func alternatives(values []string) string {
	if len(values) == 1 {
		return values[0]
	}
	last := len(values) - 1
	return strings.Join(values[:last], ", ") + " or " + values[last]
}

// Value is a variable and what is in effect of it.
type Value struct {
	Field
	Value string // as one would write it; of a file the path
	Set   bool   // by the environment, else it is the default
}

// Effective gives what is in effect, in the order of [Fields]. Nothing in it is
// secret.
func (c Config) Effective() []Value {
	var values []Value
	for _, v := range variables(&c) {
		values = append(values, Value{Field: v.Field, Value: v.text(), Set: lookup(v.Name) != ""})
	}
	return values
}
