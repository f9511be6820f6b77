package bundle

import (
	"bytes"
	"io"
	"net/http"
	"runtime/pprof"
	"strconv"
	"strings"
)

// Handler serves the parts of a bundle that come from a running forwarder, at /goroutines, /heap,
// /log, and /config. config writes the configuration without secrets, and is called concurrently.
// The caller must authorize the requests.
func Handler(log *Log, config func(io.Writer) error) http.Handler {
	mux := http.NewServeMux()
	for name, write := range map[string]func(io.Writer) error{
		"goroutines": writeGoroutines,
		"heap":       func(w io.Writer) error { return pprof.Lookup("heap").WriteTo(w, 0) },
		"log":        log.write,
		"config":     config,
	} {
		mux.HandleFunc("GET /"+name, func(w http.ResponseWriter, _ *http.Request) { serve(w, write) })
	}
	return mux
}

func serve(w http.ResponseWriter, write func(io.Writer) error) {
	var content bytes.Buffer
	if err := write(&content); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Length", strconv.Itoa(content.Len()))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	_, _ = content.WriteTo(w) // fails only if the client disconnected
}

// writeGoroutines writes the stack, the state, and the age of every goroutine.
func writeGoroutines(w io.Writer) error {
	var all strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&all, 2); err != nil {
		return err
	}
	_, err := io.WriteString(w, withoutArguments(all.String()))
	return err
}

// withoutArguments removes the function arguments from a goroutine dump. The arguments are words of
// memory. Nearly all of them are pointers and lengths, but an array that is passed by value, such as a
// key, would be readable.
func withoutArguments(stacks string) string {
	var b strings.Builder
	for line := range strings.Lines(stacks) {
		text := strings.TrimRight(line, "\n")
		call := !strings.HasPrefix(text, "\t") && !strings.HasPrefix(text, "goroutine ") && !strings.HasPrefix(text, "created by ")
		if at := strings.LastIndexByte(text, '('); call && at >= 0 && strings.HasSuffix(text, ")") {
			text = text[:at] + "(...)"
		}
		b.WriteString(text + "\n")
	}
	return b.String()
}
