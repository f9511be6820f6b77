package natsserver

import (
	"fmt"
	"log/slog"

	"github.com/nats-io/nats-server/v2/server"
)

// bridge passes on what the server logs. Its notices are two dozen lines at each
// start, so they are for debugging; its own debug and trace messages, which would
// hold contents, are never asked for.
type bridge struct {
	log   *slog.Logger
	fatal chan string // holds the first thing that the server cannot go on with
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
	b.log.Error(message, "text", fmt.Sprintf(format, args...))
}

// Fatalf does not end the process, as the server's own logger would.
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
