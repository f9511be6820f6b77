package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// checkAddress takes what net.Listen takes, without names of ports.
func checkAddress(s string) error {
	_, port, err := net.SplitHostPort(s)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return errors.New("not an address; write host:port or :port, such as 127.0.0.1:4222 or :8080")
	}
	return nil
}

// checkFile never repeats the path, which could be a secret written in its place.
func checkFile(path string) error {
	content, err := os.ReadFile(path)
	var in *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("there is no such file; write the path of a file that holds the value, not the value itself")
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("the file cannot be read by user %d; change its owner or mode", os.Getuid())
	case errors.As(err, &in):
		return fmt.Errorf("the file cannot be read: %w", in.Err)
	case err != nil:
		return errors.New("the file cannot be read")
	case strings.TrimSpace(string(content)) == "":
		return errors.New("the file is empty; put the value into it")
	}
	return nil
}

var natsSchemes = []string{"nats", "tls", "ws", "wss"}

// checkURLs takes what nats.go can connect to, less credentials.
func checkURLs(list List) error {
	if strings.Contains(strings.Join(list, ","), "@") {
		return errors.New("it holds credentials; take out all from // to @, and name a file in " +
			"KUBERELAY_NATS_PASSWORD_FILE, KUBERELAY_NATS_TOKEN_FILE, KUBERELAY_NATS_CREDS_FILE or KUBERELAY_NATS_NKEY_FILE")
	}
	websockets := 0
	for _, s := range list {
		u, err := url.Parse(s)
		switch {
		case !strings.Contains(s, "://"):
			return errors.New("it has no scheme; write it as nats://host:4222")
		case err != nil || u.Hostname() == "" || strings.TrimSuffix(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" || !validPort(u.Port()):
			return errors.New("not a URL of a NATS server; write it as nats://host:4222, several with commas")
		case !slices.Contains(natsSchemes, u.Scheme):
			return errors.New("unknown scheme; use " + alternatives(natsSchemes))
		}
		if strings.HasPrefix(u.Scheme, "ws") {
			websockets++
		}
	}
	if websockets != 0 && websockets != len(list) {
		return errors.New("ws and wss cannot be mixed with nats and tls; use either for all servers")
	}
	return nil
}

func validPort(port string) bool {
	if port == "" {
		return true
	}
	_, err := strconv.ParseUint(port, 10, 16)
	return err == nil
}

var plainURL = regexp.MustCompile(`^([A-Za-z]+://)?[A-Za-z0-9.-]+(:[0-9]{1,5})?/?$`)

// maskURLs hides everything but the scheme of what is not plainly a list of
// servers. Commas do not limit what it hides, because a password may hold them.
func maskURLs(value string) string {
	plain := true
	for item := range strings.SplitSeq(value, ",") {
		plain = plain && plainURL.MatchString(strings.TrimSpace(item))
	}
	if plain {
		return value
	}
	if scheme, _, _ := strings.Cut(value, "://"); slices.Contains(natsSchemes, scheme) {
		return scheme + "://***"
	}
	return "***"
}

// checkSelector is about how a resource selector is written; what it comes to,
// the cluster's discovery decides.
//
//	selector = "*" | "*." group | name | name "." group | name "." version "." group
func checkSelector(s string) error {
	const forms = "; write it as pods, deployments.apps, deployments.v1.apps, *.apps or *"
	name, rest, dotted := strings.Cut(s, ".")
	switch {
	case strings.Contains(s, "/"):
		return errors.New("a subresource or an API path cannot be selected" + forms)
	case strings.ContainsAny(s, " \t\r\n"):
		return errors.New("there is a space in it; put commas between resources")
	case strings.Contains(name, "*") && name != "*" || strings.Contains(rest, "*"):
		return errors.New("* cannot stand for a part of a name" + forms)
	case slices.Contains(strings.Split(s, "."), ""):
		return errors.New("there is nothing before, after or between dots" + forms)
	case name != "*" && len(validation.IsDNS1123Label(strings.ToLower(name))) > 0:
		return fmt.Errorf("%q is not the name of a resource%s", name, forms)
	case rest == "core":
		return errors.New("the core group has no name; name its resources, such as pods,services")
	case dotted && len(validation.IsDNS1123Subdomain(rest)) > 0:
		return fmt.Errorf("%q is not the name of a group%s", rest, forms)
	}
	return nil
}
