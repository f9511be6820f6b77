package jsoncompare

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// checkReference compares Each with an implementation on maps, and returns the number of
// places.
func checkReference(t *testing.T, before, after []byte) int {
	t.Helper()
	got, err := changed(before, after)
	b, a := tree(before), tree(after)
	if valid := b != nil && a != nil; valid != (err == nil) {
		t.Fatalf("from %q to %q: %v, for encoding/json they are objects: %t", before, after, err, valid)
	}
	if err != nil {
		return 0
	}
	var want []string
	compare(b, a, "", &want)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("from %s to %s:\n got %q\nwant %q", before, after, got, want)
	}
	return len(want)
}

// tree decodes a JSON object. It returns nil if the text is not an object.
func tree(text []byte) map[string]any {
	var m map[string]any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if !json.Valid(text) || d.Decode(&m) != nil {
		return nil
	}
	return m
}

type absent struct{}

func compare(before, after any, pointer string, places *[]string) {
	if reflect.DeepEqual(before, after) {
		return
	}
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	switch b := before.(type) {
	case map[string]any:
		a, ok := after.(map[string]any)
		if !ok {
			break
		}
		for name := range b {
			compare(b[name], memberOf(a, name), pointer+"/"+escape.Replace(name), places)
		}
		for name := range a {
			if _, ok := b[name]; !ok {
				compare(absent{}, a[name], pointer+"/"+escape.Replace(name), places)
			}
		}
		return
	case []any:
		a, ok := after.([]any)
		if !ok {
			break
		}
		for n := range max(len(a), len(b)) {
			compare(itemOf(b, n), itemOf(a, n), pointer+"/"+strconv.Itoa(n), places)
		}
		return
	}
	*places = append(*places, pointer)
}

func memberOf(m map[string]any, name string) any {
	if v, ok := m[name]; ok {
		return v
	}
	return absent{}
}

func itemOf(s []any, n int) any {
	if n < len(s) {
		return s[n]
	}
	return absent{}
}
