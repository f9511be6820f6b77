package bundle

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func get(t *testing.T, h http.Handler, path string) (code int, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
	return w.Code, w.Body.String()
}

// park blocks, so that its goroutine is in the dump. Its key is passed by value.
//
//go:noinline
func park(key [4]uint64, until <-chan struct{}) uint64 {
	<-until
	return key[0] + key[3]
}

func TestSource(t *testing.T) {
	log := new(Log)
	_, _ = log.Write([]byte("one\ntwo\n"))
	h := Handler(log, func(w io.Writer) error { _, err := io.WriteString(w, "KUBERELAY_RESOURCES"); return err })
	until, parked := make(chan struct{}), make(chan uint64)
	go func() {
		parked <- park([4]uint64{0xdeadbeef0001, 0xdeadbeef0002, 0xdeadbeef0003, 0xdeadbeef0004}, until)
	}()
	var dump string
	for !strings.Contains(dump, "bundle.park(") { // until the goroutine has started
		_, dump = get(t, h, "/goroutines")
	}
	close(until)
	<-parked
	if strings.Contains(dump, "deadbeef") || !strings.Contains(dump, "bundle.park(...)") || !strings.Contains(dump, "[chan receive") || !strings.Contains(dump, "serve_test.go:") {
		t.Errorf("the goroutines have arguments, or no state or line:\n%s", dump)
	}
	if code, body := get(t, h, "/log"); code != http.StatusOK || body != "one\ntwo\n" {
		t.Errorf("log: %d %q", code, body)
	}
	if code, body := get(t, h, "/config"); code != http.StatusOK || body != "KUBERELAY_RESOURCES" {
		t.Errorf("config: %d %q", code, body)
	}
	_, profile := get(t, h, "/heap")
	unpacked, err := gzip.NewReader(strings.NewReader(profile))
	if err != nil {
		t.Fatalf("the heap profile: %v", err)
	}
	if content, err := io.ReadAll(unpacked); err != nil || !bytes.Contains(content, []byte("inuse_space")) {
		t.Errorf("the heap profile: %v, %d bytes", err, len(content))
	}
	if code, _ := get(t, h, "/cmdline"); code != http.StatusNotFound {
		t.Errorf("another path: %d", code)
	}
	h = Handler(log, func(w io.Writer) error { _, _ = io.WriteString(w, "half"); return errors.New("no") })
	if code, body := get(t, h, "/config"); code != http.StatusInternalServerError || body != "no\n" {
		t.Errorf("config that fails: %d %q", code, body)
	}
}

func TestWithoutArguments(t *testing.T) {
	const dump = `goroutine 1 [select, 5 minutes]:
main.(*Server).run(0xc000, {0x6b6579, 0x5}, 0x1)
	/src/main.go:10 +0x1d
main.generic[...](...)
	/src/main.go:11
panic({0x1?, 0x2?})
created by main.main in goroutine 1 (x)
	/src/main.go:12 +0x2
`
	const want = `goroutine 1 [select, 5 minutes]:
main.(*Server).run(...)
	/src/main.go:10 +0x1d
main.generic[...](...)
	/src/main.go:11
panic(...)
created by main.main in goroutine 1 (x)
	/src/main.go:12 +0x2
`
	if got := withoutArguments(dump); got != want {
		t.Errorf("got\n%s", got)
	}
}

func TestLog(t *testing.T) {
	var l Log
	read := func() string {
		var b strings.Builder
		if err := l.write(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	for i := range maxLines + 10 {
		if n, err := l.Write([]byte(strings.Repeat("x", i%7) + "\n")); n != i%7+1 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
	}
	if got := strings.Count(read(), "\n"); got != maxLines {
		t.Errorf("%d lines are kept, want %d", got, maxLines)
	}
	if got := read(); !strings.HasPrefix(got, strings.Repeat("x", 10%7)+"\n") {
		t.Errorf("the first line is not the oldest that may be kept: %.20q", got)
	}
	line := strings.Repeat("y", maxBytes/4-1) + "\n"
	for range 6 {
		_, _ = l.Write([]byte(line))
	}
	if got := read(); got != strings.Repeat(line, 4) {
		t.Errorf("%d bytes are kept, want %d", len(got), maxBytes)
	}
	_, _ = l.Write([]byte(strings.Repeat("z", 2*maxBytes) + "\n"))
	if got := read(); got != strings.Repeat("z", maxBytes-1)+"\n" {
		t.Errorf("of a long line %d bytes are kept: %.20q", len(got), got)
	}
}
