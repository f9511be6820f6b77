package check

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/nats"
)

// natsChecks returns the checks of the server, the stream, and the user on NATS.
func natsChecks() []Check {
	return ofSink(config.SinkNATS, "NATS", []Check{
		{ID: BusCertificate, check: withBus(validity(BusCertificate, "the connection is not encrypted", "renew the certificate of the NATS server"))},
		{ID: "bus-clock", check: withBus(func(f *Facts) verdict { return checkClock(f.NATS.Skew, "the NATS server") })},
		{ID: "nats-jetstream", check: withBus(checkJetStream)},
		{ID: "nats-permissions", check: withBus(checkNATSPermissions)},
		{ID: "nats-stream", check: withBus(checkStream)},
		{ID: "nats-stream-settings", check: withStream(checkStreamSettings)},
		{ID: "nats-stream-replicas", check: withBus(checkReplicas)},
		{ID: "nats-stream-limits", check: withStream(checkLimits)},
		{ID: "nats-max-payload", check: withBus(checkMaxPayload)},
		{ID: "nats-data-dir", check: checkDataDir},
	})
}

// ofSink sets the sink and the group of checks.
func ofSink(sink, group string, checks []Check) []Check {
	for i := range checks {
		checks[i].sink, checks[i].Group = sink, group
	}
	return checks
}

// withStream returns a check that is skipped without the stream.
func withStream(check func(*Facts) verdict) func(*Facts) verdict {
	return withBus(func(f *Facts) verdict {
		if f.NATS.Stream == nil {
			return skip("there is no stream to check")
		}
		return check(f)
	})
}

func checkJetStream(f *Facts) verdict {
	switch n := f.NATS; {
	case n.JetStream != nil:
		return fail("enable JetStream on the server and for the account", "%v", n.JetStream)
	case n.Account != nil && n.Account.Limits.MaxStreams > 0 && n.Account.Streams >= n.Account.Limits.MaxStreams && n.Stream == nil && n.StreamErr == nil:
		return fail("raise the account's stream limit, or remove a stream", "the account has %d streams and may have %d, so the stream cannot be created", n.Account.Streams, n.Account.Limits.MaxStreams)
	}
	return pass("JetStream is enabled")
}

func checkNATSPermissions(f *Facts) verdict {
	switch n := f.NATS; {
	case f.Settings.BuiltInServer():
		return skip("the built-in server grants its forwarder all permissions")
	case n.DeniedErr != nil:
		return skip("the server does not report the permissions of the user: %v; allow publish to $SYS.REQ.USER.INFO to check them", n.DeniedErr)
	case len(n.Denied) > 0:
		return fail("grant them to the user; docs/permissions.md has the complete list", "the NATS user lacks permissions: %s", names(n.Denied))
	}
	return pass("the NATS user has every permission that the forwarder needs")
}

func checkStream(f *Facts) verdict {
	name := f.Settings.NATS.Stream
	switch n := f.NATS; {
	case n.JetStream != nil:
		return skip("JetStream is not enabled")
	case n.StreamErr != nil:
		return fail("check the servers of the stream: nats stream info "+name, "%v", n.StreamErr)
	case n.Overlap != "":
		return fail("set KUBERELAY_NATS_STREAM="+n.Overlap+", or choose another KUBERELAY_NATS_SUBJECT_PREFIX",
			"the stream %s cannot be created, because the stream %s already has its subjects", name, n.Overlap)
	case n.Stream == nil && f.Settings.NATS.Replicas > 1 && !n.Clustered:
		return fail("set KUBERELAY_NATS_REPLICAS=1, or use a cluster of NATS servers",
			"the stream %s cannot be created with %d replicas, because the server is not in a cluster", name, f.Settings.NATS.Replicas)
	case n.Stream == nil && f.Pre:
		return pass("the stream %s does not exist yet; the forwarder creates it", name)
	case n.Stream == nil:
		return fail("check that the forwarder is running, and read its log; it creates the stream at its start", "the stream %s does not exist", name)
	}
	return pass("the stream %s has %d messages", name, f.NATS.Stream.State.Msgs)
}

func checkStreamSettings(f *Facts) verdict {
	switch {
	case f.NATS.Settings != nil && f.Settings.BuiltInServer():
		return warn("restart the forwarder, which updates the stream of its built-in server", "%v", f.NATS.Settings)
	case f.NATS.Settings != nil:
		return fail("run the command that the message names", "%v", f.NATS.Settings)
	}
	return pass("retention, history, and the other settings are right")
}

func checkReplicas(f *Facts) verdict {
	switch n := f.NATS; {
	case n.Stream == nil && (!f.Pre || n.JetStream != nil || n.StreamErr != nil):
		return skip("there is no stream to check")
	case n.Stream == nil:
		will := jetstream.StreamConfig{Name: f.Settings.NATS.Stream, Replicas: f.Settings.NATS.Replicas}
		if risks := nats.Risks(will, n.Clustered, false); len(risks) > 0 {
			return risk(risks, "set KUBERELAY_NATS_REPLICAS=3 before the forwarder creates the stream")
		}
		return pass("the forwarder creates the stream with %d replicas", will.Replicas)
	}
	replicas := f.NATS.Stream.Config.Replicas
	cluster := f.NATS.Stream.Cluster
	var behind []string
	if cluster != nil {
		for _, r := range cluster.Replicas {
			switch {
			case r.Offline:
				behind = append(behind, r.Name+" (offline)")
			case !r.Current:
				behind = append(behind, fmt.Sprintf("%s (%d operations behind)", r.Name, r.Lag))
			}
		}
	}
	switch {
	case len(behind) > 0:
		return warn("repair these servers; the stream is lost if too few remain", "replicas of the stream are not current: %s", names(behind))
	case replicas < 2:
		return risk(nats.Risks(f.NATS.Stream.Config, nats.Clustered(f.NATS.Stream), f.Settings.BuiltInServer()), "")
	}
	return pass("%d replicas are current", replicas)
}

