// Package filter selects the objects to publish: those for which the CEL expression
// (https://cel.dev) in KUBERELAY_FILTER is true. The expression has the variables
//
//	object     the object, as in JSON
//	resource   its type, with the fields group, version, resource, kind, and namespaced
//
// and can use the CEL functions of Kubernetes, except the authorizer
// (https://kubernetes.io/docs/reference/using-api/cel/).
//
// If the expression fails for an object, the object is selected and the filter returns an error. An
// evaluation error therefore excludes no object. The evaluation fails if the object lacks
// a field, if a value has another type, or if the evaluation exceeds the cost limit of Kubernetes.
// The error quotes only the expression, never the object.
package filter

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Filter is a compiled expression. Several goroutines can use it.
type Filter struct {
	program cel.Program // nil if everything is selected
	partial cel.Program // the same expression, for evaluation without an object
	parts   map[int64]*Error
	loops   bool // the expression has comprehensions, so a deadline can interrupt it

	timeout time.Duration // of one evaluation, for expressions with loops
}

// timeout limits one evaluation of an expression with comprehensions. An evaluation within the cost
// limit takes far less time, so a CPU limit of the container does not affect the result.
const timeout = time.Second

// Compile compiles a boolean expression. An empty expression selects everything. An error names
// KUBERELAY_FILTER and shows the position.
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
		return nil, fmt.Errorf("%s: the expression has type %s; write an expression that is true or false, %s", variable, t, example)
	}
	labelSharedErrors()
	f := &Filter{parts: parts(ast), loops: loops(ast), timeout: timeout}
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

// For returns a function that reports whether an object of r is selected. It returns nil if all
// objects are selected. The function does not change the object. If it returns an error, which is
// always an [*Error], it also returns true. An object consists of maps, slices, strings,
// [json.Number], bool, and nil.
func (f *Filter) For(r event.Resource) func(object map[string]any) (selected bool, err error) {
	selected, known, err := f.constant(r)
	switch {
	case !known:
		return f.evaluate(describe(r))
	case selected && err == nil:
		return nil
	}
	return func(map[string]any) (bool, error) { return selected, err }
}

// Never reports whether no object of r can be selected.
func (f *Filter) Never(r event.Resource) bool {
	selected, known, _ := f.constant(r)
	return known && !selected
}

// constant evaluates the expression without an object. known is false if the result depends on the
// object.
func (f *Filter) constant(r event.Resource) (selected, known bool, err error) {
	if f.program == nil {
		return true, true, nil
	}
	vars, err := cel.PartialVars(map[string]any{"resource": describe(r)}, cel.AttributePattern("object"))
	if err != nil {
		return false, false, nil //nolint:nilerr // evaluate for each object instead
	}
	value, _, err := f.partial.Eval(vars)
	if err == nil && types.IsUnknown(value) || isPanic(err) {
		return false, false, nil
	}
	selected, err = f.result(value, err)
	return selected, true, err
}

// isPanic reports whether an error of cel-go stands for a panic. For example, cel-go panics when it
// computes the cost of distinct for an unknown list.
func isPanic(err error) bool {
	var failed *types.Err
	var cancelled interpreter.EvalCancelledError
	return err != nil && !errors.As(err, &failed) && !errors.As(err, &cancelled)
}

func (f *Filter) evaluate(resource map[string]any) func(object map[string]any) (bool, error) {
	return func(object map[string]any) (bool, error) {
		vars := &variables{object, resource}
		if !f.loops {
			value, _, err := f.program.Eval(vars)
			return f.result(value, err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), f.timeout)
		defer cancel()
		value, _, err := f.program.ContextEval(ctx, vars)
		return f.result(value, err)
	}
}

func (f *Filter) result(value ref.Val, err error) (bool, error) {
	if err != nil {
		return true, f.reduce(err)
	}
	if selected, ok := value.(types.Bool); ok {
		return bool(selected), nil
	}
	return true, &Error{Reason: NotBool}
}

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
