package operations

import (
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Check is one health or readiness check.
type Check struct {
	Name string
	// Check returns the reason why the check fails, or nil. It is called concurrently and must not
	// block, so it reports state that is already known.
	Check func() error
	// Note, if set, returns a short remark to add to a successful check, or "". It is called
	// concurrently and must not block.
	Note func() string
}

// checks returns a handler that responds with 200 and a line for each check, or with 503 and a line
// for each failed check. A response to HEAD has the same status. A caller that may not see the details
// receives a single line.
func (e Endpoints) checks(all []Check) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, text := run(all)
		// By default, a cluster lets everyone get /readyz, so the details need the right to get /metrics.
		if e.Access != nil {
			if access, _ := e.Access.status(r, "/metrics"); access != http.StatusOK {
				text = map[bool]string{true: "ok\n", false: "failing; a token that may get /metrics shows why\n"}[status == http.StatusOK]
			}
		}
		h := w.Header()
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text) // fails only if the client disconnected
	})
}

func run(all []Check) (status int, text string) {
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

// oneLine joins the lines of a text, such as the text of a joined error.
func oneLine(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}
