package config

import (
	"errors"
	"net/url"
	"regexp"
	"strings"
)

var plainEndpoint = regexp.MustCompile(`^[A-Za-z]+://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~/-]*)?$`)

// checkEndpoint accepts an HTTPS URL without credentials. It accepts HTTP only for this machine,
// because the client secret is sent to the endpoint.
func checkEndpoint(s string) error {
	u, err := url.Parse(s)
	switch {
	case strings.Contains(s, "@"):
		return errors.New("it contains credentials; remove them and the @ that follows, and use KUBERELAY_KAFKA_OAUTH_CLIENT_ID and KUBERELAY_KAFKA_OAUTH_CLIENT_SECRET_FILE")
	case err != nil || u.Hostname() == "" || u.Fragment != "" || !validPort(u.Port()):
		return errors.New("not a URL; write it as https://host/path")
	case u.Scheme == "https", u.Scheme == "http" && isLoopbackHost(u.Hostname()):
		return nil
	}
	return errors.New("the client secret would cross the network in the clear; use https")
}

// maskEndpoint hides a value that is not plainly a URL.
func maskEndpoint(value string) string {
	if plainEndpoint.MatchString(value) {
		return value
	}
	return "***"
}

func (k *Kafka) validateOAuth(p *problems) {
	const (
		mechanism, file, endpoint = "KUBERELAY_KAFKA_SASL_MECHANISM", "KUBERELAY_KAFKA_OAUTH_TOKEN_FILE", "KUBERELAY_KAFKA_OAUTH_TOKEN_URL"
		id, secret                = "KUBERELAY_KAFKA_OAUTH_CLIENT_ID", "KUBERELAY_KAFKA_OAUTH_CLIENT_SECRET_FILE"
	)
	of := []struct{ name, value string }{
		{file, k.TokenFile}, {endpoint, k.TokenURL}, {id, k.ClientID}, {secret, k.SecretFile},
		{"KUBERELAY_KAFKA_OAUTH_SCOPES", strings.Join(k.Scopes, ",")}, {"KUBERELAY_KAFKA_OAUTH_AUDIENCE", k.Audience}, {"KUBERELAY_KAFKA_OAUTH_CA_FILE", k.OAuthCAFile},
	}
	bearer := k.SASLMechanism == "OAUTHBEARER"
	for _, v := range of {
		switch {
		case v.value == "" || p.has(v.name) || p.has(mechanism):
		case !bearer:
			p.add(v.name, "it has no effect without %s=OAUTHBEARER; set that as well, or unset this", mechanism)
		case v.name != file && v.name != endpoint && k.TokenURL == "" && !p.has(endpoint):
			p.add(v.name, "it has no effect without %s; set that as well, or unset this", endpoint)
		}
	}
	if !bearer || p.has(file) || p.has(endpoint) || p.has(id) || p.has(secret) {
		return
	}
	switch {
	case k.TokenFile != "" && k.TokenURL != "":
		p.add(file, "the token comes from %s too; unset one of them", endpoint)
	case k.TokenFile == "" && k.TokenURL == "":
		p.add(mechanism, "it needs a token; name a file in %s, or set %s, %s, and %s", file, endpoint, id, secret)
	case k.TokenURL != "" && k.ClientID == "":
		p.add(endpoint, "it needs a client; set %s and %s", id, secret)
	case k.TokenURL != "" && k.SecretFile == "":
		p.add(id, "a client needs a secret; name the file that holds it in %s", secret)
	}
}
