package natsserver

import (
	"fmt"
	"log/slog"
	"regexp"

	"github.com/nats-io/nats-server/v2/server"
)

// bridge logs the messages of the server. It logs notices at level debug, because the server writes
// two dozen of them at each start. It discards the server's debug and trace messages, because they
// contain message contents.
type bridge struct {
	log   *slog.Logger
	fatal chan string // holds the first fatal message

	broken chan struct{} // has an element after a failed write of the server
}

var _ server.Logger = (*bridge)(nil)

const message = "built-in NATS server"

func (b *bridge) Noticef(format string, args ...any) {
	b.log.Debug(message, "text", fmt.Sprintf(format, args...))
}

func (b *bridge) Warnf(format string, args ...any) {
	b.log.Warn(message, "text", fmt.Sprintf(format, args...))
}

func (b *bridge) Errorf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	b.log.Error(message, "text", text)
	if failedWrite.MatchString(text) {
		b.fail()
	}
}

// failedWrite matches the message after which a stream refuses all messages (nats-server, setWriteErr).
// A client cannot cause a match: the names have no spaces, and a message with text from a client begins
// with the client's address.
var failedWrite = regexp.MustCompile(`^(Filestore \[\S*\]|JetStream (stream|consumer) '\S+ > \S+( > \S+)?') [Cc]ritical write error: `)

// reset forgets the failures of a server that has stopped.
func (b *bridge) reset() {
	select {
	case <-b.broken:
	default:
	}
	select {
	case <-b.fatal:
	default:
	}
}

func (b *bridge) fail() {
	select {
	case b.broken <- struct{}{}:
	default:
	}
}

// Fatalf does not end the process, unlike the server's own logger.
func (b *bridge) Fatalf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	b.log.Error(message, "text", text)
	select {
	case b.fatal <- text:
	default:
	}
}

func (b *bridge) Debugf(string, ...any) {}
func (b *bridge) Tracef(string, ...any) {}
