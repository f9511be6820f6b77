package normal

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/kuberelay/kuberelay/internal/verify/wire"
)

const (
	hashPrefix  = "hmac-sha256:"
	withoutKey  = hashPrefix + "?"
	notRedacted = "not redacted"
)

// readable lists the labels and annotations of a Secret that stay readable in events
// (docs/events.md, section Redaction).
var readable = strings.Fields(`
	addonmanager.kubernetes.io/mode
	app.kubernetes.io/component app.kubernetes.io/created-by app.kubernetes.io/instance app.kubernetes.io/managed-by
	app.kubernetes.io/name app.kubernetes.io/part-of app.kubernetes.io/version
	argocd.argoproj.io/instance argocd.argoproj.io/secret-type
	cert-manager.io/alt-names cert-manager.io/certificate-name cert-manager.io/common-name cert-manager.io/ip-sans
	cert-manager.io/issuer-group cert-manager.io/issuer-kind cert-manager.io/issuer-name cert-manager.io/uri-sans
	cluster.x-k8s.io/cluster-name controller.cert-manager.io/fao
	helm.sh/chart helm.sh/hook helm.sh/resource-policy
	helm.toolkit.fluxcd.io/name helm.toolkit.fluxcd.io/namespace
	kubernetes.io/legacy-token-invalid-since kubernetes.io/legacy-token-last-used
	kubernetes.io/service-account.name kubernetes.io/service-account.uid
	kustomize.toolkit.fluxcd.io/name kustomize.toolkit.fluxcd.io/namespace
	meta.helm.sh/release-name meta.helm.sh/release-namespace
	reconcile.external-secrets.io/managed sealedsecrets.bitnami.com/sealed-secrets-key
	strimzi.io/cluster strimzi.io/kind strimzi.io/name
`)

// object is the identity of an object without its UID. The hash of a value includes it.
type object struct{ group, resource, namespace, name string }

// objectAt returns the identity of an object. resource is "plural.group".
func objectAt(resource string, t tree) object {
	o := object{}
	o.resource, o.group, _ = strings.Cut(resource, ".")
	metadata, _ := t["metadata"].(tree)
	o.namespace, _ = metadata["namespace"].(string)
	o.name, _ = metadata["name"].(string)
	return o
}

// IsSecret reports whether a resource, given as "plural.group", is the core resource secrets.
func IsSecret(resource string) bool { return resource == "secrets" }

// AsSelected returns an object of the cluster as a filter sees it. For a Secret, the result is a
// copy with hashes in data and stringData. For any other object, the result is the object itself.
func (f Form) AsSelected(resource string, t wire.Tree) wire.Tree {
	if !IsSecret(resource) {
		return t
	}
	o := objectAt(resource, t)
	t = maps.Clone(t)
	for _, section := range []string{"data", "stringData"} {
		fields, _ := t[section].(tree)
		if fields = maps.Clone(fields); fields == nil {
			continue
		}
		for name, v := range fields {
			h := f.hash(o, []string{section, name}, v)
			if section == "data" {
				h = base64.StdEncoding.EncodeToString([]byte(h))
			}
			fields[name] = h
		}
		t[section] = fields
	}
	return t
}

// secretOfCluster converts the values, labels, and annotations of a Secret in the cluster to the
// form that OfBus gives them in an event.
func (f Form) secretOfCluster(o object, t tree) {
	for _, section := range []string{"data", "stringData"} {
		fields, _ := t[section].(tree)
		for name, v := range fields {
			fields[name] = f.hash(o, []string{section, name}, v)
		}
	}
	metadata, _ := t["metadata"].(tree)
	for _, section := range []string{"labels", "annotations"} {
		fields, _ := metadata[section].(tree)
		for name, v := range maps.Clone(fields) {
			if !slices.Contains(readable, name) {
				delete(fields, name)
				fields[f.hash(o, []string{"metadata", section}, name)] = f.hash(o, []string{"metadata", section, name}, v)
			}
		}
	}
}

// secretOfBus decodes the base64 in data, and marks each value in a Secret's event that should be a
// hash but isn't. It reports whether it marked any value.
func secretOfBus(t tree) (plain bool) {
	for _, section := range []string{"data", "stringData"} {
		fields, _ := t[section].(tree)
		for name, v := range fields {
			s, _ := v.(string)
			if section == "data" {
				decoded, _ := base64.StdEncoding.DecodeString(s)
				s = string(decoded)
			}
			if !isHash(s) {
				s, plain = notRedacted, true
			}
			fields[name] = s
		}
	}
	metadata, _ := t["metadata"].(tree)
	for _, section := range []string{"labels", "annotations"} {
		fields, _ := metadata[section].(tree)
		for name, v := range fields {
			s, _ := v.(string)
			if !slices.Contains(readable, name) && (!isHash(name) || v != nil && !isHash(s)) { // v is nil for a name that a patch removes
				fields[name], plain = notRedacted, true
			}
		}
	}
	return plain
}

// hash returns the hash that the bus must have for a value in the cluster, or a fixed text if the
// key is unknown.
func (f Form) hash(o object, path []string, v any) string {
	if f.Key == nil {
		return withoutKey
	}
	kind := "text"
	s, ok := v.(string)
	if !ok {
		kind = "json"
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		_ = e.Encode(v) // a tree has only values that JSON can represent
		s = strings.TrimRight(b.String(), "\n")
	}
	of := f.mac(f.Key, []string{"cluster", f.Cluster})
	return hashPrefix + hex.EncodeToString(f.mac(of, []string{o.group, o.resource, o.namespace, o.name}, path, []string{kind, s}))
}

// mac returns the HMAC of lists of strings.
func (Form) mac(key []byte, lists ...[]string) []byte {
	h := hmac.New(sha256.New, key)
	for _, list := range lists {
		writeLength(h, len(list))
		for _, s := range list {
			writeString(h, s)
		}
	}
	return h.Sum(nil)
}

func isHash(s string) bool {
	digits, ok := strings.CutPrefix(s, hashPrefix)
	_, err := hex.DecodeString(digits)
	return ok && err == nil && len(digits) == 2*sha256.Size
}

// forget replaces every hash in a value with the same text, for a comparison without the key.
// Fields whose names are hashes become one field. If one of their values is not a hash, the field
// has that value.
func forget(v any) any {
	switch v := v.(type) {
	case string:
		if isHash(v) {
			return withoutKey
		}
	case []any:
		for i, e := range v {
			v[i] = forget(e)
		}
	case tree:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			e := forget(v[name])
			if isHash(name) {
				delete(v, name)
				name = withoutKey
			}
			if had, ok := v[name]; !ok || name != withoutKey || had == withoutKey {
				v[name] = e
			}
		}
	}
	return v
}
