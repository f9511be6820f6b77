// Package filter decides which objects are sent: those for which KUBERELAY_FILTER, an
// expression in CEL (https://cel.dev), is true. It sees
//
//	object     the object, as JSON has it
//	resource   its type, with the fields group, version, resource, kind and namespaced
//
// and has the functions that Kubernetes has for expressions, but for those that ask about
// rights (https://kubernetes.io/docs/reference/using-api/cel/).
//
// An expression that fails for an object, since the object lacks a field, a value has
// another type, or more is to be computed or made than Kubernetes would allow, selects the
// object and says so: nothing is left out by a mistake. What an error says comes from the
// expression alone, never from the object.
package filter

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Filter is a compiled expression. It may be used by several goroutines.
type Filter struct {
	program cel.Program // nil if everything is selected
	partial cel.Program // of the same expression, for an object that is not known yet
	parts   map[int64]*Error
	loops   bool // the expression has one, in which an evaluation can be interrupted

	deadlines deadlines
}

// timeout is of one evaluation, of those that have loops. What costs as much as is allowed
// takes far less: it is long so that no CPU limit that holds us up decides what is selected.
const timeout = time.Second

// Compile makes a Filter of an expression whose value is true or false; the empty one
// selects everything. An error names KUBERELAY_FILTER and shows the place.
func Compile(expression string) (*Filter, error) {
	if strings.TrimSpace(expression) == "" {
		return &Filter{}, nil
	}
	env, err := newEnvironment()
	if err != nil {
		return nil, err
	}
	source := common.NewStringSource(expression, variable)
	ast, issues := env.CompileSource(source)
	if issues.Err() != nil {
		return nil, explain(issues, source)
	}
	if t := ast.OutputType(); !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("%s: its value is of type %s; write an expression that is true or false, %s", variable, t, example)
	}
	claimErrors()
	f := &Filter{parts: parts(ast), loops: loops(ast)}
	if f.program, err = env.Program(ast, limits(cel.OptOptimize)...); err != nil {
		return nil, fmt.Errorf("%s: %w", variable, err)
	}
	if f.partial, err = env.Program(ast, limits(cel.OptPartialEval)...); err != nil {
		return nil, fmt.Errorf("%s: %w", variable, err)
	}
	return f, nil
}

const (
	variable = "KUBERELAY_FILTER"
	example  = `such as resource.resource != "pods" || object.status.phase == "Failed"`
)

// For gives the function that tells whether an object of r is selected, or nil if all of
// them are, whatever they are. It does not change the object, and with an error, which is
// an [*Error], it selects it. The objects are maps, slices, strings, [json.Number], bool
// and nil.
func (f *Filter) For(r event.Resource) func(object map[string]any) (selected bool, err error) {
	selected, known, err := f.whatever(r)
	switch {
	case !known:
		return f.evaluate(describe(r))
	case selected && err == nil:
		return nil
	}
	return func(map[string]any) (bool, error) { return selected, err }
}

// Never tells whether no object of r is selected, whatever it is.
func (f *Filter) Never(r event.Resource) bool {
	selected, known, _ := f.whatever(r)
	return known && !selected
}

// whatever evaluates the expression without an object. It is not known where that matters.
func (f *Filter) whatever(r event.Resource) (selected, known bool, err error) {
	if f.program == nil {
		return true, true, nil
	}
	vars, err := cel.PartialVars(map[string]any{"resource": describe(r)}, cel.AttributePattern("object"))
	if err != nil {
		return false, false, nil //nolint:nilerr // then it is asked with each object
	}
	value, _, err := f.partial.Eval(vars)
	if err == nil && types.IsUnknown(value) {
		return false, false, nil
	}
	selected, err = f.result(value, err)
	return selected, true, err
}

func (f *Filter) evaluate(resource map[string]any) func(object map[string]any) (bool, error) {
	return func(object map[string]any) (bool, error) {
		vars := &variables{object, resource}
		if !f.loops {
			value, _, err := f.program.Eval(vars)
			return f.result(value, err)
		}
		d := f.deadlines.get()
		defer f.deadlines.put(d)
		value, _, err := f.program.ContextEval(d, vars)
		return f.result(value, err)
	}
}

// result is what a value of the expression means.
func (f *Filter) result(value ref.Val, err error) (bool, error) {
	if err != nil {
		return true, f.reduce(err)
	}
	if selected, ok := value.(types.Bool); ok {
		return bool(selected), nil
	}
	return true, &Error{Reason: NotBool}
}

// variables are those of one evaluation.
type variables struct {
	object, resource map[string]any
}

var _ cel.Activation = (*variables)(nil)

func (v *variables) ResolveName(name string) (any, bool) {
	switch name {
	case "object":
		return v.object, true
	case "resource":
		return v.resource, true
	}
	return nil, false
}

func (v *variables) Parent() cel.Activation { return nil }
