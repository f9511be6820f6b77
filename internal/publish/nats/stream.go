package nats

import (
	"context"
	"errors"
	"fmt"
	"strings"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// streamConfig is the stream as we create it.
func (o Options) streamConfig() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              o.Stream,
		Description:       "The state of Kubernetes clusters, kept current by Kuberelay",
		Subjects:          []string{o.subjects()},
		Retention:         jetstream.LimitsPolicy,
		Storage:           jetstream.FileStorage,
		Replicas:          o.Replicas,
		MaxMsgsPerSubject: int64(o.History),
		MaxMsgs:           -1,
		MaxBytes:          -1,
		MaxMsgSize:        -1,
		MaxConsumers:      -1,
		// A stream that dropped its oldest messages would forget the objects that
		// change least. Per subject the oldest do go: that is the history.
		Discard: jetstream.DiscardNew,
		// Compare-and-set is done by the leader, so reads are too.
		AllowDirect: false,
	}
}

func (o Options) subjects() string { return o.SubjectPrefix + ".>" }

// ensureStream creates the stream, or checks the one there is. Others may do the
// same at the same time. An error in whose chain is ErrMisconfigured will not go
// away by itself.
func (b *Bus) ensureStream(ctx context.Context) error {
	if b.opts.ReadOnly {
		_, err := b.findStream(ctx)
		return err
	}
	want := b.opts.streamConfig()
	s, err := b.js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s, err = b.js.CreateStream(ctx, want)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // someone was faster
			s, err = b.js.Stream(ctx, want.Name)
		} else if err == nil {
			b.created.Add(1)
			b.log.Info("stream created", "stream", want.Name, "subjects", want.Subjects)
		}
	}
	if err != nil {
		return b.streamFailure(err)
	}
	err = checkStream(s.CachedInfo().Config, b.opts)
	if err == nil || b.opts.InProcess == nil {
		return err
	}
	// A built-in server is ours alone, and nobody can edit its stream while we do not
	// run.
	if _, failure := b.js.UpdateStream(ctx, want); failure != nil {
		return fmt.Errorf("%w (the built-in server refuses to change it: %w; to begin anew, remove the folder in KUBERELAY_DATA_DIR)", err, failure)
	}
	b.log.Warn("the stream of the built-in server did not have the settings asked for, and has them now", "stream", want.Name, "was", err)
	return nil
}

// streamFailure says what an error of the stream's creation or look-up means.
func (b *Bus) streamFailure(err error) error {
	var api *jetstream.APIError
	var code jetstream.ErrorCode
	if errors.As(err, &api) {
		code = api.ErrorCode
	}
	switch {
	case errors.Is(err, natsgo.ErrNoResponders) || errors.Is(err, jetstream.ErrJetStreamNotEnabled) ||
		errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return misconfigured("JetStream is not enabled on the server or for our account: %w", err)
	case code == codeSubjectOverlap:
		return misconfigured("another stream already takes some of %q: name it in KUBERELAY_NATS_STREAM, "+
			"or choose another KUBERELAY_NATS_SUBJECT_PREFIX: %w", b.opts.subjects(), err)
	case code == codeReplicasUnsupported:
		return misconfigured("KUBERELAY_NATS_REPLICAS is %d, but the server is not in a cluster: %w", b.opts.Replicas, err)
	case code == codeInvalidStreamConfig || errors.Is(err, jetstream.ErrInvalidStreamName):
		return misconfigured("create stream %q: %w", b.opts.Stream, err)
	}
	if denied := b.permissionError(); denied != nil {
		return misconfigured("our NATS user lacks a permission: %w", denied)
	}
	return fmt.Errorf("look up stream %q: %w", b.opts.Stream, err)
}

// wrongSetting is one setting of a stream that would break a promise of ours.
type wrongSetting struct {
	name, is, should string
	edit             string // the flag of "nats stream edit" that mends it, "" if none can
}

// checkStream compares the settings that matter. Limits on size are the operator's
// choice, as the stream refuses when it is full; more replicas are only better; and
// subjects of others in the same stream do no harm.
func checkStream(is jetstream.StreamConfig, o Options) error {
	var wrong []wrongSetting
	check := func(ok bool, name string, is, should any, edit string) {
		if !ok {
			wrong = append(wrong, wrongSetting{name, fmt.Sprint(is), fmt.Sprint(should), edit})
		}
	}
	want := o.streamConfig()
	check(covers(is.Subjects, o.subjects()), "subjects", strings.Join(is.Subjects, ","), o.subjects(),
		fmt.Sprintf("--subjects='%s'", strings.Join(append(is.Subjects, o.subjects()), ",")))
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
	return misconfigured("%s", describe(o.Stream, wrong))
}

func editUnless(impossible bool, edit string) string {
	if impossible {
		return ""
	}
	return edit
}

// describe names what is wrong and the way to mend it.
func describe(stream string, wrong []wrongSetting) string {
	var b strings.Builder
	fmt.Fprintf(&b, "stream %q has wrong settings: ", stream)
	fix := "nats stream edit " + stream
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
		fmt.Fprintf(&b, ". A stream's %s cannot be changed: name another stream in KUBERELAY_NATS_STREAM, "+
			"or remove this one (nats stream rm %s) and let it be created again", strings.Join(fixed, " and "), stream)
		return b.String()
	}
	fmt.Fprintf(&b, ". To mend it: %s", fix)
	return b.String()
}

// covers tells whether one of the stream's subjects takes all of want, which ends
// in ">".
func covers(subjects []string, want string) bool {
	for _, s := range subjects {
		if subjectCovers(strings.Split(s, "."), strings.Split(want, ".")) {
			return true
		}
	}
	return false
}

func subjectCovers(subject, want []string) bool {
	for i, token := range subject {
		switch {
		case token == ">":
			return i < len(want)
		case i >= len(want) || want[i] == ">":
			return false
		case token != "*" && token != want[i]:
			return false
		}
	}
	return false // want goes on, as it ends in ">"
}
