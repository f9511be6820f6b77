package filter_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/internal/filter"
)

func TestErrors(t *testing.T) {
	for _, tc := range []struct{ expression, want string }{
		{`object.status.reason == "x"`, `:1:14: no such field: object.status.reason`},
		{`resource.kind == "Pod" && object.a.b.c`, `:1:37: no such field: object.a.b.c`},
		{`object.status.phase.x == 1`, `:1:20: no such field: object.status.phase.x`},
		{`object.spec.containers[7].name == "x"`, `:1:26: no such field: object.spec.containers[7].name`},
		{`object.metadata.labels[object.metadata.name] == "x"`, `:1:23: no such field: object.metadata.labels[object.metadata.name]`},
		{"true &&\n  object.spec.nothing", `:2:14: no such field: object.spec.nothing`},
		{`object.spec.containers.all(c, c.resources.limits.cpu != "1")`, `:1:49: no such field: c.resources.limits.cpu`},
		{`object.status.phase > 1`, `:1:21: not applicable to this value: object.status.phase > 1`},
		{`object.status.phase + 1 == 2`, `:1:21: not applicable to this value: object.status.phase + 1`},
		{`object.status.phase.all(c, true)`, `: not applicable to this value`},
		{`quantity(object.status.phase).isGreaterThan(quantity("1"))`, `:1:9: not applicable to this value: quantity(object.status.phase)`},
		{`timestamp(object.status.phase) < timestamp("2026-11-23T00:00:00Z")`, `:1:10: not applicable to this value: timestamp(object.status.phase)`},
		{`timestamp(object.status.largest) < timestamp("2026-11-23T00:00:00Z")`, `: not applicable to this value`},
		{`duration(object.status.phase) > duration("1s")`, `:1:9: not applicable to this value: duration(object.status.phase)`},
		{`object.status.phase.matches(object.spec.replicas)`, `:1:28: not applicable to this value: object.status.phase.matches(object.spec.replicas)`},
		{`object.spec.replicas.matches("x")`, `: not applicable to this value`},
		{`"x".matches(object.status.url + "(")`, `:1:12: not applicable to this value: "x".matches(object.status.url + "(")`},
		{`1 / (object.spec.replicas - 3) == 1`, `:1:3: not applicable to this value: 1 / (object.spec.replicas - 3)`},
		{`object.status.largest + 1 > 0`, `:1:23: not applicable to this value: object.status.largest + 1`},
		{`object.?status.?reason.value() == "x"`, `:1:29: not applicable to this value: object.?status.?reason.value()`},
		{`!object.status.phase`, `:1:1: not applicable to this value: !object.status.phase`},
		{`object.status.phase && true`, `:1:21: not applicable to this value: object.status.phase && true`},
		{`object.status.phase ? true : false`, `:1:21: not applicable to this value: object.status.phase ? true : false`},
		{`object.status.phase`, `: the value is neither true nor false`},
		{`object`, `: the value is neither true nor false`},
		{`resource.namespaced ? object.spec : false`, `: the value is neither true nor false`},
		{`dyn("x")`, `: the value is neither true nor false`},
		{`["x"][resource.group.size() + 1] == "x"`, `:1:6: no such field: ["x"][resource.group.size() + 1]`},
		{costly, `: exceeds the cost limit of Kubernetes`},
	} {
		t.Run(tc.expression, func(t *testing.T) {
			selects := compile(t, tc.expression).For(pods)
			if selects == nil {
				t.Fatal("For returned nil, want a function")
			}
			selected, err := selects(decode(t, object))
			if !selected {
				t.Error("the object is not selected")
			}
			var as *filter.Error
			if !errors.As(err, &as) {
				t.Fatalf("got %v", err)
			}
			if got, want := err.Error(), "KUBERELAY_FILTER"+tc.want; got != want {
				t.Errorf("\ngot  %s\nwant %s", got, want)
			}
		})
	}
}

// costly takes a million steps.
const costly = `[0,1,2,3,4,5,6,7,8,9].all(a, [0,1,2,3,4,5,6,7,8,9].all(b, [0,1,2,3,4,5,6,7,8,9].all(c,
	[0,1,2,3,4,5,6,7,8,9].all(d, [0,1,2,3,4,5,6,7,8,9].all(e, a + b + c + d + e + object.spec.replicas >= 0)))))`