// risk returns a warning for settings with which the bus can lose acknowledged events. It passes if the
// only cause is that the bus is a single server, because users choose that. If fix is set, it replaces
// the fix of the first risk.
func risk(all []publish.Risk, fix string) verdict {
	var sentences []string
	single := true
	for _, r := range all {
		sentences = append(sentences, r.String())
		single = single && r.Single
	}
	if single {
		return pass("the bus is not in a cluster: %s. %s", strings.Join(sentences, "; "), all[0].Fix)
	}
	return warn(cmp.Or(fix, all[0].Fix), "%s", strings.Join(sentences, "; "))
}

// full is the share of a limit above which a check warns.
const full = 0.9

func checkLimits(f *Facts) verdict {
	is, state := f.NATS.Stream.Config, f.NATS.Stream.State
	for _, l := range []struct {
		name, flag string
		is, most   int64
	}{
		{"max_bytes", "--max-bytes", int64(state.Bytes), is.MaxBytes}, //nolint:gosec // far below the limit of int64
		{"max_msgs", "--max-msgs", int64(state.Msgs), is.MaxMsgs},     //nolint:gosec // far below the limit of int64
	} {
		switch {
		case l.most <= 0:
		case l.is >= l.most:
			return fail("raise the limit: nats stream edit "+is.Name+" "+l.flag+"=…", "the stream is full: %d of %s=%d", l.is, l.name, l.most)
		case float64(l.is) > full*float64(l.most):
			return warn("raise the limit: nats stream edit "+is.Name+" "+l.flag+"=…", "the stream is nearly full: %d of %s=%d", l.is, l.name, l.most)
		}
	}
	return pass("the stream has %d MB in %d messages, below its limits", state.Bytes/1e6, state.Msgs)
}

// usual is the message size, in bytes, that nearly every object fits into. It is the default limit of NATS
// and of Kafka.
const usual = 1 << 20

func checkMaxPayload(f *Facts) verdict {
	most, name := f.NATS.MaxPayload, "max_payload"
	if s := f.NATS.Stream; s != nil && s.Config.MaxMsgSize > 0 && int64(s.Config.MaxMsgSize) < most {
		most, name = int64(s.Config.MaxMsgSize), "max_msg_size"
	}
	return checkMessageSize(f, most, name, "raise "+name+" on the NATS server")
}

// checkMessageSize compares the size limit for messages with the largest listed object.
func checkMessageSize(f *Facts, most int64, name, fix string) verdict {
	var largest List
	for _, l := range f.Lists {
		if l.Largest > largest.Largest {
			largest = l
		}
	}
	switch {
	case most <= 0:
		return skip("the bus does not report its message size limit")
	case largest.Largest > most:
		return warn(fix, "%s is %d bytes, and an object of %s has %d, so it is published without its content", name, most, largest.Resource, largest.Largest)
	case most < usual:
		return warn(fix, "%s is %d bytes; larger objects are published without their content", name, most)
	}
	return pass("messages can have up to %d bytes", most)
}

func checkDataDir(f *Facts) verdict {
	switch d := f.DataDir; {
	case !f.Settings.BuiltInServer():
		return skip("KUBERELAY_NATS_URL is set, so there is no built-in server")
	case d.Err != nil && f.Pre:
		return skip("this machine is not the pod of the forwarder, or the directory cannot be used: %v", d.Err)
	case d.Err != nil:
		return fail("correct the owner of the directory (podSecurityContext.fsGroup in the chart), or set KUBERELAY_DATA_DIR", "%s cannot be used: %v", d.Path, d.Err)
	case d.Free >= 0 && d.Free < usual<<6:
		return fail("free space on the volume", "the volume of %s has %d MB left", d.Path, d.Free/1e6)
	}
	return pass("%s can be written", f.DataDir.Path)
}

// storage returns how many bytes the stream may use, and the name of the limit. It returns 0 for no
// limit.
func storage(stream *jetstream.StreamInfo, account *jetstream.AccountInfo) (most int64, name string) {
	if stream != nil && stream.Config.MaxBytes > 0 {
		most, name = stream.Config.MaxBytes, "max_bytes of the stream"
	}
	if account == nil || account.Limits.MaxStore <= 0 {
		return most, name
	}
	left := account.Limits.MaxStore - int64(account.Store) //nolint:gosec // far below the limit
	if stream != nil {
		left += int64(stream.State.Bytes) //nolint:gosec // far below the limit of int64
	}
	if most == 0 || left < most {
		return left, "the storage that the account has left"
	}
	return most, name
}
