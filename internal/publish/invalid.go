package publish

import (
	"log/slog"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/kuberelay/kuberelay/internal/event"
)

// maxNamed bounds the memory and the log lines that a hostile writer can cause.
const maxNamed = 1000

// Invalid reports messages on the bus that are not valid Kuberelay events. A nil *Invalid
// reports nothing. It is safe for concurrent use.
type Invalid struct {
	log   *slog.Logger
	total *prometheus.CounterVec

	mu    sync.Mutex
	named map[place]struct{}
}

// place is the position of a message in a log. log is a topic, or "" on a bus with one log.
type place struct {
	log      string
	position uint64
}

// NewInvalid registers the metric with r, or nowhere if r is nil.
func NewInvalid(r prometheus.Registerer, log *slog.Logger) *Invalid {
	i := &Invalid{log: log, named: map[place]struct{}{}, total: promauto.With(r).NewCounterVec(prometheus.CounterOpts{
		Name: "kuberelay_invalid_messages_total",
		Help: "Messages on the bus that are not valid Kuberelay events, by reason. Each is counted once; after the first 1,000, each is counted whenever it is read. If it grows, another program writes to the bus: revoke its permission to write.",
	}, []string{"reason"})}
	for _, reason := range event.InvalidReasons() {
		i.total.WithLabelValues(string(reason))
	}
	return i
}

// Report counts the message at a position by the reason in err, and logs it with args, unless it
// has reported that message before. After maxNamed messages, Report doesn't log further messages,
// and counts each of them every time it is reported. log is a topic, or "" on a bus with one log.
// The caller continues as if the message did not exist.
func (i *Invalid) Report(log string, position uint64, err error, args ...any) {
	if i == nil {
		return
	}
	known, full := i.add(place{log, position})
	if known {
		return
	}
	reason := event.ReasonOf(err)
	i.total.WithLabelValues(string(reason)).Inc()
	if !full {
		i.log.Warn("message on the bus is not a Kuberelay event", append(args, "position", position, "reason", string(reason), "err", short(err))...)
	}
}

// maxError bounds the text of an error, which can quote a message of many megabytes.
const maxError = 1000

func short(err error) string {
	text := err.Error()
	if len(text) > maxError {
		text = strings.ToValidUTF8(text[:maxError], "") + "…"
	}
	return text
}

// add remembers a message. known reports whether add already remembers it. full reports whether maxNamed
// messages were remembered before a new message. For the first such message, add logs that further messages
// are only counted.
func (i *Invalid) add(p place) (known, full bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, known := i.named[p]; known || len(i.named) > maxNamed {
		return known, true
	}
	if i.named[p] = struct{}{}; len(i.named) <= maxNamed {
		return false, false
	}
	i.log.Warn("many messages on the bus are not Kuberelay events, counting the rest", "named", maxNamed)
	return false, true
}
