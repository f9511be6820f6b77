// Package browsertest opens pages in a real Chromium without a window, as a user does, for tests.
//
// The browser resolves no name, so a page reaches the loopback address only. A [Tab] records every
// request and everything that a console would show as an error. Chromium is installed as root on
// Debian if it is missing.
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

// limit bounds every wait, also the start on a slow machine.
const limit = 3 * time.Minute

// Tab is a page in a browser of its own. Its methods fail the test.
type Tab struct {
	t   testing.TB
	ctx context.Context

	mu       sync.Mutex
	requests []string
	problems []string
}

// Open starts a browser, which ends with the test, with an empty page.
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
		options = append(options, chromedp.NoSandbox) // it does not work for root
	}
	allocator, cancel := chromedp.NewExecAllocator(context.Background(), options...) // ends after the cleanups of the test
	ctx, end := chromedp.NewContext(allocator)
	t.Cleanup(func() { end(); cancel() })
	tab := &Tab{t: t, ctx: ctx}
	if err := chromedp.Listen(ctx, tab.record); err != nil { // which starts the browser
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

// Problems returns the errors and warnings of the console so far, uncaught exceptions and violations of
// the page's policy among them.
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

// run runs an action that returns a value.
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

// Type replaces the text of a field with keys. A "\r" is the enter key.
func (tab *Tab) Type(selector, text string) {
	tab.t.Helper()
	Eval[bool](tab, fmt.Sprintf("(document.querySelector(%q).select(), true)", selector)) // which takes the focus
	tab.do("type into "+selector, chromedp.KeyEvent(text))
}

// Eval returns the value of an expression in JavaScript, which is not null.
func Eval[T any](tab *Tab, expression string) T {
	tab.t.Helper()
	return run(tab, expression, chromedp.Evaluate[T](expression))
}

// Text returns the visible text of an element, "" if there is none.
func (tab *Tab) Text(selector string) string {
	tab.t.Helper()
	return Eval[string](tab, fmt.Sprintf("document.querySelector(%q)?.innerText ?? ''", selector))
}

// poll is how often Await tries.
const poll = 50 * time.Millisecond

// Await waits until an expression in JavaScript is true. The policy of a page does not apply to it.
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

// Screenshot returns a picture of the page as PNG: of all of it, or of what the screen shows.
func (tab *Tab) Screenshot(all bool) []byte {
	tab.t.Helper()
	if all {
		return run(tab, "take a picture", chromedp.FullScreenshot(100))
	}
	return run(tab, "take a picture", chromedp.CaptureScreenshot())
}
