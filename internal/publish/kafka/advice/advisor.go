package advice

import "strings"

// Advisor knows the cluster and the user that the advice is for.
type Advisor struct {
	Brokers   []string
	Secured   bool          // the brokers require TLS or credentials
	IAM       bool          // permissions are granted in IAM policies, not as ACLs
	Principal func() string // the user that the brokers see, as far as the client can tell
}

// tool returns the start of a command line for one of Kafka's tools. The command line contains
// no credentials, only the name of the administrator's properties file.
func (a *Advisor) tool(name string) string {
	command := name + " --bootstrap-server " + strings.Join(a.Brokers, ",")
	if a.Secured {
		command += " --command-config admin.properties"
	}
	return command
}

// quote quotes a word for the shell if necessary.
func quote(word string) string {
	if strings.ContainsFunc(word, func(r rune) bool { return !isPlain(r) }) || word == "" {
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return word
}

func isPlain(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("._-/:=,@+", r)
}
