package filter

import (
	"encoding/json"
	"strconv"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
	"github.com/google/cel-go/interpreter"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/kuberelay/kuberelay/internal/event"
)

// newEnvironment returns the CEL environment of Kubernetes (k8s.io/apiserver/pkg/cel/environment)
// with our variables and without the authorizer.
func newEnvironment() (*cel.Env, error) {
	base, err := cel.NewEnv(
		cel.HomogeneousAggregateLiterals(),
		cel.DefaultUTCTimeZone(true),
		cel.CrossTypeNumericComparisons(true),
		cel.OptionalTypes(),
		cel.ASTValidators(
			cel.ValidateDurationLiterals(),
			cel.ValidateTimestampLiterals(),
			cel.ValidateRegexLiterals(),
			cel.ValidateHomogeneousAggregateLiterals(),
		),
		ext.Strings(ext.StringsVersion(2), ext.StringsMaxPrecision(maxPrecision)),
		ext.Sets(),
		ext.TwoVarComprehensions(),
		ext.Lists(ext.ListsVersion(3)),
		library.URLs(),
		library.Regex(),
		library.Quantity(),
		library.IP(),
		library.CIDR(),
		library.Format(),
		library.SemverLib(library.SemverVersion(1)),
		library.Lists(library.ListsVersion(1)),
	)
	if err != nil {
		return nil, err
	}
	resource := resourceType()
	options, err := apiservercel.NewDeclTypeProvider(resource).EnvOptions(base.CELTypeProvider())
	if err != nil {
		return nil, err
	}
	guardedFunctions, err := guarded(base)
	if err != nil {
		return nil, err
	}
	return base.Extend(append(append(options, guardedFunctions...),
		cel.CustomTypeAdapter(adapter{base.CELTypeAdapter()}),
		cel.Variable("object", cel.DynType),
		cel.Variable("resource", resource.CelType()),
	)...)
}

// limits returns the options that apply the limits of Kubernetes to one evaluation. The interrupt
// check also applies the timeout, for operations whose cost cel-go underestimates, such as a
// comparison of lists of long strings.
func limits(how cel.EvalOption) []cel.ProgramOption {
	return []cel.ProgramOption{
		cel.EvalOptions(how, cel.OptTrackCost),
		cel.CostLimit(celconfig.PerCallLimit),
		cel.CostTracking(&costs{}),
		cel.CostTrackerOptions(interpreter.PresenceTestHasCost(false)),
		cel.InterruptCheckFrequency(1),
	}
}

// resourceType declares the fields of the variable resource, so that the compiler rejects a
// misspelled field.
func resourceType() *apiservercel.DeclType {
	fields := map[string]*apiservercel.DeclField{}
	for name, t := range map[string]*apiservercel.DeclType{
		"group": apiservercel.StringType, "version": apiservercel.StringType, "resource": apiservercel.StringType,
		"kind": apiservercel.StringType, "namespaced": apiservercel.BoolType,
	} {
		fields[name] = apiservercel.NewDeclField(name, t, true, nil, nil)
	}
	return apiservercel.NewObjectType("kuberelay.Resource", fields)
}

func describe(r event.Resource) map[string]any {
	return map[string]any{"group": r.Group, "version": r.Version, "resource": r.Resource, "kind": r.Kind, "namespaced": r.Namespaced}
}

// adapter converts JSON numbers: to int if the text is an integer that fits into an int, to uint if
// it fits only into a uint, and to double otherwise.
type adapter struct{ types.Adapter }

func (a adapter) NativeToValue(value any) ref.Val {
	switch v := value.(type) {
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return types.Int(i)
		}
		if u, err := strconv.ParseUint(v.String(), 10, 64); err == nil {
			return types.Uint(u)
		}
		f, _ := v.Float64() // infinite if out of range
		return types.Double(f)
	case map[string]any:
		return types.NewStringInterfaceMap(a, v)
	case []any:
		return types.NewDynamicList(a, v)
	}
	return a.Adapter.NativeToValue(value)
}
