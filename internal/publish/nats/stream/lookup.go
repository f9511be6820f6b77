package stream

import (
	"context"
	"errors"
	"fmt"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// FindStream looks up the stream. It neither creates the stream nor checks its configuration.
func (c *Conn) FindStream(ctx context.Context) (*jetstream.StreamInfo, error) {
	s, err := c.JS.Stream(ctx, c.Opts.Stream)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, fmt.Errorf("look up stream %q: %w", c.Opts.Stream, ErrMissing)
	case err != nil:
		return nil, c.Failure(err)
	}
	if err := LeaderError(s.CachedInfo()); err != nil {
		return nil, fmt.Errorf("look up stream %q: %w", c.Opts.Stream, err)
	}
	return s.CachedInfo(), nil
}

// LeaderError returns an error if the stream has no leader. In that case, any replica might have
// responded, from its own data.
func LeaderError(info *jetstream.StreamInfo) error {
	if info.Cluster != nil && info.Cluster.Leader == "" {
		return ErrNoLeader
	}
	return nil
}

// Failure explains an error from creating or looking up the stream, and adds the fix.
func (c *Conn) Failure(err error) error {
	var api *jetstream.APIError
	var code jetstream.ErrorCode
	if errors.As(err, &api) {
		code = api.ErrorCode
	}
	noJetStream := errors.Is(err, natsgo.ErrNoResponders) || errors.Is(err, jetstream.ErrJetStreamNotEnabled)
	switch {
	case noJetStream && c.Opts.Domain != "": // not permanent, because the leaf node might connect to its hub later
		return fmt.Errorf("no server of the JetStream domain %q (KUBERELAY_NATS_JETSTREAM_DOMAIN) responds: the leaf node is not connected to the domain, or the domain has another name: %w", c.Opts.Domain, err)
	case noJetStream ||
		errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return Misconfigured("JetStream is not enabled on the server or for the account: %w", err)
	case code == codeSubjectOverlap:
		return Misconfigured("another stream already has subjects of %q: set KUBERELAY_NATS_STREAM to that stream, "+
			"or choose another KUBERELAY_NATS_SUBJECT_PREFIX: %w", c.Opts.Subjects(), err)
	case code == codeMaximumStreams:
		return Misconfigured("the account allows no further stream: raise its limit (max_streams of the account's jetstream block, or nsc edit account --js-streams), "+
			"or set KUBERELAY_NATS_STREAM to an existing stream: %w", err)
	case code == codeMaxBytesRequired:
		return Misconfigured("the account requires a limit on the size of each stream (max_bytes_required): create the stream with such a limit "+
			"(nats stream add %s --subjects='%s' --max-bytes=10GiB --discard=new --storage=file), or remove the requirement: %w", c.Opts.Stream, c.Opts.Subjects(), err)
	case code == codeInvalidStreamConfig || errors.Is(err, jetstream.ErrInvalidStreamName):
		return Misconfigured("create stream %q: %w", c.Opts.Stream, err)
	}
	if denied := c.PermissionError(); denied != nil {
		return Misconfigured("the NATS user lacks a permission: %w", denied)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the server does not respond: look up stream %q: %w", c.Opts.Stream, err)
	}
	return fmt.Errorf("look up stream %q: %w", c.Opts.Stream, err)
}
