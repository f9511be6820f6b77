package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	terminal "golang.org/x/term"

	"github.com/kuberelay/kuberelay/internal/config"
)

// newLogger logs to w: text if w is a terminal, else JSON, unless the
// configuration says which.
func newLogger(c config.Operations, w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return nil, fmt.Errorf("make the log: %w", err)
	}
	options := &slog.HandlerOptions{Level: level}
	if c.LogFormat == config.LogText || c.LogFormat == "" && isTerminal(w) {
		return slog.New(slog.NewTextHandler(w, options)), nil
	}
	return slog.New(slog.NewJSONHandler(w, options)), nil
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && terminal.IsTerminal(int(f.Fd()))
}
