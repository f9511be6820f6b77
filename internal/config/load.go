package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kelseyhightower/envconfig"
)

// Need is what a command needs of the configuration.
type Need int

const (
	// Forwarding needs everything.
	Forwarding Need = iota
	// Subscribing needs no variable that is required for forwarding.
	Subscribing
)

// Check is what another package has to say about a variable that is not wrong by
// itself. The error is shown as it is, so it names the variable.
type Check struct {
	Name string
	Run  func(Config) error
}

// Load reads and checks the environment of this process, with these checks as well.
// The error joins everything that is wrong with it, a line each but for expressions of
// which the place is shown; waiting does not cure it. A variable that is set to nothing
// counts as not set.
//
// It reads the files that are named, and changes nothing.
func Load(need Need, checks ...Check) (Config, error) {
	var c Config
	vs := variables(&c)
	p := newProblems(vs)
	for _, v := range vs {
		if lookup(v.Name) == "" && v.Required && need == Forwarding {
			p.add(v.Name, "it is required; write for example %s=%s", v.Name, v.Example)
			continue
		}
		if err := v.load(); err != nil {
			p.add(v.Name, "%w", err)
		}
	}
	c.Server.setDataDir(p)
	c.validate(p)
	for _, check := range checks {
		if p.has(check.Name) {
			continue
		}
		if err := check.Run(c); err != nil {
			p.found = append(p.found, problem{check.Name, err})
		}
	}
	p.addUnknown(os.Environ())
	if err := p.err(); err != nil {
		return Config{}, err
	}
	return c, nil
}

// lookup is the value as it was given, "" if it was not.
func lookup(name string) string { return strings.TrimSpace(os.Getenv(name)) }

// load lets envconfig set the field, by itself because envconfig stops at the
// first error, and checks what the tags ask of it.
func (v variable) load() error {
	name := v.Name
	if lookup(name) == "" {
		// No name in an environment holds an equals sign, so envconfig does not
		// see an empty value and takes the default.
		name += "="
	}
	spec := reflect.New(reflect.StructOf([]reflect.StructField{{
		Name: "Value",
		Type: v.value.Type(),
		Tag:  reflect.StructTag(fmt.Sprintf("envconfig:%q default:%q", name, v.Default)),
	}}))
	if err := envconfig.Process("", spec.Interface()); err != nil {
		return v.explain(err)
	}
	v.value.Set(spec.Elem().Field(0))
	if s, ok := v.value.Interface().(string); ok {
		v.value.SetString(strings.TrimSpace(s))
	}
	if v.value.IsZero() && v.text() == "" {
		return nil
	}
	return v.check()
}

// explain makes of envconfig's error one for the user.
func (v variable) explain(err error) error {
	var parse *envconfig.ParseError
	if !errors.As(err, &parse) {
		return err
	}
	switch v.value.Interface().(type) {
	case time.Duration:
		return fmt.Errorf("not a duration; write it with a unit, such as %s", v.Default)
	case int:
		return fmt.Errorf("not a whole number; write one such as %s", v.Default)
	case bool:
		return errors.New("use true or false")
	default:
		return parse.Err
	}
}

// check is what can be asked of one value by itself.
func (v variable) check() error {
	switch x := v.value.Interface().(type) {
	case int:
		return inBounds(v, x, strconv.Atoi)
	case time.Duration:
		return inBounds(v, x, time.ParseDuration)
	case string:
		if values := v.oneOf(); values != nil {
			return checkOneOf(x, values)
		}
	}
	switch v.kind {
	case kindAddress:
		return checkAddress(v.value.String())
	case kindFile, kindSecret:
		return checkFile(v.value.String())
	case kindURL:
		return checkURLs(v.value.Interface().(List))
	case kindBrokers:
		return checkBrokers(v.value.Interface().(List))
	}
	return nil
}

func inBounds[T int | time.Duration](v variable, x T, parse func(string) (T, error)) error {
	for _, tag := range []string{"min", "max"} {
		text, ok := v.tag.Lookup(tag)
		if !ok {
			continue
		}
		bound, err := parse(text)
		if err != nil {
			return fmt.Errorf("tag %s of %s: %w", tag, v.Name, err)
		}
		if tag == "min" && x < bound || tag == "max" && x > bound {
			return fmt.Errorf("out of range; write %s", v.Bounds)
		}
	}
	return nil
}

func checkOneOf(value string, values []string) error {
	if slices.Contains(values, value) {
		return nil
	}
	return errors.New("use " + alternatives(values))
}

// List is a value of several, written with commas. Spaces around an item are not
// part of it.
type List []string

var _ envconfig.Decoder = (*List)(nil)

// Decode makes [List] a type that envconfig can read.
func (l *List) Decode(value string) error {
	*l = nil
	if strings.TrimSpace(value) == "" {
		return nil
	}
	for item := range strings.SplitSeq(value, ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			return errors.New("there is nothing between two commas, or before the first or after the last; remove the comma")
		}
		*l = append(*l, item)
	}
	return nil
}

// setDataDir fills in the per-user folder of the XDG Base Directory
// Specification, which has relative paths ignored.
func (s *Server) setDataDir(p *problems) {
	const name = "KUBERELAY_DATA_DIR"
	if s.DataDir == "" {
		base := os.Getenv("XDG_DATA_HOME")
		if !filepath.IsAbs(base) {
			home, err := os.UserHomeDir()
			if err != nil {
				return // an error only if the folder is needed, see validate
			}
			base = filepath.Join(home, ".local", "share")
		}
		s.DataDir = filepath.Join(base, "kuberelay")
	}
	if info, err := os.Stat(s.DataDir); err == nil && !info.IsDir() {
		p.add(name, "%q is not a folder; name one, or a path at which one can be made", s.DataDir)
	}
}
