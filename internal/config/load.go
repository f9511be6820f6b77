package config

import (
	"cmp"
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

// Need is the part of the configuration that a command needs.
type Need int

const (
	// Forwarding needs everything.
	Forwarding Need = iota
	// Subscribing does not need the variables that forwarding requires.
	Subscribing
)

// Check is a check of a variable by another package. It runs only if the variable has no other
// problem. Its error is shown unchanged, so it must name the variable.
type Check struct {
	Name string
	Run  func(Config) error
}

// Load reads and checks the environment of this process, and runs the additional checks. The error
// joins all problems, one per line, except that a problem in an expression takes several lines to show
// its position. A retry cannot fix the problems. An empty variable counts as not set.
//
// Load reads the files that the variables name, and changes nothing.
func Load(need Need, checks ...Check) (Config, error) {
	var c Config
	vs := variables(&c)
	p := newProblems(vs)
	for _, v := range vs {
		if lookup(v.Name) == "" && v.Required && need == Forwarding {
			p.add(v.Name, "required; for example, set %s=%s", v.Name, v.Example)
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

// lookup returns the value in the environment, or "".
func lookup(name string) string { return strings.TrimSpace(os.Getenv(name)) }

// load sets one field with envconfig, and checks it against its tags. It handles one field at a
// time because envconfig stops at the first error.
func (v variable) load() error {
	name := v.Name
	if lookup(name) == "" {
		// No environment variable has an equals sign in its name, so envconfig sees no
		// value and uses the default.
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

// explain converts an error of envconfig to an error for the user.
func (v variable) explain(err error) error {
	var parse *envconfig.ParseError
	if !errors.As(err, &parse) {
		return err
	}
	switch v.value.Interface().(type) {
	case time.Duration:
		return fmt.Errorf("not a duration; write it with a unit, such as %s", v.Default)
	case int:
		return fmt.Errorf("not a whole number; write one such as %s", cmp.Or(v.Example, v.Default))
	case bool:
		return errors.New("use true or false")
	default:
		return parse.Err
	}
}

// check checks one value by itself.
func (v variable) check() error {
	switch x := v.value.Interface().(type) {
	case int:
		return inBounds(v, x, strconv.Atoi)
	case time.Duration:
		return inBounds(v, x, time.ParseDuration)
	case string:
		if values := v.oneOf(); values != nil && !slices.Contains(values, x) {
			return errors.New("use " + Alternatives(values))
		}
	}
	switch v.kind {
	case kindAddress:
		return checkAddress(v.value.String())
	case kindFile, kindSecret:
		return checkFile(v.value.String())
	case kindURL:
		return checkURLs(v.value.Interface().(List))
	case kindHTTPS:
		return checkEndpoint(v.text())
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

// List is a comma-separated list. Spaces around an item are ignored.
type List []string

var _ envconfig.Decoder = (*List)(nil)

// Decode implements envconfig.Decoder.
func (l *List) Decode(value string) error {
	*l = nil
	if strings.TrimSpace(value) == "" {
		return nil
	}
	for item := range strings.SplitSeq(value, ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			return errors.New("an item is empty; remove the extra comma")
		}
		*l = append(*l, item)
	}
	return nil
}

// setDataDir sets the default of DataDir, which is the per-user directory of the XDG Base Directory
// Specification, and rejects an existing path that is not a directory. The specification requires that
// relative paths in XDG_DATA_HOME be ignored.
func (s *Server) setDataDir(p *problems) {
	const name = "KUBERELAY_DATA_DIR"
	if s.DataDir == "" {
		base := os.Getenv("XDG_DATA_HOME")
		if !filepath.IsAbs(base) {
			home, err := os.UserHomeDir()
			if err != nil {
				return // validate reports a problem if the directory is needed
			}
			base = filepath.Join(home, ".local", "share")
		}
		s.DataDir = filepath.Join(base, "kuberelay")
	}
	if info, err := os.Stat(s.DataDir); err == nil && !info.IsDir() {
		p.add(name, "%q is not a directory; name a directory, or a path at which one can be created", s.DataDir)
	}
}
