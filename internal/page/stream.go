package page

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/kuberelay/kuberelay/internal/status"
)

const (
	maxStreams = 16
	// maxStream is the maximum duration of a stream. After that, the browser connects again, which
	// requires a new authorization.
	maxStream  = 10 * time.Minute
	retryAfter = time.Second
	// refresh is the longest time between two status documents. A document at this interval shows the
	// page that the stream is alive, and updates the ages in texts.
	refresh      = 5 * time.Second
	writeTimeout = 10 * time.Second
)

// message is one message of a stream, in wire format. Streams share messages.
type message []byte

// frame contains the messages of one second, for all streams of a view. A frame reuses a message of the
// previous frame if the content is unchanged.
type frame struct {
	second                int64
	status, rates, events *message
	clusters              *message // nil for one cluster

	sent   time.Time // when the status message was created
	shown  []byte    // the document in the status message, without the parts that always change
	rows   []byte    // the content of the clusters message
	recent *Recent   // source of the events message
	count  uint64    // number of events when the events message was created
}

// Stream sends the messages of the page as server-sent events. It returns when the client disconnects,
// when the page shuts down, or after ten minutes. names says whether the client may see names of
// objects.
func (p *Page) Stream(w http.ResponseWriter, r *http.Request, names bool) {
	protect(w.Header())
	// Another site can't read a stream, but could occupy all of them.
	if from := r.Header.Get("Sec-Fetch-Site"); from != "" && from != "same-origin" && from != "none" {
		http.Error(w, "requests from other sites are refused", http.StatusForbidden)
		return
	}
	cluster := ""
	if p.Several {
		cluster = r.URL.Query().Get("cluster")
	}
	if !p.enter(cluster) {
		w.Header().Set("Retry-After", "10")
		http.Error(w, fmt.Sprintf("too many open pages, the maximum is %d; close one, or try again later", maxStreams), http.StatusServiceUnavailable)
		return
	}
	defer p.leave(cluster)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // otherwise nginx would buffer the messages
	to := http.NewResponseController(w)
	if err := to.SetReadDeadline(time.Time{}); err != nil { // the read deadline of the server would end the request
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if r.Method == http.MethodHead {
		return
	}
	if _, err := fmt.Fprintf(w, "retry: %d\n\n", retryAfter.Milliseconds()); err != nil {
		return // the client disconnected
	}
	var sent frame
	for over := time.Now().Add(maxStream); time.Now().Before(over); {
		now := p.frame(cluster)
		if err := send(w, to, now.after(sent, names)); err != nil {
			return // the client disconnected
		}
		sent = now
		select {
		case <-time.After(min(time.Second, time.Until(time.Unix(now.second+1, 0)))): // at most a second, because the clock can be set back
		case <-r.Context().Done():
			return
		case <-p.Done:
			return
		}
	}
}

// enter adds a stream to the view of a cluster. cluster is "" for a single cluster, or for all of
// several clusters. enter returns false if the maximum number of streams is open.
func (p *Page) enter(cluster string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.streams == maxStreams {
		return false
	}
	if p.views[cluster] == nil {
		p.views[cluster] = new(view)
	}
	p.streams++
	p.views[cluster].streams++
	return true
}

func (p *Page) leave(cluster string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streams--
	v := p.views[cluster]
	if v.streams--; v.streams == 0 {
		delete(p.views, cluster)
	}
}

// hidden is the list of events for clients that may not see names.
var hidden = newMessage("events", recentEvents{Hidden: true, Events: []recentEvent{}})

// after returns the messages that differ from those of a frame that was sent earlier.
func (f frame) after(sent frame, names bool) (all []*message) {
	if f.status != sent.status {
		all = append(all, f.status)
	}
	if f.clusters != sent.clusters {
		all = append(all, f.clusters)
	}
	if f.rates != sent.rates {
		all = append(all, f.rates)
	}
	switch {
	case names && f.events != sent.events:
		all = append(all, f.events)
	case !names && sent.status == nil:
		all = append(all, hidden)
	}
	return all
}

func send(w http.ResponseWriter, to *http.ResponseController, all []*message) error {
	if len(all) == 0 {
		return nil
	}
	if err := to.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	for _, m := range all {
		if _, err := w.Write(*m); err != nil {
			return err
		}
	}
	return to.Flush()
}

// frame returns the frame of the current second. The first stream that needs the frame computes it.
func (p *Page) frame(cluster string) frame {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, f := time.Now(), &p.views[cluster].last
	if f.status != nil && f.second == now.Unix() {
		return *f
	}
	f.second = now.Unix()
	d, recent := p.View(cluster)
	f.showStatus(d, now)
	if recent != nil {
		f.showRecent(recent, now)
	}
	return *f
}

func (f *frame) showStatus(d status.Document, now time.Time) {
	if d.Clusters != nil {
		f.showClusters(d.Rows())
		d.Clusters = []status.Document{} // the page needs only the rows
	}
	shown := withoutAges(d)
	if f.status != nil && bytes.Equal(shown, f.shown) && now.Sub(f.sent) < refresh {
		return
	}
	f.status, f.shown, f.sent = newMessage("status", d), shown, now
}

func (f *frame) showClusters(all []status.Row) {
	rows, _ := json.Marshal(all) // rows can always be encoded
	if f.clusters == nil || !bytes.Equal(rows, f.rows) {
		f.clusters, f.rows = newMessage("clusters", all), rows
	}
}

// withoutAges returns the JSON of a document without the parts that always change: the time, the
// memory, and the summary, which has an age.
func withoutAges(d status.Document) []byte {
	d.Time, d.Memory.Used, d.Verdict.Summary = time.Time{}, 0, ""
	b, _ := json.Marshal(d) // a document can always be encoded
	return b
}

func (f *frame) showRecent(r *Recent, now time.Time) {
	count := r.counted()
	if r == f.recent && count == f.count {
		return
	}
	f.rates, f.events = newMessage("rates", r.rates(now)), newMessage("events", r.list())
	f.recent, f.count = r, count
}

// newMessage returns a message with the content as JSON. The JSON has no line breaks, because they
// would end the message.
func newMessage(kind string, content any) *message {
	body, err := json.Marshal(content)
	if err != nil {
		body = []byte("null") // impossible: the content can always be encoded
	}
	m := message(fmt.Appendf(nil, "event: %s\ndata: %s\n\n", kind, body))
	return &m
}
