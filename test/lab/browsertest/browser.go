// Package browsertest opens pages in a real, headless Chromium for tests, as a user does.
//
// The browser resolves no host names, so a page can reach only the loopback address. A [Tab] records
// every request and every error and warning that the browser's console would show. If Chromium is
// missing, the package installs it when it runs as root on Debian.
package browsertest

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// limit bounds every wait, including the browser's start on a slow machine.
const limit = 3 * time.Minute

// Tab is a page in its own browser. Its methods fail the test on errors.
type Tab struct {
	t   testing.TB
	ctx context.Context

	mu       sync.Mutex
	requests []string
	problems []string
}

// Open starts a browser with an empty page. The browser ends with the test.
func Open(t testing.TB) *Tab {
	t.Helper()
	command, err := find(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(command), chromedp.WSURLReadTimeout(limit),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-domain-reliability", true),
		chromedp.Flag("hide-scrollbars", false), chromedp.Flag("font-render-hinting", "none"),
	)
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // the sandbox doesn't work for root
	}
	allocator, cancel := chromedp.NewExecAllocator(context.Background(), options...) // t.Context would end before the test's cleanups
	ctx, end := chromedp.NewContext(allocator)
	t.Cleanup(func() { end(); cancel() })
	tab := &Tab{t: t, ctx: ctx}
	if err := chromedp.Listen(ctx, tab.record); err != nil { // starts the browser
		t.Fatalf("start %s: %v", command, err)
	}
	_, err = chromedp.Call(ctx, network.Enable, network.EnableParams{})
	for _, domain := range []cdp.Command[cdp.Empty, cdp.Empty]{cdplog.Enable, runtime.Enable} {
		if err == nil {
			_, err = chromedp.Call(ctx, domain, cdp.Empty{})
		}
	}
	if err != nil {
		t.Fatalf("start %s: %v", command, err)
	}
	return tab
}

func (tab *Tab) record(event any) {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		tab.requests = append(tab.requests, e.Request.URL)
	case *runtime.EventExceptionThrown:
		tab.problems = append(tab.problems, e.ExceptionDetails.Text+" "+describe(e.ExceptionDetails.Exception))
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning || e.Type == runtime.ConsoleAPICalledTypeAssert {
			text := string(e.Type)
			for _, arg := range e.Args {
				text += " " + describe(arg)
			}
			tab.problems = append(tab.problems, text)
		}
	case *cdplog.EventEntryAdded:
		if e.Entry.Level == cdplog.EntryLevelError || e.Entry.Level == cdplog.EntryLevelWarning {
			tab.problems = append(tab.problems, fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
		}
	}
}

func describe(o *runtime.RemoteObject) string {
	if o == nil {
		return ""
	}
	return o.Description + string(o.Value)
}

// Requests returns the URLs of all requests so far.
func (tab *Tab) Requests() []string {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	return slices.Clone(tab.requests)
}

// Problems returns the errors and warnings that the console has shown so far. They include uncaught
// exceptions and violations of the page's content security policy.
func (tab *Tab) Problems() []string {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	return slices.Clone(tab.problems)
}

// do runs actions.
func (tab *Tab) do(what string, actions ...chromedp.Action[chromedp.Void]) {
	tab.t.Helper()
	run(tab, what, chromedp.Steps(actions...))
}

// run runs an action and returns its value.
func run[T any](tab *Tab, what string, action chromedp.Action[T]) T {
	tab.t.Helper()
	ctx, cancel := context.WithTimeout(tab.ctx, limit)
	defer cancel()
	v, err := chromedp.Run(ctx, action)
	if err != nil {
		tab.t.Fatalf("%s: %v", what, err)
	}
	return v
}

// Go opens a URL.
func (tab *Tab) Go(url string) {
	tab.t.Helper()
	tab.do("open "+url, chromedp.Navigate(url))
}

// Screen sets the size of the window in CSS pixels. A phone has a touch screen.
func (tab *Tab) Screen(width, height int64, phone bool) {
	tab.t.Helper()
	var options []chromedp.EmulateViewportOption
	if phone {
		options = append(options, chromedp.EmulateMobile, chromedp.EmulateTouch)
	}
	tab.do("set the screen", chromedp.EmulateViewport(width, height, options...))
}

// Dark sets whether the user prefers dark colors.
func (tab *Tab) Dark(dark bool) {
	tab.t.Helper()
	value := map[bool]string{true: "dark", false: "light"}[dark]
	run(tab, "set the colors", func(ctx context.Context, t *chromedp.Target) (cdp.Empty, error) {
		return cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: value}}})
	})
}

// Type replaces the text of a field by typing text. "\r" is the Enter key.
func (tab *Tab) Type(selector, text string) {
	tab.t.Helper()
	Eval[bool](tab, fmt.Sprintf("(document.querySelector(%q).select(), true)", selector)) // focuses the field
	tab.do("type into "+selector, chromedp.KeyEvent(text))
}

// Eval returns the value of a JavaScript expression, which must not be null.
func Eval[T any](tab *Tab, expression string) T {
	tab.t.Helper()
	return run(tab, expression, chromedp.Evaluate[T](expression))
}

// Text returns the visible text of an element, or "" if the page has no such element.
func (tab *Tab) Text(selector string) string {
	tab.t.Helper()
	return Eval[string](tab, fmt.Sprintf("document.querySelector(%q)?.innerText ?? ''", selector))
}

// poll is the interval at which Await evaluates its expression.
const poll = 50 * time.Millisecond

// Await waits until a JavaScript expression is true. The page's content security policy doesn't apply
// to the expression.
func (tab *Tab) Await(what, expression string) {
	tab.t.Helper()
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	over := time.NewTimer(limit)
	defer over.Stop()
	for {
		if Eval[bool](tab, "Boolean("+expression+")") {
			return
		}
		select {
		case <-ticker.C:
		case <-over.C:
			tab.t.Fatalf("never: %s; the page says:\n%s", what, tab.Text("body"))
		}
	}
}

// Screenshot returns the page as a PNG image: the whole page if all is true, otherwise the part that
// the screen shows.
func (tab *Tab) Screenshot(all bool) []byte {
	tab.t.Helper()
	if all {
		return run(tab, "take a picture", chromedp.FullScreenshot(100))
	}
	return run(tab, "take a picture", chromedp.CaptureScreenshot())
}
