package apistream

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kuberelay/kuberelay/internal/jsonscan"
)

var lists = map[string]struct {
	in   string
	want string // "!" for an error
}{
	"typed":           {`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"c","remainingItemCount":3},"items":[{"a":1},{"b":[2]}]}`, `7 c {"a":1} {"b":[2]}`},
	"unstructured":    {` { "apiVersion" : "v1" , "items" : [ {"a":1} , 12 , "x" ] , "kind":"L","metadata":{"resourceVersion":"7"}} ` + "\n", `7  {"a":1} 12 "x"`},
	"empty":           {`{"metadata":{"resourceVersion":"7"},"items":[]}`, "7 "},
	"null":            {`{"metadata":{"resourceVersion":"7"},"items":null}`, "7 "},
	"without":         {`{"metadata":{"resourceVersion":"7"}}`, "7 "},
	"unknown":         {`{"x":{"items":[1]},"metadata":{"resourceVersion":"7","x":1},"items":[1],"y":-1.5e3}`, "7  1"},
	"large":           {`{"metadata":{"resourceVersion":"7"},"items":[1,"` + strings.Repeat("x", 3*firstSize) + `",2]}`, `7  1 "` + strings.Repeat("x", 3*firstSize) + `" 2`},
	"no metadata":     {`{"items":[]}`, "!"},
	"no version":      {`{"metadata":{},"items":[1]}`, "!"},
	"not a list":      {`[1]`, "!"},
	"nothing":         {``, "!"},
	"cut off":         {`{"metadata":{"resourceVersion":"7"},"items":[1,2]`, "!"},
	"cut off in item": {`{"metadata":{"resourceVersion":"7"},"items":[{"a":1},{"b"`, "!"},
	"cut off before":  {`{"metadata":{"resourceVersion":"7"},"items":[{"a":1},`, "!"},
	"no comma":        {`{"metadata":{"resourceVersion":"7"},"items":[1 2]}`, "!"},
	"a comma more":    {`{"metadata":{"resourceVersion":"7"},"items":[1,]}`, "!"},
	"bad item":        {`{"metadata":{"resourceVersion":"7"},"items":[{"a" 1}]}`, "!"},
	"bad items":       {`{"metadata":{"resourceVersion":"7"},"items":{}}`, "!"},
	"bad null":        {`{"metadata":{"resourceVersion":"7"},"items":nul}`, "!"},
	"bad metadata":    {`{"metadata":{"resourceVersion":7},"items":[]}`, "!"},
	"something after": {`{"metadata":{"resourceVersion":"7"},"items":[]} 1`, "!"},
	"what is refused": {`{"metadata":{"resourceVersion":"7"},"items":["refuse"]}`, "!"},
}

