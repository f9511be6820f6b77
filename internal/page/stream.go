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
	// maxStream is how long a stream lasts. The browser connects again, and is authorized again.
	maxStream  = 10 * time.Minute
	retryAfter = time.Second
	// refresh is the longest time between two documents. It shows the page that the stream is alive, and
	// updates the ages in texts.
	refresh      = 5 * time.Second
	writeTimeout = 10 * time.Second
)

// message is one message of a stream, in its form on the wire. Streams share messages.
type message []byte

// frame has the messages of one second, for all streams. A frame reuses a message of the previous frame
// if its content is the same.
type frame struct {
	second                int64
	status, rates, events *message

	sent  time.Time // when the message status was made
	shown []byte    // the document in status, without the parts that change all the time
	count uint64    // number of events when the message events was made
}

// Stream sends the messages of the page as server-sent events, until the client disconnects or the page
// shuts down. names says whether the client may see names of objects.
func (p *Page) Stream(w http.ResponseWriter, r *http.Request, names bool) {
	protect(w.Header())
	// Another site can't read a stream, but could occupy all of them.
	if from := r.Header.Get("Sec-Fetch-Site"); from != "" && from != "same-origin" && from != "none" {
		http.Error(w, "requests from other sites are refused", http.StatusForbidden)
		return
	}
	if !p.enter() {
		w.Header().Set("Retry-After", "10")
		http.Error(w, fmt.Sprintf("%d pages are open, which is the maximum", maxStreams), http.StatusServiceUnavailable)
		return
	}
	defer p.leave()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would wait for more
	to := http.NewResponseController(w)
	if err := to.SetReadDeadline(time.Time{}); err != nil { // the read deadline of the server would end the request
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if r.Method == http.MethodHead {
		return
	}
	if _, err := fmt.Fprintf(w, "retry: %d\n\n", retryAfter.Milliseconds()); err != nil {
		return // the client is gone
	}
	var sent frame
	for over := time.Now().Add(maxStream); time.Now().Before(over); {
		now := p.frame()
		if err := send(w, to, now.after(sent, names)); err != nil {
			return // the client is gone
		}
		sent = now
		second := time.NewTimer(min(time.Second, time.Until(time.Unix(now.second+1, 0)))) // at most a second, as a clock can go back
		select {
		case <-second.C:
		case <-r.Context().Done():
			second.Stop()
			return
		case <-p.Done:
			second.Stop()
			return
		}
	}
}

func (p *Page) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.streams == maxStreams {
		return false
	}
	p.streams++
	return true
}

func (p *Page) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streams--
}

// hidden is the list of events for clients that may not see names.
var hidden = newMessage("events", recentEvents{Hidden: true, Events: []recentEvent{}})

// after returns the messages that differ from those of an earlier frame.
func (f frame) after(sent frame, names bool) (all []*message) {
	if f.status != sent.status {
		all = append(all, f.status)
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

// frame returns the frame of this second. The first stream that needs it computes it.
func (p *Page) frame() frame {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if f := &p.last; f.status == nil || f.second != now.Unix() {
		f.second = now.Unix()
		p.showStatus(f, now)
		p.showRecent(f, now)
	}
	return p.last
}

func (p *Page) showStatus(f *frame, now time.Time) {
	d := p.Status()
	shown := withoutAges(d)
	if f.status != nil && bytes.Equal(shown, f.shown) && now.Sub(f.sent) < refresh {
		return
	}
	f.status, f.shown, f.sent = newMessage("status", d), shown, now
}

// withoutAges returns a document without the parts that change all the time: the time, the summary, which
// has an age, and the memory.
func withoutAges(d status.Document) []byte {
	d.Time, d.Memory.Used, d.Verdict.Summary = time.Time{}, 0, ""
	b, _ := json.Marshal(d) // a document can always be encoded
	return b
}

func (p *Page) showRecent(f *frame, now time.Time) {
	count := p.Recent.counted()
	if f.rates != nil && count == f.count {
		return
	}
	f.rates, f.events, f.count = newMessage("rates", p.Recent.rates(now)), newMessage("events", p.Recent.list()), count
}

// newMessage returns a message. Its JSON has no line breaks, which would end the message.
func newMessage(kind string, content any) *message {
	body, err := json.Marshal(content)
	if err != nil {
		body = []byte("null") // impossible: the content can always be encoded
	}
	m := message(fmt.Appendf(nil, "event: %s\ndata: %s\n\n", kind, body))
	return &m
}
