package check

import (
	"errors"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/publish/kafka"
	"github.com/kuberelay/kuberelay/internal/publish/nats"
)

// busChecks returns the checks that run for every sink.
func busChecks() []Check {
	const group = "bus"
	renew := "replace the file that the variable names"
	return []Check{
		{ID: "bus-reachable", Group: group, check: checkBus},
		{ID: "bus-accepts", Group: group, check: checkBusAccepts},
		{ID: BusToken, Group: group, check: validity(BusToken, "no credentials file with an expiry is set", "run nsc edit user with a later --expiry, then nsc generate creds with --output-file")},
		{ID: BusClient, Group: group, check: validity(BusClient, "no client certificate is set", renew)},
		{ID: BusAuthorities, Group: group, check: validity(BusAuthorities, "no file with authorities is set", renew)},
		{ID: ListenCertificate, Group: group, check: validity(ListenCertificate, "no server certificate is set", renew)},
	}
}

// busVariable names the variable of the bus's address.
func (f *Facts) busVariable() string {
	if f.Settings.Event.Sink == config.SinkKafka {
		return "KUBERELAY_KAFKA_BROKERS"
	}
	return "KUBERELAY_NATS_URL"
}

// isRefused reports whether err means that the bus or the client rejected the configuration.
func isRefused(err error) bool {
	return errors.Is(err, nats.ErrMisconfigured) || errors.Is(err, kafka.ErrMisconfigured)
}

func checkBus(f *Facts) verdict {
	switch {
	case f.Settings.Event.Sink == config.SinkStdout:
		return skip("KUBERELAY_SINK is stdout")
	case f.Settings.BuiltInServer() && f.Pre:
		return skip("the built-in server starts with the forwarder")
	case f.BusErr == nil && f.Settings.Event.Sink == config.SinkNATS:
		return pass("the NATS server responds, version %s", f.NATS.Version)
	case f.BusErr == nil, isRefused(f.BusErr):
		return pass("the bus responds")
	case f.Settings.BuiltInServer():
		return fail("check that the forwarder is running, and check KUBERELAY_NATS_LISTEN", "the built-in server does not respond: %v", f.BusErr)
	}
	return fail("check that it is running; check "+f.busVariable()+", the network, and networkPolicy.busTo", "the bus does not respond: %v", f.BusErr)
}

func checkBusAccepts(f *Facts) verdict {
	if f.BusErr != nil && isRefused(f.BusErr) {
		return fail("correct the credentials, the certificate, or the setting that the message names", "%v", f.BusErr)
	}
	return withBus(func(*Facts) verdict { return pass("the bus accepts the credentials") })(f)
}
