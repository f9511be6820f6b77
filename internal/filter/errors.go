package filter

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/interpreter"
)

// Reason is why an expression has no value for an object.
type Reason string

// The reasons. NoSuchField is also that of an element that a list does not have, and
// NotApplicable of a function or operator that does not take values like these.
const (
	NoSuchField   Reason = "there is no such field"
	NotApplicable Reason = "it does not take such a value"
	TooCostly     Reason = "it exceeds the cost that Kubernetes allows an expression"
	NotBool       Reason = "its value is neither true nor false"
)

// Error says where an expression failed. It holds nothing of the object.
type Error struct {
	Reason Reason

	// Part is what failed of the expression, "" if it is not known. Line and Column,
	// from 1, are where it is.
	Part         string
	Line, Column int
}

func (e *Error) Error() string {
	if e.Part == "" {
		return variable + ": " + string(e.Reason)
	}
	return fmt.Sprintf("%s:%d:%d: %s: %s", variable, e.Line, e.Column, e.Reason, e.Part)
}

// reduce leaves of an error of cel-go, which may quote values, what it is about.
func (f *Filter) reduce(err error) *Error {
	var cancelled interpreter.EvalCancelledError
	if errors.As(err, &cancelled) || errors.Is(err, interpreter.InterruptError{}) {
		return &Error{Reason: TooCostly}
	}
	var at *types.Err
	if errors.As(err, &at) {
		if e, ok := f.parts[at.NodeID()]; ok {
			return e
		}
	}
	return &Error{Reason: NotApplicable}
}

// parts are the errors of every part of an expression, by its number.
func parts(a *cel.Ast) map[int64]*Error {
	parts := map[int64]*Error{}
	info := a.NativeRep().SourceInfo()
	ast.PreOrderVisit(a.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		text, err := cel.ExprToString(e, info)
		if err != nil {
			return // made by a macro, and nothing that was written
		}
		at := info.GetStartLocation(e.ID())
		parts[e.ID()] = &Error{Reason: reason(e), Part: strings.Join(strings.Fields(text), " "), Line: at.Line(), Column: at.Column() + 1}
	}))
	return parts
}

// loops tells whether an expression has any.
func loops(a *cel.Ast) bool {
	found := false
	ast.PreOrderVisit(a.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) { found = found || e.Kind() == ast.ComprehensionKind }))
	return found
}

// reason is why a part of an expression can fail by itself.
func reason(e ast.Expr) Reason {
	switch e.Kind() {
	case ast.SelectKind:
		return NoSuchField
	case ast.CallKind:
		if e.AsCall().FunctionName() == operators.Index {
			return NoSuchField
		}
	}
	return NotApplicable
}

// explain shows the first mistake of an expression that does not compile; the others
// often follow from it.
func explain(issues *cel.Issues, source common.Source) error {
	text := strings.TrimPrefix(issues.Errors()[0].ToDisplayString(source), "ERROR: ")
	what, place, _ := strings.Cut(text, "\n")
	fix := "write an expression " + example
	switch {
	case strings.Contains(what, "token recognition error at: '="):
		fix = "write == to compare"
	case strings.Contains(what, "undeclared reference"), strings.Contains(what, "undefined field"):
		fix = "there are object, and resource with group, version, resource, kind and namespaced: " + fix
	case strings.Contains(what, "invalid matches argument"):
		fix = "it is no regular expression of RE2 (https://github.com/google/re2/wiki/Syntax)"
	}
	return fmt.Errorf("%s; %s\n%s", what, fix, place)
}

// claimErrors gives a number to two errors of cel-go that all evaluations share. Else the
// first that each occurs in would, while others read it (types.LabelErrNode).
var claimErrors = sync.OnceFunc(func() {
	const nowhere = -1
	types.LabelErrNode(nowhere, types.NoSuchOverloadErr())
	types.LabelErrNode(nowhere, types.Int(math.MaxInt64).ConvertToType(types.TimestampType))
})
