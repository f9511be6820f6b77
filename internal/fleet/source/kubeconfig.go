package source

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kuberelay/kuberelay/internal/config"
)

// contexts returns a cluster for each selected context of KUBECONFIG.
func (c Config) contexts() ([]Cluster, error) {
	all, err := clientcmd.NewDefaultClientConfigLoadingRules().Load()
	if err != nil {
		return nil, errors.New("read KUBECONFIG: a file cannot be read, or is not a kubeconfig")
	}
	if len(all.Contexts) == 0 {
		return nil, errors.New("KUBECONFIG has no context; check that its files exist")
	}
	entries := []string(c.Settings.Contexts)
	if slices.Equal(entries, []string{"*"}) {
		entries = nil
		for name := range all.Contexts {
			entries = append(entries, name+"="+name)
		}
	}
	var found []Cluster
	for _, entry := range entries {
		name, context := config.NamedContext(entry)
		if all.Contexts[context] == nil {
			found = append(found, Cluster{Name: name, Err: fmt.Errorf("KUBECONFIG has no context %q", context)})
			continue
		}
		only := *all
		only.CurrentContext = context
		found = append(found, c.cluster(name, &only))
	}
	return found, nil
}

// paths returns the paths of everything in the directory.
func (c Config) paths() (all []string) {
	entries, _ := os.ReadDir(c.Settings.Dir) // directory returns the error
	for _, e := range entries {
		all = append(all, filepath.Join(c.Settings.Dir, e.Name()))
	}
	return all
}

// directory returns a cluster for each file of the directory.
func (c Config) directory() ([]Cluster, error) {
	entries, err := os.ReadDir(c.Settings.Dir)
	if err != nil {
		return nil, fmt.Errorf("read KUBERELAY_KUBECONFIG_DIR: %w", err)
	}
	var found []Cluster
	for _, e := range entries {
		path := filepath.Join(c.Settings.Dir, e.Name())
		if info, err := os.Stat(path); strings.HasPrefix(e.Name(), ".") || err == nil && info.IsDir() {
			continue // the directories of a mounted volume, and files that an editor hides
		}
		name := strings.TrimSuffix(e.Name(), filepath.Ext(e.Name()))
		raw, err := os.ReadFile(path)
		if _, gone := os.Lstat(path); errors.Is(gone, os.ErrNotExist) {
			continue // the file was deleted in the meantime
		}
		if err != nil { // also if the file is a link to nothing
			found = append(found, Cluster{Name: name, Err: err})
			continue
		}
		kubeconfig, err := parse(raw)
		if err != nil {
			found = append(found, Cluster{Name: name, Err: fmt.Errorf("%s: %w", path, err)})
			continue
		}
		for _, info := range kubeconfig.AuthInfos {
			info.LocationOfOrigin = path
		}
		for _, info := range kubeconfig.Clusters {
			info.LocationOfOrigin = path
		}
		if err := clientcmd.ResolveLocalPaths(kubeconfig); err != nil {
			found = append(found, Cluster{Name: name, Err: fmt.Errorf("%s: %w", path, err)})
			continue
		}
		found = append(found, c.cluster(name, kubeconfig))
	}
	return found, nil
}

// parse parses a kubeconfig. Its errors contain none of the content.
func parse(raw []byte) (*clientcmdapi.Config, error) {
	kubeconfig, err := clientcmd.Load(raw)
	if err != nil || len(kubeconfig.Clusters) == 0 {
		return nil, errors.New("not a kubeconfig")
	}
	return kubeconfig, nil
}

// cluster returns the cluster of the current context.
func (c Config) cluster(name string, kubeconfig *clientcmdapi.Config) Cluster {
	fail := func(err error) Cluster {
		if strings.Contains(err.Error(), "proxy-url") { // client-go quotes it, with its password
			err = errors.New("proxy-url in the kubeconfig is not a valid URL: correct it, and percent-encode special characters in the password")
		}
		return Cluster{Name: name, Err: err}
	}
	if kubeconfig.CurrentContext == "" && len(kubeconfig.Contexts) == 1 {
		for only := range kubeconfig.Contexts {
			kubeconfig.CurrentContext = only
		}
	}
	if err := clientcmdapi.MinifyConfig(kubeconfig); err != nil {
		return fail(errors.New("the kubeconfig has no usable current context"))
	}
	kubeconfig = kubeconfig.DeepCopy() // client-go changes it, and contexts can share a user
	raw, err := clientcmd.Write(*kubeconfig)
	if err != nil {
		return fail(err)
	}
	loader := clientcmd.NewDefaultClientConfig(*kubeconfig, &clientcmd.ConfigOverrides{})
	kube, err := loader.ClientConfig()
	if err != nil {
		return fail(err)
	}
	if err := c.Complete(kube); err != nil {
		return fail(err)
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return fail(err)
	}
	return Cluster{Name: name, Kube: kube, Namespace: namespace, Digest: sha256.Sum256(raw)}
}

// isolated returns an error if the kubeconfig uses a credential plugin or names a file on this machine.
func isolated(kubeconfig *clientcmdapi.Config) error {
	for _, a := range kubeconfig.AuthInfos {
		switch {
		case a.Exec != nil || a.AuthProvider != nil:
			return errors.New("its kubeconfig uses a credential plugin, which is not allowed in a Secret; use a token or a client certificate")
		case a.TokenFile != "" || a.ClientCertificate != "" || a.ClientKey != "":
			return errors.New("its kubeconfig names a file with credentials, which is not allowed in a Secret; put the credentials into the kubeconfig")
		}
	}
	for _, of := range kubeconfig.Clusters {
		if of.CertificateAuthority != "" {
			return errors.New("its kubeconfig names a file in certificate-authority, which is not allowed in a Secret; use certificate-authority-data")
		}
	}
	return nil
}
