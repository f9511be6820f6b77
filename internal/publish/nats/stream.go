package nats

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/publish/nats/stream"
)

func (o Options) streamConfig() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              o.Stream,
		Description:       "The state of Kubernetes clusters, kept current by Kuberelay",
		Subjects:          []string{o.Subjects()},
		Retention:         jetstream.LimitsPolicy,
		Storage:           jetstream.FileStorage,
		Replicas:          o.Replicas,
		MaxMsgsPerSubject: int64(o.History),
		MaxMsgs:           -1,
		MaxBytes:          -1,
		MaxMsgSize:        -1,
		MaxConsumers:      -1,
		// If a full stream dropped its oldest messages, it would lose the objects that change
		// least. So a full stream rejects new messages instead. Per subject, the stream drops the
		// oldest messages. See [Options.History].
		Discard: jetstream.DiscardNew,
		// The leader performs compare-and-set, so reads go to the leader too.
		AllowDirect: false,
	}
}

// firstSequence returns the first sequence number of a new stream: the microseconds since 1970. A
// stream that replaces a lost stream thus starts above any position in the old stream. A subscriber
// that continues after its last position then receives everything from the start of the new stream.
// If the new stream started at 1, the server would silently send nothing until the stream passed
// that position.
//
// The new stream can start too low in two cases: the old stream stored more than a million messages per
// second for its whole life, or the clock was ahead when the old stream was created, by more than the time
// until its replacement.
//
// JSON numbers are exact in every client up to 2^53, which is reached in the year 2255.
func firstSequence(now time.Time) uint64 { return uint64(now.UnixMicro()) }

// ensureStream creates the stream, or checks the existing one. It corrects wrong settings only on
// the built-in server. Several forwarders may call it concurrently. An error that wraps
// ErrMisconfigured is permanent.
func (b *Bus) ensureStream(ctx context.Context, c *stream.Conn) error {
	want := b.opts.streamConfig()
	s, err := c.JS.Stream(ctx, want.Name)
	missing := errors.Is(err, jetstream.ErrStreamNotFound)
	if missing {
		want.FirstSeq = firstSequence(time.Now())
		s, err = c.JS.CreateStream(ctx, want)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another forwarder was faster
			s, err = c.JS.Stream(ctx, want.Name)
		} else if err == nil {
			b.log.Info("stream created", "stream", want.Name, "subjects", want.Subjects, "first_sequence", want.FirstSeq)
		}
	}
	if err != nil {
		if err = b.streamFailure(c, err); missing {
			err = fmt.Errorf("stream %q does not exist, and cannot be created: %w", want.Name, err)
		}
		return err
	}
	info := s.CachedInfo()
	if err := stream.LeaderError(info); err != nil {
		return fmt.Errorf("look up stream %q: %w", want.Name, err)
	}
	if c.Found(info) {
		b.log.Warn("stream was recreated", "stream", want.Name, "created", info.Created)
	}
	b.noteRisks(info)
	err = checkStream(info.Config, b.opts)
	if err == nil || b.opts.InProcess == nil {
		return err
	}
	// The stream of a built-in server has no other owner, and nobody can edit it while the
	// forwarder is stopped. The first sequence number must not change: if it increased, the server
	// would remove all messages below the new value at its next start.
	want.FirstSeq = info.Config.FirstSeq
	if _, failure := c.JS.UpdateStream(ctx, want); failure != nil {
		return fmt.Errorf("%w (the built-in server rejected the update: %w; to start over, remove the directory in KUBERELAY_DATA_DIR)", err, failure)
	}
	b.log.Warn("settings of the built-in server's stream updated", "stream", want.Name, "was", err)
	return nil
}

// streamFailure explains an error from creating or looking up the stream.
func (b *Bus) streamFailure(c *stream.Conn, err error) error {
	var api *jetstream.APIError
	if errors.As(err, &api) && api.ErrorCode == codeReplicasUnsupported {
		return stream.Misconfigured("KUBERELAY_NATS_REPLICAS is %d, but the server is not in a cluster: %w", b.opts.Replicas, err)
	}
	return c.Failure(err)
}

// codeReplicasUnsupported is a server error code for which the client has no constant. See
// jetstream_errors_generated.go in nats-server.
const codeReplicasUnsupported jetstream.ErrorCode = 10074

