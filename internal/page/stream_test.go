package page

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/status"
)

// client stands in for a browser and its connection.
type client struct {
	header http.Header
	code   int

	mu      sync.Mutex
	body    bytes.Buffer
	flushed int   // flushed bytes
	fails   error // returned by the next write
	read    time.Time
	writes  []time.Time // deadlines
}

func (c *client) Header() http.Header { return c.header }

func (c *client) WriteHeader(code int) { c.code = code }

func (c *client) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fails != nil {
		return 0, c.fails
	}
	return c.body.Write(b)
}

func (c *client) FlushError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flushed = c.body.Len()
	return nil
}

func (c *client) SetReadDeadline(t time.Time) error { c.read = t; return nil }

func (c *client) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes = append(c.writes, t)
	return nil
}

// take returns the messages since the last call, as a list of their kinds and as text.
func (c *client) take(t *testing.T) (kinds, text string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flushed != c.body.Len() {
		t.Error("a message is not flushed")
	}
	text = c.body.String()
	c.body.Reset()
	c.flushed = 0
	for _, m := range regexp.MustCompile(`(?m)^event: (.*)\ndata: .*\n\n`).FindAllStringSubmatch(text, -1) {
		kinds += m[1] + " "
	}
	return kinds, text
}

// forwarder provides a status document and counts the calls of status.
type forwarder struct {
	mu    sync.Mutex
	doc   status.Document
	asked int

	recent Recent
}

func (f *forwarder) status() status.Document {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	d := f.doc
	d.Time = time.Now().UTC()
	d.Memory.Used = uint64(d.Time.UnixNano())
	d.Verdict.Summary = d.Time.String() // changes with time, like an age
	return d
}

// times returns the number of calls of status.
func (f *forwarder) times() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

func (f *forwarder) change(change func(*status.Document)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.doc)
}

// open opens a stream, which ends with the test or when end is called.
func open(t *testing.T, p *Page, names bool, headers ...string) (c *client, end func()) {
	t.Helper()
	return openCluster(t, p, "", names, headers...)
}

// openCluster is like open, for one of several clusters.
func openCluster(t *testing.T, p *Page, cluster string, names bool, headers ...string) (c *client, end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/v1/status/stream?cluster="+cluster, http.NoBody)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	c = &client{header: http.Header{}, read: time.Unix(1, 0)}
	ended := make(chan struct{})
	go func() { defer close(ended); p.Stream(c, r, names) }()
	synctest.Wait()
	end = func() { cancel(); <-ended }
	t.Cleanup(end)
	return c, end
}

func newPage(f *forwarder) (*Page, chan struct{}) {
	done := make(chan struct{})
	return New(Config{View: func(string) (status.Document, *Recent) { return f.status(), &f.recent }, Done: done}), done
}

// TestStream verifies that a stream sends changes at most once a second. All streams share the computed
// messages, and without a stream, the page computes nothing.
func TestStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &forwarder{}
		p, _ := newPage(f)
		time.Sleep(time.Minute)
		if f.times() > 0 {
			t.Errorf("without a page, the status was asked for %d times", f.times())
		}
		first, end := open(t, p, true)
		second, endSecond := open(t, p, true)
		for i, c := range []*client{first, second} {
			if kinds, text := c.take(t); kinds != "status rates events " || !strings.HasPrefix(text, "retry: 1000\n\n") {
				t.Errorf("stream %d begins with %q", i, text)
			}
			if got := c.header.Get("Content-Type"); got != "text/event-stream" || c.header.Get("Content-Security-Policy") == "" || !c.read.IsZero() {
				t.Errorf("stream %d: headers %v, read deadline %s", i, c.header, c.read)
			}
		}
		sends := func(what, want string) {
			t.Helper()
			asked := f.times()
			time.Sleep(time.Second)
			synctest.Wait()
			kinds, text := first.take(t)
			if kinds != want {
				t.Errorf("%s: got %q, want %q", what, kinds, want)
			}
			if _, other := second.take(t); other != text {
				t.Errorf("%s: the streams differ: %q and %q", what, text, other)
			}
			if f.times() != asked+1 {
				t.Errorf("%s: the status was asked for %d times for one second and two streams", what, f.times()-asked)
			}
		}
		sends("no change", "")
		f.change(func(d *status.Document) { d.Bus.Queued = 3 })
		sends("a change", "status ")
		sends("no change", "")
		f.recent.Add(key("web"), event.Created, "1", time.Now(), time.Now())
		f.recent.Add(key("api"), event.Created, "2", time.Now(), time.Now())
		sends("two events", "rates events ")
		f.change(func(d *status.Document) {
			d.Verdict = status.Verdict{Level: status.Warning, Findings: []status.Finding{{Reason: status.MemoryLow, Message: "96%"}}}
		})
		sends("a finding", "status ")
		f.change(func(d *status.Document) {
			d.Verdict.Findings = []status.Finding{{Reason: status.MemoryLow, Message: "97%"}}
		})
		sends("the text of a finding", "status ")
		for range int(refresh.Seconds()) - 1 {
			sends("no change", "")
		}
		sends("a refresh", "status ")

		end()
		endSecond()
		asked := f.times()
		time.Sleep(time.Minute)
		if f.times() != asked {
			t.Errorf("after the last page is closed, the status was asked for %d times", f.times()-asked)
		}
		third, _ := open(t, p, true)
		if kinds, text := third.take(t); kinds != "status rates events " || !strings.Contains(text, `"name":"api"`) {
			t.Errorf("a page that is opened later gets %q", text)
		}
	})
}

