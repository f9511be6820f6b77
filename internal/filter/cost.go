package filter

import (
	"fmt"
	"math"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/library"
)

// Kubernetes' cost is one of steps: it knows the sizes of what a schema describes. Object is
// of no type that is known beforehand, and then cel-go takes an operator such as + for one
// step, whatever its operands are. Here what is made costs by its size, as it does where the
// types are known, and what would alone exceed the limit is not begun.

// costs is what calls have cost. It is never less than what Kubernetes says.
type costs struct{ library.CostEstimator }

var _ interpreter.ActualCostEstimator = (*costs)(nil)

// CallCost is as in the interface: nil for what cel-go says.
func (c *costs) CallCost(function, overload string, args []ref.Val, result ref.Val) *uint64 {
	cost := c.CostEstimator.CallCost(function, overload, args, result)
	least := leastCost(function, args, result)
	if least == 0 || cost != nil && *cost >= least {
		return cost
	}
	higher := least // least itself is to stay on the stack
	return &higher
}

// leastCost is 0 for calls whose cost does not depend on sizes, or is known without this.
func leastCost(function string, args []ref.Val, result ref.Val) uint64 {
	switch function {
	case operators.Add:
		if _, ok := result.(traits.Lister); ok {
			return traversal(bytesOf(args[1])) // lists are joined without copying the first
		}
		return traversal(bytesOf(result))
	case "join", "replace", "format", "split", "string", "bytes", "strings.quote", "flatten", "findAll":
		return traversal(bytesOf(result))
	case "lowerAscii", "upperAscii":
		return traversal(4 * bytesOf(result)) // by way of an array of characters
	case "size":
		if _, ok := args[0].(types.String); ok {
			return traversal(bytesOf(args[0])) // it counts characters
		}
	case "sort", "@sortByAssociatedKeys":
		return uint64(size(args[0]))
	case operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		return traversal(min(bytesOf(args[0]), bytesOf(args[1])))
	case operators.In:
		if l, ok := args[1].(traits.Lister); ok {
			return uint64(size(l))
		}
	}
	return 0
}

func traversal(bytes int) uint64 {
	return max(1, uint64(math.Ceil(float64(bytes)*common.StringTraversalCostFactor)))
}

// maxBytes is how much can be made at the cost that is allowed.
const maxBytes = celconfig.PerCallLimit / common.StringTraversalCostFactor

// elementBytes is the memory of an element of a list.
const elementBytes = 16

// bytesOf is the memory of a string, or of a list but for what its elements are.
func bytesOf(v ref.Val) int {
	switch v := v.(type) {
	case types.String:
		return len(v)
	case types.Bytes:
		return len(v)
	case traits.Lister:
		return elementBytes * size(v)
	}
	return 0
}

func size(v ref.Val) int {
	if s, ok := v.(traits.Sizer); ok {
		if n, ok := s.Size().(types.Int); ok {
			return int(n)
		}
	}
	return 0
}

// guards tell beforehand how many bytes a call may make, for those functions whose result
// may be many times as large as what they are given.
var guards = map[string]func(args []ref.Val) int{
	"join":    joined,
	"replace": replaced,
	"split":   func(args []ref.Val) int { return elementBytes * count(args) },
	"format":  func(args []ref.Val) int { return bytesOf(args[0]) + written(args[1], maxBytes) },
	"flatten": func(args []ref.Val) int { return elementBytes * leaves(args[0], depth(args), maxBytes/elementBytes) },
}

func joined(args []ref.Val) int {
	l, ok := args[0].(traits.Lister)
	if !ok {
		return 0
	}
	separator := 0
	if len(args) > 1 {
		separator = bytesOf(args[1])
	}
	n := 0
	for it := l.Iterator(); n <= maxBytes && it.HasNext() == types.True; {
		n += bytesOf(it.Next()) + separator
	}
	return n
}

// count is how often a string has another, and once more.
func count(args []ref.Val) int {
	s, _ := args[0].(types.String)
	part, _ := args[1].(types.String)
	return strings.Count(string(s), string(part)) + 1
}

// replaced is as if all were, and saturates: the product of two strings may be anything.
func replaced(args []ref.Val) int {
	s, n, by := bytesOf(args[0]), count(args), bytesOf(args[2])
	if by > 0 && n > maxBytes/by {
		return math.MaxInt
	}
	return s + n*by
}

// numberBytes are enough for a number, of which format writes at most maxPrecision digits
// after the point.
const (
	maxPrecision = 100
	numberBytes  = 512
)

// written is how long a value is as text, if that is not more than most.
func written(v ref.Val, most int) int {
	n := 0
	switch v := v.(type) {
	case types.String, types.Bytes:
		return 2 * bytesOf(v) // as %X has it
	case traits.Mapper:
		for it := v.Iterator(); n <= most && it.HasNext() == types.True; {
			key := it.Next()
			n += written(key, most-n)
			n += written(v.Get(key), most-n)
		}
	case traits.Lister:
		for it := v.Iterator(); n <= most && it.HasNext() == types.True; {
			n += written(it.Next(), most-n)
		}
	default:
		return numberBytes
	}
	return n + 2
}

func depth(args []ref.Val) int {
	if len(args) > 1 {
		d, _ := args[1].(types.Int)
		return int(d)
	}
	return 1
}

// leaves is how many elements a list has once it is flat, if that is not more than most.
func leaves(v ref.Val, depth, most int) int {
	l, ok := v.(traits.Lister)
	switch {
	case !ok:
		return 1
	case depth < 0:
		return 1
	}
	n := 0
	for it := l.Iterator(); n <= most && it.HasNext() == types.True; {
		n += leaves(it.Next(), depth-1, most-n)
	}
	return n
}

// guarded declares the functions that have a guard anew: cel-go takes the later binding of
// an overload that is otherwise the same.
func guarded(env *cel.Env) ([]cel.EnvOption, error) {
	var options []cel.EnvOption
	for name, guard := range guards {
		f := env.Functions()[name]
		bindings, err := f.Bindings()
		if err != nil {
			return nil, err
		}
		bound := map[string]*functions.Overload{}
		for _, b := range bindings {
			bound[b.Operator] = b
		}
		for _, o := range f.OverloadDecls() {
			b := bound[o.ID()]
			if b == nil {
				return nil, fmt.Errorf("the function %s has no binding of its own for %s", name, o.ID())
			}
			declare := cel.Overload
			if o.IsMemberFunction() {
				declare = cel.MemberOverload
			}
			options = append(options, cel.Function(name, declare(o.ID(), o.ArgTypes(), o.ResultType(), binding(b, len(o.ArgTypes()), guard))))
		}
	}
	return options, nil
}

func binding(b *functions.Overload, arity int, guard func([]ref.Val) int) cel.OverloadOpt {
	check := func(args ...ref.Val) {
		if guard(args) > maxBytes {
			// As cel-go itself does when a cost exceeds the limit; it recovers.
			panic(interpreter.EvalCancelledError{Cause: interpreter.CostLimitExceeded, Message: "the result would exceed the cost limit"})
		}
	}
	switch {
	case arity == 1 && b.Unary != nil:
		return cel.UnaryBinding(func(v ref.Val) ref.Val { check(v); return b.Unary(v) })
	case arity == 2 && b.Binary != nil:
		return cel.BinaryBinding(func(v, w ref.Val) ref.Val { check(v, w); return b.Binary(v, w) })
	}
	return cel.FunctionBinding(func(args ...ref.Val) ref.Val { check(args...); return b.Function(args...) })
}
