package config

import (
	"net"
	"net/url"
	"slices"
	"strings"
)

// validateBuiltIn checks the settings of the built-in server. It rejects settings that the server
// ignores, and an address at which others can reach the server without credentials.
func (c *Config) validateBuiltIn(p *problems) {
	for _, v := range []struct{ name, value string }{
		{"KUBERELAY_NATS_CREDS_FILE", c.NATS.CredsFile},
		{"KUBERELAY_NATS_NKEY_FILE", c.NATS.NkeyFile},
		{"KUBERELAY_NATS_TLS_CERT_FILE", c.NATS.CertFile},
		{"KUBERELAY_NATS_TLS_KEY_FILE", c.NATS.KeyFile},
	} {
		if v.value != "" {
			p.add(v.name, "the built-in server takes a password or a token, and its certificate is in KUBERELAY_NATS_LISTEN_TLS_CERT_FILE; set KUBERELAY_NATS_URL as well, or unset this")
		}
	}
	if c.NATS.Domain != "" {
		p.add("KUBERELAY_NATS_JETSTREAM_DOMAIN", "the built-in server has no domain; set KUBERELAY_NATS_URL as well, or unset this")
	}
	if c.NATS.Replicas > 1 {
		p.add("KUBERELAY_NATS_REPLICAS", "the built-in server is a single server; set KUBERELAY_NATS_URL to a cluster of servers, or unset this")
	}
	if c.Server.DataDir == "" {
		p.add("KUBERELAY_DATA_DIR", "there is no home directory for the built-in server's files; set this to a directory")
	}
	const listen, anonymous = "KUBERELAY_NATS_LISTEN", "KUBERELAY_NATS_ALLOW_ANONYMOUS"
	p.checkTLS(tlsFiles{listen + "_TLS", "", c.Server.CertFile, c.Server.KeyFile})
	secret := c.NATS.secret()
	switch {
	case c.Server.AllowAnonymous && secret != "":
		p.add(anonymous, "%s is set as well; keep one of them", secret)
	case secret == "" && !isLoopback(c.Server.Listen) && !p.has(listen):
		p.add(listen, "anyone who reaches this address could read every object; set KUBERELAY_NATS_TOKEN_FILE, or KUBERELAY_NATS_USER and KUBERELAY_NATS_PASSWORD_FILE, "+
			"for subscribers, or listen on 127.0.0.1")
	}
}

// secret returns the variable of the password or token that a client sends to NATS, or "" if neither is
// set. With the other kinds of credentials, the client sends only a signature.
func (n *NATS) secret() string {
	switch {
	case n.PasswordFile != "":
		return "KUBERELAY_NATS_PASSWORD_FILE"
	case n.TokenFile != "":
		return "KUBERELAY_NATS_TOKEN_FILE"
	}
	return ""
}

const allowPlaintext = "or allow it with KUBERELAY_ALLOW_PLAINTEXT_CREDENTIALS=true"

// validatePlaintext rejects a password or a token that leaves this machine without TLS. It checks
// the configured addresses, not the addresses that a server announces.
func (c *Config) validatePlaintext(p *problems) {
	if c.Event.AllowPlaintext {
		return
	}
	const listen, urls, mechanism = "KUBERELAY_NATS_LISTEN", "KUBERELAY_NATS_URL", "KUBERELAY_KAFKA_SASL_MECHANISM"
	switch secret := c.NATS.secret(); {
	case c.Event.Sink == SinkKafka:
		switch m := c.Kafka.SASLMechanism; {
		case c.Kafka.TLS || !slices.ContainsFunc(c.Kafka.Brokers, isRemote) || p.has(mechanism) || p.has("KUBERELAY_KAFKA_BROKERS"):
		case m == "OAUTHBEARER":
			p.add(mechanism, "the token would cross the network in the clear; set KUBERELAY_KAFKA_TLS=true, %s", allowPlaintext)
		case m == "PLAIN":
			p.add(mechanism, "the password in KUBERELAY_KAFKA_PASSWORD_FILE would cross the network in the clear; set KUBERELAY_KAFKA_TLS=true, use SCRAM-SHA-512, %s", allowPlaintext)
		}
	case secret == "" || c.Event.Sink != SinkNATS:
	case c.BuiltInServer():
		if !isLoopback(c.Server.Listen) && c.Server.CertFile == "" && !p.has(listen) {
			p.add(listen, "subscribers would send the secret in %s over the network in the clear; set KUBERELAY_NATS_LISTEN_TLS_CERT_FILE and KUBERELAY_NATS_LISTEN_TLS_KEY_FILE, %s", secret, allowPlaintext)
		}
	case !p.has(urls) && c.NATS.CAFile+c.NATS.CertFile+c.NATS.ServerName == "" && slices.ContainsFunc(c.NATS.URLs, isPlaintextURL): // each of these settings makes the client require TLS
		p.add(urls, "the secret in %s would cross the network in the clear; use tls:// or wss://, set KUBERELAY_NATS_TLS_CA_FILE, which makes TLS mandatory, %s", secret, allowPlaintext)
	}
}

// isPlaintextURL reports whether a client connects to another machine without requiring TLS.
func isPlaintextURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.Scheme != "tls" && u.Scheme != "wss" && !isLoopbackHost(u.Hostname())
}

// isRemote reports whether a broker is on another machine. The port in its address is optional.
func isRemote(broker string) bool {
	host, _, err := net.SplitHostPort(broker)
	if err != nil {
		host = strings.Trim(broker, "[]")
	}
	return !isLoopbackHost(host)
}

func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && isLoopbackHost(host)
}

// isLoopbackHost reports whether a host is localhost or a loopback address. It does not resolve
// names, because the address of a name can change.
func isLoopbackHost(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}
