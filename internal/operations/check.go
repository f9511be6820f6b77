package operations

import (
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Check is one thing that has to be well.
type Check struct {
	Name string
	// Check says what is not well, or nil. It is called from many goroutines and
	// must not block: it reports what is known already.
	Check func() error
	// Note, if set, says more of what is well, in a few words; "" for nothing. It is
	// called likewise.
	Note func() string
}

// checks answers 200 with a line for each check, or 503 with a line for each that
// fails. A response to HEAD has the same status.
func checks(all []Check) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		status, text := ask(all)
		h := w.Header()
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text) // whoever asked has gone: nobody to tell
	})
}

func ask(all []Check) (status int, text string) {
	var well, failing strings.Builder
	for _, c := range all {
		if err := c.Check(); err != nil {
			fmt.Fprintf(&failing, "%s: %s\n", c.Name, oneLine(err.Error()))
		} else {
			fmt.Fprintf(&well, "%s: ok%s\n", c.Name, c.note())
		}
	}
	switch {
	case failing.Len() > 0:
		return http.StatusServiceUnavailable, failing.String()
	case len(all) == 0:
		return http.StatusOK, "ok\n"
	default:
		return http.StatusOK, well.String()
	}
}

func (c Check) note() string {
	if c.Note == nil {
		return ""
	}
	if note := oneLine(c.Note()); note != "" {
		return ", " + note
	}
	return ""
}

// oneLine joins the lines of a text: a joined error has one for each of its errors.
func oneLine(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}
