package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/subject"
	"github.com/kuberelay/kuberelay/internal/publish/nats/stream"
)

// Inspection is the information that a server provides about itself, the stream, and the user.
// [Inspect] collects it without writing.
type Inspection struct {
	Version    string
	MaxPayload int64 // maximum size of a message in bytes, including headers
	Clustered  bool  // the server is part of a cluster
	// TLSFrom and TLSUntil are the validity period of the server's certificate. They are zero
	// without TLS.
	TLSFrom, TLSUntil time.Time

	JetStream error                  // why JetStream is unavailable; nil if it is available
	Account   *jetstream.AccountInfo // nil if the user lacks the permission to request it
	Stream    *jetstream.StreamInfo  // nil if the stream does not exist or could not be looked up
	StreamErr error                  // why the stream could not be looked up
	Settings  error                  // the stream settings that would break a guarantee
	Overlap   string                 // the name of another stream with subjects of the forwarder
	Skew      *time.Duration         // the skew of the server's clock; nil if unknown

	// Denied lists the missing permissions of the user, such as "publish kuberelay.>". DeniedErr is
	// the reason if they are unknown. Both are empty for a built-in server.
	Denied    []string
	DeniedErr error

	Claim    event.Claim
	ClaimErr error
}

// connectTimeout bounds the time that [Inspect] waits for a connection. One attempt takes up to 2 s.
const connectTimeout = 8 * time.Second

// Inspect reads the state of the server and of the stream. It writes nothing, and returns an error
// only if it cannot connect. want must come from [Options.WithDefaults], and has no URLs if the forwarder
// runs a built-in server. To connect as the forwarder's user, pass want.Connection.
func Inspect(ctx context.Context, connection Connection, want Options) (Inspection, error) {
	c, err := stream.Connect(ctx, connection, stream.Hooks{Check: func(context.Context, *stream.Conn) error { return nil }})
	if err != nil {
		return Inspection{}, err
	}
	defer c.Close()
	timed, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := c.Wait(timed); errors.Is(err, ErrMisconfigured) {
		return Inspection{}, err
	}
	if !c.NC.IsConnected() {
		return Inspection{}, c.WhyNotConnected()
	}
	i := Inspection{Version: c.NC.ConnectedServerVersion(), MaxPayload: c.NC.MaxPayload(), Clustered: c.NC.ConnectedClusterName() != ""}
	if state, err := c.NC.TLSConnectionState(); err == nil && len(state.PeerCertificates) > 0 {
		i.TLSFrom, i.TLSUntil = state.PeerCertificates[0].NotBefore, state.PeerCertificates[0].NotAfter
	}
	i.inspectStream(ctx, c, want)
	if len(want.URLs) > 0 { // the forwarder has all permissions on a built-in server, which refuses this request from a reader
		i.inspectUser(ctx, c, want)
	}
	return i, nil
}

// inspectStream requests the account, the stream, and the claim.
func (i *Inspection) inspectStream(ctx context.Context, c *stream.Conn, want Options) {
	var account jetstream.AccountInfo
	switch err := ask(ctx, c, c.Opts.API("INFO"), nil, &account); {
	case err == nil:
		i.Account = &account
	case errors.Is(err, natsgo.ErrNoResponders), isDisabled(err):
		i.JetStream = c.Failure(natsgo.ErrNoResponders)
		return
	}
	var info jetstream.StreamInfo
	sent := time.Now()
	err := ask(ctx, c, c.API("STREAM.INFO"), nil, &info)
	var api *jetstream.APIError
	switch {
	case errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamNotFound:
		i.findOverlap(ctx, c, want)
		return
	case errors.Is(err, natsgo.ErrNoResponders), isDisabled(err):
		i.JetStream = c.Failure(natsgo.ErrNoResponders)
		return
	case err != nil:
		i.StreamErr = fmt.Errorf("look up stream %q: %w", want.Stream, err)
		return
	}
	if !info.TimeStamp.IsZero() {
		skew := skewOf(info.TimeStamp, sent, time.Now())
		i.Skew = &skew
	}
	i.Stream, i.Settings = &info, checkStream(info.Config, want)
	if i.StreamErr = stream.LeaderError(&info); i.StreamErr == nil {
		i.inspectClaim(ctx, c, want)
	}
}

// skewOf returns how far a remote clock is ahead of the local one; a negative result means behind. at is the
// time that the remote clock showed at some moment between sent and received. The result is 0 if the clocks
// might agree.
func skewOf(at, sent, received time.Time) time.Duration {
	return max(0, at.Sub(received)) + min(0, at.Sub(sent))
}

func isDisabled(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeJetStreamNotEnabled || api.ErrorCode == jetstream.JSErrCodeJetStreamNotEnabledForAccount)
}

// findOverlap looks for another stream with subjects of the forwarder. Such a stream prevents the
// forwarder from creating its own. findOverlap finds nothing if the user lacks the permission for
// the request.
func (i *Inspection) findOverlap(ctx context.Context, c *stream.Conn, want Options) {
	var names struct {
		Streams []string `json:"streams"`
	}
	request, _ := json.Marshal(map[string]string{"subject": want.Subjects()}) // strings always marshal
	if ask(ctx, c, c.Opts.API("STREAM.NAMES"), request, &names) == nil && len(names.Streams) > 0 {
		i.Overlap = names.Streams[0]
	}
}

