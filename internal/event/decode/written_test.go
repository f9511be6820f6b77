package decode

import (
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
)

func TestNewestTime(t *testing.T) {
	entry := func(at string) string {
		return `{"manager":"kubectl","operation":"Update","apiVersion":"v1","time":` + at + `,"fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:time":{},"k:{\"time\":\"2030-01-01T00:00:00Z\"}":{}}}}`
	}
	for name, of := range map[string]struct {
		managed string
		want    uint32
	}{
		"none":              {"", 0},
		"empty":             {"[]", 0},
		"one":               {"[" + entry(`"2020-01-02T03:04:05Z"`) + "]", 1577934245},
		"the newest":        {"[" + entry(`"2020-01-02T03:04:05Z"`) + "," + entry(`"2020-01-02T03:04:06Z"`) + "," + entry(`"2019-12-31T23:59:59Z"`) + "]", 1577934246},
		"without a time":    {"[" + entry("null") + "]", 0},
		"not a time":        {"[" + entry(`"now"`) + "]", 0},
		"cut off":           {`[{"time":"2020`, 0},
		"at the beginning":  {`Z"`, 0},
		"of another member": {`[{"when":"2020-01-02T03:04:05Z","time":"2020-01-02T03:04:04Z"}]`, 1577934244},
		"the last member":   {`[{"manager":"Z","fieldsV1":{"f:Z":{}},"time":"2020-01-02T03:04:05Z"}]`, 1577934245},
		"before 1970":       {"[" + entry(`"1960-01-01T00:00:00Z"`) + "]", 0},
		"after the century": {"[" + entry(`"2200-01-01T00:00:00Z"`) + "]", 0},
	} {
		if got := newestTime([]byte(of.managed)); got != of.want {
			t.Errorf("%s: %d, want %d", name, got, of.want)
		}
	}
}

// TestWritten verifies that Written comes from the object's own metadata, and not from a time in
// its data.
func TestWritten(t *testing.T) {
	const text = `{"kind":"ConfigMap","metadata":{"name":"a","namespace":"b","managedFields":[{"manager":"m","time":"2020-01-02T03:04:05Z"}]},` +
		`"data":{"time":"2030-01-01T00:00:00Z"}}`
	d := NewConverter(nil, "").Decoder(event.Resource{Version: "v1", Resource: "configmaps", Kind: "ConfigMap"}, event.NewPacker(), nil, Shape{})
	o, err := d.Decode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if o.Written != 1577934245 {
		t.Errorf("written at %d", o.Written)
	}
}