// TestLateStream verifies that a stream that begins in the middle of a second receives the same
// messages as the other streams.
func TestLateStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &forwarder{}
		p, _ := newPage(f)
		open(t, p, true)
		time.Sleep(300 * time.Millisecond)
		late, _ := open(t, p, true)
		if kinds, _ := late.take(t); kinds != "status rates events " || f.times() != 1 {
			t.Errorf("the late stream gets %q, and the status was requested %d times", kinds, f.times())
		}
		f.change(func(d *status.Document) { d.Cluster = "prod" })
		time.Sleep(700 * time.Millisecond)
		synctest.Wait()
		if kinds, _ := late.take(t); kinds != "status " || f.times() != 2 {
			t.Errorf("in the next second, the late stream gets %q, and the status was requested %d times", kinds, f.times())
		}
	})
}

// TestNames verifies that a stream has names of objects only if the caller allows it.
func TestNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &forwarder{}
		p, _ := newPage(f)
		f.recent.Add(key("tenant-secret"), event.Created, "1", time.Now(), time.Now())
		without, _ := open(t, p, false)
		with, _ := open(t, p, true)
		_, text := without.take(t)
		f.recent.Add(key("tenant-secret"), event.Updated, "2", time.Now(), time.Now())
		time.Sleep(time.Second)
		synctest.Wait()
		kinds, more := without.take(t)
		if text += more; strings.Contains(text, "tenant") || !strings.Contains(text, `{"hidden":true,"events":[]}`) || kinds != "rates " {
			t.Errorf("without names: %q, then %q", text, kinds)
		}
		if _, text := with.take(t); !strings.Contains(text, "tenant-secret") {
			t.Errorf("with names: %q", text)
		}
	})
}

// TestHostileNames verifies that a tenant's object name or a server's error text cannot begin another
// message.
func TestHostileNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hostile = "</script><img src=x onerror=alert(1)>\n\nevent: status\ndata: {}\r\n\r\u2028\xff"
		f := &forwarder{}
		p, _ := newPage(f)
		f.change(func(d *status.Document) {
			d.Resources = []status.Resource{{Name: "pods", WatchError: &status.Error{Message: hostile}}}
		})
		f.recent.Add(event.Key{Resource: "roles", Namespace: hostile, Name: hostile}, event.Created, hostile, time.Now(), time.Now())
		c, _ := open(t, p, true)
		kinds, text := c.take(t)
		if kinds != "status rates events " || strings.Count(text, "\n\n") != 4 || strings.ContainsAny(text, "<\r\u2028") {
			t.Errorf("got %q", text)
		}
		for _, m := range regexp.MustCompile(`(?m)^data: (.*)$`).FindAllStringSubmatch(text, -1) {
			if !json.Valid([]byte(m[1])) {
				t.Errorf("%s is not JSON", m[1])
			}
		}
	})
}

