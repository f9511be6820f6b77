package natsserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"

	"github.com/nats-io/nats-server/v2/server"
)

// bridge logs the messages of the server. It logs notices at level debug, because the server writes
// two dozen of them at each start. A message about a client of the server is a warning, because the
// client causes it and the forwarder works without the client. The bridge discards the server's debug and
// trace messages, because they contain message contents.
type bridge struct {
	log   *slog.Logger
	fatal chan string // holds the first fatal message

	broken chan struct{} // has an element after a failed write of the server
}

var _ server.Logger = (*bridge)(nil)

const message = "built-in NATS server"

// aboutClient matches a message about a client: an address, the number of the connection, and what happened.
// The bridge logs the address and the number as "name" and the rest as "err", because package loglimit
// limits warnings by "err", and each attempt of a client that fails again and again has another number.
var aboutClient = regexp.MustCompile(`(?s)^(\S* - [a-z_]+:\d+) - (.*)$`)

// write logs a message of the server.
func (b *bridge) write(level slog.Level, text string) {
	if client := aboutClient.FindStringSubmatch(text); client != nil {
		b.log.Warn("a client of the built-in NATS server failed", "name", client[1], "err", errors.New(client[2]))
		return
	}
	b.log.Log(context.Background(), level, message, "text", text)
}

func (b *bridge) Noticef(format string, args ...any) {
	b.log.Debug(message, "text", fmt.Sprintf(format, args...))
}

func (b *bridge) Warnf(format string, args ...any) {
	b.write(slog.LevelWarn, fmt.Sprintf(format, args...))
}

func (b *bridge) Errorf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	b.write(slog.LevelError, text)
	if failedWrite.MatchString(text) {
		b.fail()
	}
}

// failedWrite matches the log line that nats-server writes when a write error makes a stream refuse all
// messages (setWriteErr). A client cannot cause a match: the names in the line have no spaces, and a log line
// with text from a client begins with the client's address.
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
