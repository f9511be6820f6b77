package normal

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event/decode"
	"github.com/kuberelay/kuberelay/internal/verify/wire"
)

// TestAsSelected verifies that a filter sees a Secret in the same form as in the forwarder, and
// that the Secret stays unchanged.
func TestAsSelected(t *testing.T) {
	for _, text := range []string{
		`{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"a","name":"s"}}`,
		`{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"a","name":"s","labels":{"team":"x"},"annotations":{"copy":"is hunter2"}},"data":{"password":"aHVudGVyMg==","empty":""},"stringData":{"plain":"p<&>"}}`,
	} {
		got, err := wire.ParseTree([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		sees := Form{Key: redactionKey, Cluster: "prod"}.AsSelected("secrets", got)
		if before, _ := wire.ParseTree([]byte(text)); !reflect.DeepEqual(before, got) {
			t.Errorf("the Secret was changed: %v", got)
		}
		var want string
		shape := decode.Shape{Select: func(object map[string]any) (bool, error) {
			b, err := json.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			want = string(b)
			return true, nil
		}}
		if _, err := decode.NewConverter(redactionKey, "prod").Decoder(secrets, nil, nil, shape).Decode([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if is, _ := json.Marshal(sees); string(is) != want {
			t.Errorf("got\n%s\nthe forwarder's filter sees\n%s", is, want)
		}
	}
}

// TestReadable verifies that this package, docs/events.md and the forwarder agree about the labels
// and annotations that stay readable.
func TestReadable(t *testing.T) {
	page, err := os.ReadFile("../../../docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| label or annotation |")
	table, _, _ = strings.Cut(table, "\n## ")
	if rows := strings.Count(table, "`") / 2; rows != len(readable) {
		t.Errorf("the page lists %d names, and this package has %d", rows, len(readable))
	}
	fields := tree{"example.com/any": "x", "app": "x"}
	for _, name := range readable {
		fields[name] = "x"
		if !strings.Contains(table, "`"+name+"`") {
			t.Errorf("the page does not list %s", name)
		}
	}
	b, _ := json.Marshal(tree{"metadata": tree{"name": "s", "labels": fields}})
	o, err := decode.NewConverter(redactionKey, "prod").Decoder(secrets, nil, nil, decode.Shape{}).Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	labels := mustDecode(t, textOf(t, o))["metadata"].(tree)["labels"].(tree)
	for _, name := range readable {
		if labels[name] != "x" {
			t.Errorf("the forwarder hashes %s", name)
		}
	}
	if len(labels) != len(readable)+2 {
		t.Errorf("%d labels: %v", len(labels), labels)
	}
}

// TestForgetKeepsWhatIsNotAHash verifies that forget gives the same result each time, although all names
// become equal.
func TestForgetKeepsWhatIsNotAHash(t *testing.T) {
	for n := range 50 {
		labels := tree{}
		for i := range 20 {
			labels[fmt.Sprintf("%s%064x", hashPrefix, i)] = hashPrefix + strings.Repeat("0", 64)
		}
		labels[fmt.Sprintf("%s%064x", hashPrefix, n%20)] = notRedacted
		if got := forget(labels).(tree); len(got) != 1 || got[withoutKey] != notRedacted {
			t.Fatalf("got %v, want the value that is not a hash", got)
		}
	}
}