// TestErrorsQuoteNothing verifies that an error does not contain the content of an object, not even
// a key that the expression reads from the object. Here the content stands for the value of a
// Secret.
func TestErrorsQuoteNothing(t *testing.T) {
	const secret = "hunter2"
	for _, expression := range []string{
		`object.data[object.password] == ""`,
		`object.data[object.password + "x"] == ""`,
		`int(object.password) > 1`,
		`double(object.password) > 1.0`,
		`timestamp(object.password) > timestamp("2026-11-23T00:00:00Z")`,
		`duration(object.password) > duration("1s")`,
		`quantity(object.password).isLessThan(quantity("1"))`,
		`url(object.password).getHost() == ""`,
		`ip(object.password).family() == 4`,
		`cidr(object.password).prefixLength() == 4`,
		`semver(object.password).major() == 4`,
		`"x".matches(object.password + "(")`,
		`"x".find(object.password + "(") == ""`,
		`bool(object.password)`,
		`object.password`,
		`object.list[object.password] == ""`,
		`object.list.exists(x, object.data[x] == "")`,
		`object.password.format([1]) == "" || object.password > 1`,
		`{object.password: 1}["x"] == 1`,
		`dyn([object.password])`,
	} {
		t.Run(expression, func(t *testing.T) {
			_, err := compile(t, expression).For(pods)(decode(t, `{"password":"`+secret+`","data":{"a":"b"},"list":["`+secret+`"]}`))
			if err == nil {
				t.Fatal("no error")
			}
			if text := fmt.Sprintf("%v %+v %#v", err, err, err); strings.Contains(text, secret) {
				t.Errorf("the error is %s", text)
			}
			if inner := errors.Unwrap(err); inner != nil {
				t.Errorf("it wraps %v", inner)
			}
		})
	}
}

func TestCompileErrors(t *testing.T) {
	const (
		such = `write an expression such as resource.resource != "pods" || object.status.phase == "Failed"` + "\n"
		help = `; the variables are object, and resource with group, version, resource, kind, and namespaced: ` + such
	)
	for _, tc := range []struct{ expression, want string }{
		{`objct.spec`, "KUBERELAY_FILTER:1:1: undeclared reference to 'objct' (in container '')" + help + " | objct.spec\n | ^"},
		{`resource.resourse == "pods"`, "KUBERELAY_FILTER:1:9: undefined field 'resourse'" + help + ` | resource.resourse == "pods"` + "\n | ........^"},
		{"true &&\n  resource.kind == 1", "KUBERELAY_FILTER:2:17: found no matching overload for '_==_' applied to '(string, int)'; " + such + "   resource.kind == 1"},
		{`object.status.phase = "Failed"`, "KUBERELAY_FILTER:1:21: Syntax error: token recognition error at: '= '; write == to compare\n"},
		{`object.spec ==`, "KUBERELAY_FILTER:1:15: Syntax error: "},
		{`object.x.matches("(")`, "KUBERELAY_FILTER:1:18: invalid matches argument; write a valid RE2 regular expression (https://github.com/google/re2/wiki/Syntax)\n"},
		{`resource.kind`, `KUBERELAY_FILTER: the expression has type string; write an expression that is true or false, such as resource.resource != "pods" || object.status.phase == "Failed"`},
		{`authorizer.group("").resource("pods").check("get").allowed()`, "KUBERELAY_FILTER:1:1: undeclared reference to 'authorizer' (in container '')" + help},
	} {
		t.Run(tc.expression, func(t *testing.T) {
			_, err := filter.Compile(tc.expression)
			if err == nil {
				t.Fatal("no error")
			}
			if got := err.Error(); !strings.HasPrefix(got, tc.want[:strings.Index(tc.want+"\n", "\n")]) || !strings.Contains(got, tc.want[strings.LastIndex(tc.want, "\n")+1:]) {
				t.Errorf("\ngot  %s\nwant %s", got, tc.want)
			}
		})
	}
}