func TestList(t *testing.T) {
	for name, test := range lists {
		for how, through := range map[string]func(io.Reader) io.Reader{
			"": func(r io.Reader) io.Reader { return r }, " by bytes": iotest.OneByteReader, " by halves": iotest.HalfReader, " with its end": iotest.DataErrReader,
		} {
			t.Run(name+how, func(t *testing.T) {
				list, err := readList(through(strings.NewReader(test.in)), takeText)
				if test.want == "!" {
					if err == nil {
						t.Errorf("got %d items, want an error", len(list.Items))
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if got := describeList(list); got != test.want {
					t.Errorf("got %s, want %s", got, test.want)
				}
			})
		}
	}
}

func describeList(l *List) string {
	words := []string{l.ResourceVersion, l.Continue}
	for _, o := range l.Items {
		words = append(words, o.(*item).text)
	}
	return strings.Join(words, " ")
}

// TestListForClientGo verifies that the functions that client-go uses to read lists accept a List.
func TestListForClientGo(t *testing.T) {
	list, err := readList(strings.NewReader(lists["typed"].in), takeText)
	if err != nil {
		t.Fatal(err)
	}
	m, err := meta.ListAccessor(list.DeepCopyObject())
	if err != nil || m.GetResourceVersion() != "7" || m.GetContinue() != "c" || *m.GetRemainingItemCount() != 3 {
		t.Errorf("got %+v, %v", m, err)
	}
	items, err := meta.ExtractListWithAlloc(list)
	if err != nil || len(items) != 2 || items[1].(*item).text != `{"b":[2]}` || meta.LenList(list) != 2 {
		t.Errorf("got %v, %v", items, err)
	}
}

// TestListConnectionLost verifies that a connection that is lost within a list causes an error.
func TestListConnectionLost(t *testing.T) {
	lost := errors.New("reset by peer")
	in := lists["typed"].in
	for n := range in {
		if _, err := readList(io.MultiReader(strings.NewReader(in[:n]), iotest.ErrReader(lost)), takeText); !errors.Is(err, lost) {
			t.Fatalf("after %q: %v", in[:n], err)
		}
	}
}

// TestListScansAValueOnce verifies that a large item that arrives in many small reads is not scanned
// from its beginning after each read.
func TestListScansAValueOnce(t *testing.T) {
	for piece, sizes := range map[int][]int{1400: {10 << 10, 100 << 10, 1 << 20}, 1 << 20: {9 << 20, 15 << 20}} {
		for _, size := range sizes {
			text := `"` + strings.Repeat("x", size) + `",`
			in := &values{window{r: &pieces{[]byte(text), piece}, max: maxObject}}
			scanned := 0
			err := in.value(func(s *jsonscan.Scanner) error {
				scanned += in.to - in.from
				s.Skip()
				return s.Err()
			})
			if next, _ := in.peek(); err != nil || next != ',' {
				t.Fatalf("%d bytes in reads of %d: %v", size, piece, err)
			}
			if limit := 4*size + sharedSize; scanned > limit {
				t.Errorf("%d bytes in reads of %d: scanned %d bytes, want at most %d", size, piece, scanned, limit)
			}
		}
	}
}

// TestListDecodesAnItemOnce verifies that an item is not decoded again if a read ends with it. Many
// reads end with an item, because an API server writes each item separately.
func TestListDecodesAnItemOnce(t *testing.T) {
	var reads []io.Reader
	for _, text := range []string{`{"metadata":{"resourceVersion":"7"},"items":[`, `{"a":1}`, `,`, `{"b":2}`, `,`, `{"c":3}`, `]}`} {
		reads = append(reads, strings.NewReader(text))
	}
	decoded := 0
	list, err := readList(io.MultiReader(reads...), func(s *jsonscan.Scanner) (runtime.Object, error) {
		o, err := takeText(s)
		if err == nil {
			decoded++
		}
		return o, err
	})
	if err != nil || describeList(list) != `7  {"a":1} {"b":2} {"c":3}` || decoded != 3 {
		t.Errorf("%d items are decoded, got %v, %v", decoded, list, err)
	}
}

// FuzzList compares readList with encoding/json. The text arrives in pieces.
func FuzzList(f *testing.F) {
	for _, l := range lists {
		if len(l.in) < 1000 {
			f.Add([]byte(l.in), 5)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte, piece int) {
		if piece < 1 {
			return
		}
		list, err := readList(&pieces{bytes.Clone(text), piece}, takeText)
		if err != nil {
			return
		}
		if !json.Valid(text) {
			t.Fatalf("%q is not JSON, but became a list of %d", text, len(list.Items))
		}
		if bytes.Count(text, []byte(`tems`)) > 1 || bytes.Contains(text, []byte(`\u`)) {
			return // encoding/json accepts duplicate names
		}
		var want map[string]json.RawMessage
		var items []json.RawMessage
		if json.Unmarshal(text, &want) != nil || want["items"] != nil && json.Unmarshal(want["items"], &items) != nil {
			t.Fatalf("%q is not a list for encoding/json", text)
		}
		if len(items) != len(list.Items) {
			t.Fatalf("%q: got %d items, want %d", text, len(list.Items), len(items))
		}
		for n, o := range list.Items {
			if got := o.(*item).text; got != string(items[n]) {
				t.Errorf("%q: item %d is %q, want %q", text, n, got, items[n])
			}
		}
	})
}
