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
			return fmt.Errorf("unknown scheme %s; use %s", u.Scheme, alternatives(natsSchemes))
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
// servers. A password may hold commas, so with an @ anywhere the value is one.
func maskURLs(value string) string {
	items := []string{value}
	if !strings.Contains(value, "@") {
		items = strings.Split(value, ",")
	}
	for i, s := range items {
		s = strings.TrimSpace(s)
		if !plainURL.MatchString(s) {
			scheme, _, _ := strings.Cut(s, "://")
			s = "***"
			if slices.Contains(natsSchemes, scheme) {
				s = scheme + "://***"
			}
		}
		items[i] = s
	}
	return strings.Join(items, ",")
}

// checkSelector is about how a resource selector is written; what it comes to,
// the cluster's discovery decides.
//
//	selector = "*" | "*." group | name | name "." group | name "." version "." group
func checkSelector(s string) error {
	const forms = "write it as pods, deployments.apps, deployments.v1.apps, *.apps or *"
	name, rest, dotted := strings.Cut(s, ".")
	switch {
	case strings.Contains(s, "/"):
		return fmt.Errorf("%q: a subresource or API path cannot be selected; %s", s, forms)
	case strings.ContainsAny(s, " \t\r\n"):
		return fmt.Errorf("%q: there is a space in it; put commas between resources", s)
	case strings.Contains(name, "*") && name != "*" || strings.Contains(rest, "*"):
		return fmt.Errorf("%q: * cannot stand for a part of a name; %s", s, forms)
	case name != "*" && len(validation.IsDNS1123Label(strings.ToLower(name))) > 0:
		return fmt.Errorf("%q: %q is not the name of a resource; %s", s, name, forms)
	case rest == "core":
		return fmt.Errorf("%q: the core group has no name; name its resources, such as pods,services", s)
	case dotted && len(validation.IsDNS1123Subdomain(rest)) > 0:
		return fmt.Errorf("%q: %q is not the name of a group; %s", s, rest, forms)
	}
	return nil
}
