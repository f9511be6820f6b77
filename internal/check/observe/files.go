package observe

import (
	"cmp"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nkeys"
	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/internal/check"
	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/credential"
)

// credentials returns the validity of each credential in a kubeconfig, by the id of the check that
// judges it. Call it before the token is removed from the kubeconfig.
func credentials(rc *rest.Config) map[string][]check.Validity {
	all := map[string][]check.Validity{}
	const what = "the client certificate in the kubeconfig"
	switch {
	case rc.CertFile != "":
		all[check.ClientCertificate] = file(what, rc.CertFile)
	case len(rc.CertData) > 0:
		all[check.ClientCertificate] = certificates(what, rc.CertData)
	}
	token := rc.BearerToken
	if rc.BearerTokenFile != "" {
		var err error
		if token, err = credential.Secret(rc.BearerTokenFile); err != nil {
			all[check.ServerToken] = []check.Validity{{What: "the token of the API server", Err: err}}
			return all
		}
	}
	if v, ok := jwt("the token of the API server", token); ok {
		all[check.ServerToken] = []check.Validity{v}
	}
	return all
}

// files adds the validity of each certificate and token in the configured files.
func files(c config.Config, to map[string][]check.Validity) {
	add := func(id, variable, path string) {
		if path != "" {
			to[id] = append(to[id], file(variable, path)...)
		}
	}
	switch c.Event.Sink {
	case config.SinkKafka:
		add(check.BusClient, "KUBERELAY_KAFKA_TLS_CERT_FILE", c.Kafka.CertFile)
		add(check.BusAuthorities, "KUBERELAY_KAFKA_TLS_CA_FILE", c.Kafka.CAFile)
	case config.SinkNATS:
		add(check.BusClient, "KUBERELAY_NATS_TLS_CERT_FILE", c.NATS.CertFile)
		add(check.BusAuthorities, "KUBERELAY_NATS_TLS_CA_FILE", c.NATS.CAFile)
		add(check.ListenCertificate, "KUBERELAY_NATS_LISTEN_TLS_CERT_FILE", c.Server.CertFile)
		if c.NATS.CredsFile != "" {
			to[check.BusToken] = creds("KUBERELAY_NATS_CREDS_FILE", c.NATS.CredsFile)
		}
	}
	add(check.ListenCertificate, "KUBERELAY_LISTEN_TLS_CERT_FILE", c.Operations.CertFile)
}

func file(what, path string) []check.Validity {
	content, err := os.ReadFile(path)
	if err != nil {
		return []check.Validity{{What: what, Err: err}}
	}
	return certificates(what, content)
}

// certificates returns the validity of each PEM certificate in content.
func certificates(what string, content []byte) (all []check.Validity) {
	for {
		var block *pem.Block
		if block, content = pem.Decode(content); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		v := check.Validity{What: what}
		is, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			v.Err = err
		} else {
			v.From, v.Until = is.NotBefore, is.NotAfter
		}
		all = append(all, v)
	}
	if len(all) == 0 {
		all = []check.Validity{{What: what, Err: errors.New("it contains no PEM certificate")}}
	}
	return all
}

// creds reads the user JWT of a credentials file.
func creds(what, path string) []check.Validity {
	content, err := os.ReadFile(path)
	if err != nil {
		return []check.Validity{{What: what, Err: err}}
	}
	defer clear(content)
	token, err := nkeys.ParseDecoratedJWT(content)
	if err != nil {
		return []check.Validity{{What: what, Err: errors.New("it contains no user JWT")}}
	}
	if v, ok := jwt(what, token); ok {
		return []check.Validity{v}
	}
	return nil
}

// jwt returns the validity of a JSON Web Token (RFC 7519), and false if it has none. It does not verify the
// token, and never quotes it.
func jwt(what, token string) (v check.Validity, ok bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return v, false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return v, false
	}
	var claims struct {
		Expires   float64 `json:"exp"`
		NotBefore float64 `json:"nbf"`
		Issued    float64 `json:"iat"`
	}
	if json.Unmarshal(payload, &claims) != nil || claims.Expires == 0 {
		return v, false
	}
	from := cmp.Or(claims.NotBefore, claims.Issued)
	return check.Validity{What: what, From: time.Unix(int64(from), 0), Until: time.Unix(int64(claims.Expires), 0)}, true
}
