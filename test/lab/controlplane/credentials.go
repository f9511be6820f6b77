package controlplane

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/csv"
	"encoding/pem"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// admin is the user of [ControlPlane.Config] and [ControlPlane.Kubeconfig].
const admin = "admin"

// writeTokens generates a token for every user and writes the API server's token file.
func writeTokens(file string, users map[string][]string) (tokens map[string]string, err error) {
	var text bytes.Buffer
	lines := csv.NewWriter(&text)
	tokens = make(map[string]string)
	for user, groups := range users {
		tokens[user] = rand.Text()
		if err := lines.Write([]string{tokens[user], user, user, strings.Join(groups, ",")}); err != nil {
			return nil, err
		}
	}
	if lines.Flush(); lines.Error() != nil {
		return nil, lines.Error()
	}
	return tokens, os.WriteFile(file, text.Bytes(), 0o600)
}

// writeServiceAccountKey generates the key that signs and verifies the tokens of service accounts.
func writeServiceAccountKey(file string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

// Config returns the client configuration of a cluster administrator, without a rate limit. The caller
// may modify it.
func (cp *ControlPlane) Config() *rest.Config { return cp.ConfigFor(admin) }

// ConfigFor is Config for a user in Options.Users. It panics for an unknown user.
func (cp *ControlPlane) ConfigFor(user string) *rest.Config {
	return &rest.Config{
		Host:            "https://" + cp.Address(),
		BearerToken:     cp.token(user),
		TLSClientConfig: rest.TLSClientConfig{CAData: bytes.Clone(cp.ca)},
		QPS:             -1,
	}
}

// Kubeconfig returns the path of a cluster administrator's kubeconfig file. Only the current user can
// read the file. It is removed with the control plane.
func (cp *ControlPlane) Kubeconfig() string { return cp.KubeconfigFor(admin) }

// KubeconfigFor is Kubeconfig for a user in Options.Users. It panics for an unknown user.
func (cp *ControlPlane) KubeconfigFor(user string) string {
	cp.token(user)
	return filepath.Join(cp.dir, url.PathEscape(user)+".kubeconfig")
}

func (cp *ControlPlane) token(user string) string {
	token, ok := cp.tokens[user]
	if !ok {
		panic(fmt.Sprintf("controlplane: user %q is not in Options.Users", user))
	}
	return token
}

// writeKubeconfigs writes a kubeconfig file for every user.
func (cp *ControlPlane) writeKubeconfigs() error {
	for user, token := range cp.tokens {
		const name = "kuberelay"
		config := clientcmdapi.NewConfig()
		config.Clusters[name] = &clientcmdapi.Cluster{Server: "https://" + cp.Address(), CertificateAuthorityData: cp.ca}
		config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token}
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: user}
		config.CurrentContext = name
		if err := clientcmd.WriteToFile(*config, cp.KubeconfigFor(user)); err != nil {
			return fmt.Errorf("write kubeconfig: %w", err)
		}
	}
	return nil
}
