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

	"github.com/kuberelay/kuberelay/internal/selector"
)

// checkAddress accepts the addresses that net.Listen accepts, except addresses with port names.
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

// checkFile checks a file that holds a value. Its errors never show the path, because the user might
// have written the secret itself in place of the path.
func checkFile(path string) error {
	content, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("there is no such file; write the path of a file that holds the value, not the value itself")
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("the file cannot be read by user %d; change its owner or mode", os.Getuid())
	case err != nil:
		return fmt.Errorf("the file cannot be read: %w", withoutPath(err))
	case strings.TrimSpace(string(content)) == "":
		return errors.New("the file is empty; put the value into it")
	}
	return nil
}

var natsSchemes = []string{"nats", "tls", "ws", "wss"}

// checkURLs accepts URLs to which nats.go can connect, if they contain no credentials.
func checkURLs(list List) error {
	if strings.Contains(strings.Join(list, ","), "@") {
		return errors.New("it contains credentials; remove them and the @ that follows, and name a file in " +
			"KUBERELAY_NATS_PASSWORD_FILE, KUBERELAY_NATS_TOKEN_FILE, KUBERELAY_NATS_CREDS_FILE, or KUBERELAY_NATS_NKEY_FILE")
	}
	websockets := 0
	for _, s := range list {
		u, err := url.Parse(s)
		switch {
		case !strings.Contains(s, "://"):
			return errors.New("it has no scheme; write it as nats://host:4222")
		case err != nil || u.Hostname() == "" || strings.TrimSuffix(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" || !validPort(u.Port()):
			return errors.New("it contains an invalid URL; write each NATS server as nats://host:4222, and separate servers with commas")
		case !slices.Contains(natsSchemes, u.Scheme):
			return errors.New("unknown scheme; use " + Alternatives(natsSchemes))
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

// maskURLs hides everything except the scheme, unless the value is plainly a list of servers. It
// hides text after a comma too, because a password can contain commas.
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

// checkSelector checks the syntax of a resource selector. Discovery determines the selected
// resources.
func checkSelector(text string) error {
	s, err := selector.Parse(text)
	if err == nil && s.Grouped && s.Group == "" {
		return errors.New("the core group has no name; name its resources, such as pods,services")
	}
	return err
}