func (i *Inspection) inspectClaim(ctx context.Context, c *stream.Conn, want Options) {
	if want.Cluster == "" {
		return
	}
	answer, err := exchange(ctx, c, c.API("STREAM.MSG.GET"), stream.LastRequest(subject.Claim(want.SubjectPrefix, want.Cluster)), nil)
	if err == nil {
		var s *stream.Message
		if s, err = stream.ParseMessage(answer); s == nil {
			i.ClaimErr = err
			return
		}
		var m *event.Message
		if m, err = s.Decode(); err == nil {
			i.Claim, err = event.ClaimFrom(m)
		}
	}
	i.ClaimErr = err
}

// inspectUser finds out which of the permissions in docs/permissions.md the user lacks.
func (i *Inspection) inspectUser(ctx context.Context, c *stream.Conn, want Options) {
	var user struct {
		Data server.UserInfo `json:"data"`
	}
	const subject = "$SYS.REQ.USER.INFO"
	// Ignore the response of a hub: it has the permissions of the leaf node, not those of this user.
	answer, err := exchange(ctx, c, subject, nil, func(answer *natsgo.Msg) bool {
		var by struct {
			Server server.ServerInfo `json:"server"`
		}
		return json.Unmarshal(answer.Data, &by) == nil && by.Server.ID == c.NC.ConnectedServerId()
	})
	if err == nil {
		err = decodeAnswer(answer, subject, &user)
	}
	i.DeniedErr = err
	if i.DeniedErr == nil && user.Data.Permissions != nil {
		i.Denied = missing(user.Data.Permissions, want, i.Stream == nil && i.StreamErr == nil)
	}
}

// missing returns the permissions that a forwarder needs and the user lacks. create says whether
// the forwarder has to create the stream.
func missing(has *server.Permissions, want Options, create bool) (denied []string) {
	api := func(what, rest string) string { return want.API(what + "." + want.Stream + rest) }
	subjects := []string{
		api("STREAM.INFO", ""), api("STREAM.MSG.GET", ""), api("STREAM.PURGE", ""),
		api("CONSUMER.CREATE", ".>"), api("CONSUMER.MSG.NEXT", ".*"), api("CONSUMER.DELETE", ".*"),
	}
	if create {
		subjects = append(subjects, api("STREAM.CREATE", ""))
	}
	if want.Cluster != "" { // the name is unknown if the API server did not report it
		subjects = append(subjects, subject.Cluster(want.SubjectPrefix, want.Cluster))
	}
	for _, subject := range subjects {
		if !permits(has.Publish, subject) {
			denied = append(denied, "publish "+subject)
		}
	}
	if subject := inboxPrefix + ".>"; !permits(has.Subscribe, subject) {
		denied = append(denied, "subscribe "+subject)
	}
	return denied
}

// permits reports whether p allows every subject that matches the given one, and denies none of
// them.
func permits(p *server.SubjectPermission, subject string) bool {
	if p == nil {
		return true
	}
	allowed := len(p.Allow) == 0
	for _, s := range p.Allow {
		allowed = allowed || server.SubjectMatchesFilter(subject, s)
	}
	for _, s := range p.Deny {
		allowed = allowed && !server.SubjectsCollide(subject, s)
	}
	return allowed
}

// ask sends a request and decodes the response. See decodeAnswer.
func ask(ctx context.Context, c *stream.Conn, subject string, request []byte, into any) error {
	answer, err := exchange(ctx, c, subject, request, nil)
	if err != nil {
		return err
	}
	return decodeAnswer(answer, subject, into)
}

// decodeAnswer decodes the response to a request. It returns an API error as a
// [jetstream.APIError].
func decodeAnswer(answer *natsgo.Msg, subject string, into any) error {
	var failed struct {
		Error json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(answer.Data, &failed); err != nil {
		return fmt.Errorf("response to %s: %w", subject, err)
	}
	if failed.Error != nil {
		var api jetstream.APIError
		if err := json.Unmarshal(failed.Error, &api); err != nil {
			return fmt.Errorf("response to %s: %s", subject, failed.Error)
		}
		return &api
	}
	if err := json.Unmarshal(answer.Data, into); err != nil {
		return fmt.Errorf("response to %s: %w", subject, err)
	}
	return nil
}

// exchange sends a request and returns the first response for which accept returns true. A nil
// accept accepts any response. If the user may not send the request, exchange returns without
// waiting for a response, because the server reports the violation before it responds to the ping of
// the flush.
func exchange(ctx context.Context, c *stream.Conn, subject string, request []byte, accept func(*natsgo.Msg) bool) (*natsgo.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, c.RequestTimeout())
	defer cancel()
	reply := c.NC.NewInbox()
	answers, err := c.NC.SubscribeSync(reply)
	if err != nil {
		return nil, err
	}
	defer answers.Unsubscribe() //nolint:errcheck // the connection is closed soon
	if err := c.NC.PublishRequest(subject, reply, request); err != nil {
		return nil, err
	}
	if err := c.NC.FlushWithContext(ctx); err != nil {
		return nil, err
	}
	if last := c.NC.LastError(); errors.Is(last, natsgo.ErrPermissionViolation) && strings.Contains(last.Error(), `"`+subject+`"`) {
		return nil, fmt.Errorf("the NATS user may not publish to %s", subject)
	}
	for {
		answer, err := answers.NextMsgWithContext(ctx)
		if err != nil || accept == nil || accept(answer) {
			return answer, err
		}
	}
}