// TestStreamsAreBounded verifies the limits on the number and the duration of streams, and that all
// streams end when the forwarder stops.
func TestStreamsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &forwarder{}
		p, done := newPage(f)
		var last func()
		for range maxStreams {
			_, last = open(t, p, true)
		}
		refused, _ := open(t, p, true)
		if refused.code != http.StatusServiceUnavailable || refused.header.Get("Retry-After") == "" || !strings.Contains(refused.body.String(), "the maximum is 16") {
			t.Errorf("one too many: got %d %s", refused.code, &refused.body)
		}
		last()
		if admitted, _ := open(t, p, true); admitted.code != 0 {
			t.Errorf("after another stream has ended: got status %d", admitted.code)
		}
		time.Sleep(maxStream + time.Second)
		synctest.Wait()
		if p.streams != 0 {
			t.Errorf("%d streams have not ended after %s", p.streams, maxStream)
		}
		open(t, p, true)
		broken, _ := open(t, p, true)
		broken.mu.Lock()
		broken.fails = errors.New("broken pipe")
		broken.mu.Unlock()
		f.change(func(d *status.Document) { d.Cluster = "prod" })
		time.Sleep(time.Second)
		synctest.Wait()
		if got := time.Until(broken.writes[len(broken.writes)-1]); p.streams != 1 || got != writeTimeout {
			t.Errorf("%d streams are open after a write failed, want 1; a write may take %s", p.streams, got)
		}
		close(done)
		synctest.Wait()
		if p.streams != 0 {
			t.Errorf("%d streams have not ended with the forwarder", p.streams)
		}
	})
}

// TestClusters verifies that the page of several clusters has a row for each cluster, without its
// resources. The page of one of them is the same as the page of a forwarder with a single cluster.
func TestClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, recents := &forwarder{}, new(Recents)
		resources := []status.Resource{{Name: "pods", State: "synced", Objects: 7}}
		f.change(func(d *status.Document) {
			d.Clusters = []status.Document{{Cluster: "a", Resources: resources}, {Cluster: "b", Resources: resources}}
		})
		one := &forwarder{doc: status.Document{Cluster: "a", Resources: resources}}
		p := New(Config{Several: true, Done: make(chan struct{}), View: func(name string) (status.Document, *Recent) {
			if name == "" {
				return f.status(), nil
			}
			return one.status(), recents.Of(name)
		}})
		recents.Of("a").Add(key("web"), event.Created, "1", time.Now(), time.Now())
		recents.Of("b").Add(key("api"), event.Created, "1", time.Now(), time.Now())
		all, _ := open(t, p, true)
		if kinds, text := all.take(t); kinds != "status clusters " || strings.Contains(text, "pods") || strings.Count(text, `"objects":7`) != 2 {
			t.Errorf("the page of all clusters gets %q", text)
		}
		a, end := openCluster(t, p, "a", true)
		if kinds, text := a.take(t); kinds != "status rates events " || !strings.Contains(text, `"name":"web"`) || strings.Contains(text, "api") || !strings.Contains(text, "pods") {
			t.Errorf("the page of one cluster gets %q", text)
		}
		sends := func(what, ofAll, ofOne string) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			if kinds, _ := all.take(t); kinds != ofAll {
				t.Errorf("%s: the page of all clusters gets %q, want %q", what, kinds, ofAll)
			}
			if kinds, _ := a.take(t); kinds != ofOne {
				t.Errorf("%s: the page of one cluster gets %q, want %q", what, kinds, ofOne)
			}
		}
		sends("no change", "", "")
		f.change(func(d *status.Document) { d.Clusters[0].Verdict.Level = status.Critical })
		sends("a change of a row", "clusters ", "")
		one.change(func(d *status.Document) { d.Bus.Queued = 3 })
		recents.Forget("a")
		recents.Of("a").Add(key("new"), event.Created, "1", time.Now(), time.Now())
		sends("a cluster that left and came back", "", "status rates events ")
		end()
		asked := one.times()
		sends("a page is closed", "", "")
		if one.times() != asked || len(p.views) != 1 {
			t.Errorf("after the page is closed, the status of the cluster is requested, or there are %d views instead of 1", len(p.views))
		}
		recents.Forget("a")
		if got := recents.Of("a").counted(); got != 0 {
			t.Errorf("a cluster that left has %d events", got)
		}
	})
}

// TestOtherSites verifies that other sites cannot use up the streams.
func TestOtherSites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newPage(&forwarder{})
		for from, want := range map[string]int{"same-origin": 0, "none": 0, "same-site": 403, "cross-site": 403} {
			if c, end := open(t, p, true, "Sec-Fetch-Site: "+from); c.code != want {
				t.Errorf("%s: got %d, want %d", from, c.code, want)
			} else {
				end()
			}
		}
	})
}