// wrongSetting is a stream setting that would break a guarantee.
type wrongSetting struct {
	name, is, should string
	edit             string // the flag of "nats stream edit" that fixes it, or "" if none can
}

// checkStream checks the settings that matter. It ignores size limits: they are the operator's choice, and a
// full stream rejects messages instead of dropping old ones. It also allows more replicas than configured,
// and other subjects in the same stream.
func checkStream(is jetstream.StreamConfig, o Options) error {
	var wrong []wrongSetting
	check := func(ok bool, name string, is, should any, edit string) {
		if !ok {
			wrong = append(wrong, wrongSetting{name, fmt.Sprint(is), fmt.Sprint(should), edit})
		}
	}
	want := o.streamConfig()
	check(covers(is.Subjects, o.Subjects()), "subjects", strings.Join(is.Subjects, ","), o.Subjects(),
		fmt.Sprintf("--subjects='%s'", strings.Join(append(is.Subjects, o.Subjects()), ",")))
	check(is.Storage == want.Storage, "storage", is.Storage, want.Storage, "")
	check(is.Retention == want.Retention, "retention", is.Retention, want.Retention, editUnless(is.Retention == jetstream.WorkQueuePolicy, "--retention=limits"))
	check(is.MaxMsgsPerSubject == want.MaxMsgsPerSubject, "max_msgs_per_subject", is.MaxMsgsPerSubject, want.MaxMsgsPerSubject,
		fmt.Sprintf("--max-msgs-per-subject=%d", o.History))
	check(is.MaxAge == 0, "max_age", is.MaxAge, "0s", "--max-age=0s")
	check(is.Discard == want.Discard, "discard", is.Discard, want.Discard, "--discard=new")
	check(!is.DiscardNewPerSubject, "discard_new_per_subject", is.DiscardNewPerSubject, false, "--no-discard-per-subject")
	check(!is.AllowDirect, "allow_direct", is.AllowDirect, false, "--no-allow-direct")
	check(is.Replicas >= want.Replicas, "num_replicas", is.Replicas, want.Replicas, fmt.Sprintf("--replicas=%d", o.Replicas))
	check(!is.NoAck, "no_ack", is.NoAck, false, "--ack")
	check(!is.Sealed, "sealed", is.Sealed, false, "")
	check(!is.DenyPurge, "deny_purge", is.DenyPurge, false, "")
	check(is.Mirror == nil, "mirror", is.Mirror != nil, false, "--no-mirror")
	check(is.SubjectTransform == nil, "subject_transform", is.SubjectTransform != nil, false, "--no-transform")
	check(!is.AllowMsgCounter, "allow_msg_counter", is.AllowMsgCounter, false, "")
	check(is.PersistMode == want.PersistMode, "persist_mode", is.PersistMode, want.PersistMode, "")
	if len(wrong) == 0 {
		return nil
	}
	return stream.Misconfigured("%s", describe(o.Stream, wrong))
}

func editUnless(impossible bool, edit string) string {
	if impossible {
		return ""
	}
	return edit
}

// describe returns a text that names the wrong settings and the fix.
func describe(name string, wrong []wrongSetting) string {
	var b strings.Builder
	fmt.Fprintf(&b, "stream %q has wrong settings: ", name)
	fix := "nats stream edit " + name
	var fixed []string
	for i, w := range wrong {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%s is %s, should be %s", w.name, w.is, w.should)
		if w.edit == "" {
			fixed = append(fixed, w.name)
		}
		fix += " " + w.edit
	}
	if len(fixed) > 0 {
		fmt.Fprintf(&b, ". The %s of a stream cannot be changed: set KUBERELAY_NATS_STREAM to another stream, "+
			"or delete this one (nats stream rm %s), and the forwarder creates it again", strings.Join(fixed, " and "), name)
		return b.String()
	}
	fmt.Fprintf(&b, ". To fix it: %s", fix)
	return b.String()
}

// covers reports whether one of the stream's subjects includes all of want, which ends in ">".
func covers(subjects []string, want string) bool {
	return slices.ContainsFunc(subjects, func(s string) bool { return server.SubjectMatchesFilter(want, s) })
}
