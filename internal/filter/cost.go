package filter

import (
	"errors"
	"fmt"
	"math"
	"strconv"
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

// Kubernetes limits the cost of an expression. The cost is a number of steps, and depends on the
// sizes of values that a schema declares. Here, the type of object is unknown at compile time, so
// cel-go counts an operator such as + as one step, whatever the size of its operands. Therefore
// this package makes the cost of a call depend on the size of its result, as cel-go does for known
// types. It does not execute a call whose result alone would exceed the limit.

// costs estimates the actual cost of calls. The estimate is never lower than that of Kubernetes.
type costs struct{ library.CostEstimator }

var _ interpreter.ActualCostEstimator = (*costs)(nil)

// CallCost returns the cost that Kubernetes counts, or leastCost if that is higher. nil stands for the
// default cost of cel-go.
func (c *costs) CallCost(function, overload string, args []ref.Val, result ref.Val) *uint64 {
	cost := c.CostEstimator.CallCost(function, overload, args, result)
	least := leastCost(function, args, result)
	if least == 0 || cost != nil && *cost >= least {
		return cost
	}
	higher := least // so that least does not escape to the heap
	return &higher
}

// leastCost returns the minimum cost of a call according to the sizes of its values. It returns 0 if
// the cost does not depend on sizes, or if Kubernetes or cel-go already considers them.
func leastCost(function string, args []ref.Val, result ref.Val) uint64 {
	switch function {
	case operators.Add:
		if _, ok := result.(traits.Lister); ok {
			return traversal(bytesOf(args[1])) // concatenation does not copy the first list
		}
		return traversal(bytesOf(result))
	case "replace", "format", "split", "string", "bytes":
		return traversal(bytesOf(result))
	case "lowerAscii", "upperAscii":
		return traversal(4 * bytesOf(result)) // the function converts its argument to an array of characters
	case "size":
		if _, ok := args[0].(types.String); ok {
			return traversal(bytesOf(args[0])) // the function counts characters
		}
	case "sort":
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

// maxBytes is the size in bytes of the largest result within the cost limit.
const maxBytes = celconfig.PerCallLimit / common.StringTraversalCostFactor

// elementBytes is the memory of a list element in bytes.
const elementBytes = 16

// bytesOf returns the size in bytes of a string, or of a list without the content of its elements.
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

// guards estimate the size of a result in bytes before the call, for functions whose result
// can be many times larger than their arguments. For functions that compare each element of a list
// with each of another list, they return the size of a text with the same cost as the comparisons.
var guards = map[string]func(args []ref.Val) int{
	"join":    joinedSize,
	"replace": replacedSize,
	"split":   func(args []ref.Val) int { return elementBytes * countParts(args) },
	"format":  func(args []ref.Val) int { return bytesOf(args[0]) + formattedSize(args[1], maxBytes) },
	"flatten": func(args []ref.Val) int {
		return elementBytes * countLeaves(args[0], depth(args), maxBytes/elementBytes)
	},
	"distinct":        func(args []ref.Val) int { return comparisons(2, args[0], args[0]) },
	"sets.contains":   func(args []ref.Val) int { return comparisons(1, args[0], args[1]) },
	"sets.intersects": func(args []ref.Val) int { return comparisons(1, args[0], args[1]) },
	"sets.equivalent": func(args []ref.Val) int { return comparisons(2, args[0], args[1]) },

	"quantity":   quantitySize,
	"isQuantity": quantitySize,
}

// comparisons converts the cost of comparing two lists, as cel-go counts it after the call, to the
// size in bytes of a text with the same traversal cost.
func comparisons(factor float64, a, b ref.Val) int {
	return int(factor * float64(size(a)) * float64(size(b)) / common.StringTraversalCostFactor)
}

// maxExponent is the largest accepted exponent of a quantity. Operations write out all digits of a
// quantity, so a larger exponent is costly. It is also useless, because the operations cap a
// quantity at about 1e19.
const maxExponent = 1000

// quantitySize returns math.MaxInt for a quantity whose exponent exceeds maxExponent, such as
// 1e999999999, and 0 for any other quantity.
func quantitySize(args []ref.Val) int {
	s, _ := args[0].(types.String)
	exponent := string(s[strings.LastIndexAny(string(s), "eE")+1:])
	n, err := strconv.ParseInt(exponent, 10, 64)
	if len(exponent) < len(s) && (errors.Is(err, strconv.ErrRange) || n > maxExponent || n < -maxExponent) {
		return math.MaxInt
	}
	return 0
}

func joinedSize(args []ref.Val) int {
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

// countParts returns the number of parts after a split of one string by another.
func countParts(args []ref.Val) int {
	s, _ := args[0].(types.String)
	part, _ := args[1].(types.String)
	return strings.Count(string(s), string(part)) + 1
}

// replacedSize assumes that all occurrences are replaced. It returns math.MaxInt for a large
// result, because the product of two sizes can overflow.
func replacedSize(args []ref.Val) int {
	s, n, by := bytesOf(args[0]), countParts(args), bytesOf(args[2])
	if by > 0 && n > maxBytes/by {
		return math.MaxInt
	}
	return s + n*by
}

// numberBytes is the maximum size of a formatted number. format writes at most maxPrecision
// digits after the point.
const (
	maxPrecision = 100
	numberBytes  = 512
)

// formattedSize returns an upper bound for the length of a formatted value. It stops counting above
// limit.
func formattedSize(v ref.Val, limit int) int {
	n := 0
	switch v := v.(type) {
	case types.String, types.Bytes:
		return 2 * bytesOf(v) // as formatted by %X
	case traits.Mapper:
		for it := v.Iterator(); n <= limit && it.HasNext() == types.True; {
			key := it.Next()
			n += formattedSize(key, limit-n)
			n += formattedSize(v.Get(key), limit-n)
		}
	case traits.Lister:
		for it := v.Iterator(); n <= limit && it.HasNext() == types.True; {
			n += formattedSize(it.Next(), limit-n)
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

// countLeaves returns the number of elements of a flattened list. It stops counting above
// limit.
func countLeaves(v ref.Val, depth, limit int) int {
	l, ok := v.(traits.Lister)
	if !ok || depth < 0 {
		return 1
	}
	n := 0
	for it := l.Iterator(); n <= limit && it.HasNext() == types.True; {
		n += countLeaves(it.Next(), depth-1, limit-n)
	}
	return n
}

// guarded redeclares the functions that have a guard. If two overloads are equal, cel-go uses the
// one that is declared later.
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
			// cel-go panics in the same way above the cost limit, and recovers from the panic.
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
