package page

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"
)

func get(t *testing.T, p *Page, at string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, at, http.NoBody))
	return w
}

// TestFiles verifies that the page can load all of its files, and that the headers keep other sites
// out.
func TestFiles(t *testing.T) {
	p := New(Config{})
	page := get(t, p, "/")
	if page.Code != http.StatusOK || page.Header().Get("Content-Type") != "text/html; charset=utf-8" {
		t.Fatalf("got %d, %v", page.Code, page.Header())
	}
	loaded := map[string]string{}
	for _, m := range regexp.MustCompile(`(?:src|href)="(page/[^"]*)"`).FindAllStringSubmatch(page.Body.String(), -1) {
		loaded["/"+m[1]] = ""
	}
	all, err := fs.ReadDir(assets, "assets")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		w := get(t, p, directory+f.Name())
		for _, m := range regexp.MustCompile(`from "\./([^"]*)"`).FindAllStringSubmatch(w.Body.String(), -1) {
			loaded[directory+m[1]] = f.Name()
		}
		if f.Name() == "index.html" {
			continue
		}
		if kind := w.Header().Get("Content-Type"); w.Code != http.StatusOK || kind == "" || w.Body.Len() == 0 {
			t.Errorf("%s: got %d, type %q, %d bytes", f.Name(), w.Code, kind, w.Body.Len())
		}
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Cross-Origin-Resource-Policy": "same-origin",
			"Cross-Origin-Opener-Policy": "same-origin", "Referrer-Policy": "no-referrer", "Content-Security-Policy": policy, "Cache-Control": "no-store",
		} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", f.Name(), name, got, want)
			}
		}
	}
	if len(loaded) < 3 {
		t.Errorf("the page loads only %v", loaded)
	}
	for at, from := range loaded {
		if w := get(t, p, at); w.Code != http.StatusOK {
			t.Errorf("%s, which %s loads: got %d", at, from, w.Code)
		}
	}
	for _, at := range []string{"/page/", "/page/none.js", "/page/../doc.go", "/page/index.html"} {
		if w := get(t, p, at); w.Code != http.StatusNotFound {
			t.Errorf("%s: got %d", at, w.Code)
		}
	}
}

// TestPolicy verifies that the policy allows nothing by default, no inline code and no other host.
func TestPolicy(t *testing.T) {
	directives := map[string]string{}
	for d := range strings.SplitSeq(policy, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(d), " ")
		directives[name] = value
	}
	for name, want := range map[string]string{
		"default-src": "'none'", "script-src": "'self'", "style-src": "'self'", "connect-src": "'self'", "img-src": "'self'", "base-uri": "'none'",
		"form-action": "'none'", "frame-ancestors": "'none'", "require-trusted-types-for": "'script'", "trusted-types": "'none'",
	} {
		if directives[name] != want {
			t.Errorf("%s is %q, want %q", name, directives[name], want)
		}
		delete(directives, name)
	}
	if len(directives) > 0 {
		t.Errorf("unknown directives %v", directives)
	}
}

// TestAssets verifies that no file needs a wider policy, loads from another host, or turns a string
// into markup.
func TestAssets(t *testing.T) {
	forbidden := map[string]*regexp.Regexp{
		".html": regexp.MustCompile(`(?i)<style|<script(?:[^>]*)>[^<]|\sstyle=|\son[a-z]+=|(?:src|action)="(?:https?:)?//|<link[^>]*href="(?:https?:)?//`),
		".css":  regexp.MustCompile(`(?i)@import|url\(|expression`),
		".js":   regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|DOMParser|createContextualFragment|setHTML|\.style\b|setAttribute\("(?:on|style|href|src)|import\(|from "(?:[^.]|\.[^/])`),
		".svg":  regexp.MustCompile(`(?i)<script|\son[a-z]+=|href|<style`),
	}
	all, err := fs.ReadDir(assets, "assets")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		body, err := assets.ReadFile(path.Join("assets", f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		pattern, ok := forbidden[path.Ext(f.Name())]
		if !ok {
			t.Errorf("%s has an unknown type", f.Name())
			continue
		}
		if found := pattern.FindString(string(body)); found != "" {
			t.Errorf("%s has %q", f.Name(), found)
		}
	}
}
