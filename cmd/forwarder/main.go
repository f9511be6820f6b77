// Forwarder keeps an exact, ordered, always current copy of Kubernetes resources on a message bus.
//
// Environment variables configure the forwarder (docs/configuration.md). "forwarder help environment"
// lists them. "forwarder help exit-codes" lists the exit codes.
//
// On SIGTERM or SIGINT, the forwarder publishes the remaining changes and stops. A second signal
// stops it at once, with exit code 1. Nothing is lost: the next start publishes the changes that
// the bus has not acknowledged.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/terminal"
)

const (
	exitFailure = 1
	// exitUsage is the exit code of a [config.Error]. Only a change of the command line or configuration
	// fixes such an error. The commands verify, check, and trace also exit with code 2 if they are
	// interrupted or have no result; see their help.
	exitUsage = 2
)

func main() {
	os.Exit(run(untilSignal(os.Exit), os.Args[1:], os.Stdout, os.Stderr))
}

// untilSignal returns a context that the first SIGTERM or SIGINT cancels. The second signal calls exit.
// Restoring the default action of the signal would not be enough, because the kernel ignores the
// default action for process 1 of a container.
func untilSignal(exit func(code int)) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	go func() { // runs until the process ends
		<-signals
		cancel()
		<-signals
		exit(exitFailure)
	}()
	return ctx
}

// run runs the command until it is done or ctx is canceled, and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return execute(ctx, newRootCommand(), args, stdout, stderr)
}

func execute(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	var code exitCode
	if errors.As(err, &code) {
		return int(code)
	}
	fmt.Fprintf(stderr, "forwarder: %s\n", strings.ReplaceAll(string(terminal.Escape([]byte(err.Error()))), "\n", "\n  "))
	if config.IsError(err) {
		return exitUsage
	}
	return exitFailure
}

// unlessStopped returns err, or nil if err only means that a signal stopped the command. Use it for
// commands that run until a signal. Every other command fails if a signal interrupts it.
func unlessStopped(ctx context.Context, err error) error {
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return nil
	}
	return err
}

// exitCode is an error that ends the process with a code. The command has already printed the reason.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// exit returns the error of a command that printed its result. code is the exit code of the result,
// and err is the error of printing it.
func exit(code int, err error) error {
	if err != nil || code == 0 {
		return err
	}
	return exitCode(code)
}

// The linker sets version and commit (Makefile). If they are empty, for example after go install,
// builtFrom uses the build information.
var version, commit string

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print version, commit, and platform",
		Args:  usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), versionLine())
			return err
		},
	}
}

func versionLine() string {
	v, c := builtFrom()
	return fmt.Sprintf("forwarder %s (commit %s, %s, %s/%s)", v, c, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// builtFrom returns the version and the commit of this binary.
func builtFrom() (v, c string) {
	v, c = version, commit
	if info, ok := debug.ReadBuildInfo(); ok {
		v = cmp.Or(v, info.Main.Version)
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				c = cmp.Or(c, s.Value)
			}
		}
	}
	return cmp.Or(v, "(devel)"), cmp.Or(c, "unknown")
}

// addGroup adds commands under a heading. --help lists the groups in the order of the calls.
func addGroup(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title + ":"})
	for _, c := range commands {
		c.GroupID = title
	}
	root.AddCommand(commands...)
}

// newTopics returns the topics of 'forwarder help'. A topic is a command that only has help.
func newTopics() []*cobra.Command {
	environment := &cobra.Command{Use: "environment", Short: "Every environment variable, with its default"}
	environment.SetHelpFunc(func(cmd *cobra.Command, _ []string) { writeVariables(cmd.OutOrStdout(), config.Fields()) })
	return []*cobra.Command{
		environment,
		{Use: "resource-names", Short: "How to write resources in variables and arguments", Long: resourcesTopic},
		{Use: "connecting", Short: "How commands find the cluster, the bus, and the forwarder", Long: connectingTopic},
		{Use: "exit-codes", Short: "What the exit code of each command means", Long: exitCodesTopic},
	}
}

// listTopics changes the usage text so that it lists the help topics by name.
func listTopics(root *cobra.Command) {
	plain := root.UsageFunc()
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		out := cmd.OutOrStderr()
		var text strings.Builder
		cmd.SetOut(&text)
		err := plain(cmd)
		cmd.SetOut(out)
		changes := []string{"Additional help topics:", "Topics of 'forwarder help':"}
		for _, topic := range cmd.Commands() {
			if topic.IsAdditionalHelpTopicCommand() {
				changes = append(changes, fmt.Sprintf("\n  %-*s ", topic.CommandPathPadding(), topic.CommandPath()), fmt.Sprintf("\n  %-*s ", topic.NamePadding(), topic.Name()))
			}
		}
		_, failed := io.WriteString(out, strings.NewReplacer(changes...).Replace(text.String()))
		return cmp.Or(err, failed)
	})
}

const resourcesTopic = `Write a resource as for kubectl. Separate several resources with commas.

  deploy, deployment, deployments   short name, singular, or plural, in any case
  deployments.apps                  with the group
  deployments.v1.apps               with the version and the group
  Widget.example.com                a Kind and its group
  *.apps                            all resources of a group
  *                                 all resources

KUBERELAY_RESOURCES selects the resources that the forwarder watches. A wildcard does not
select Secrets, Events, and Leases: to select them, name them. KUBERELAY_EXCLUDE_RESOURCES
takes the same forms and has precedence. If a name matches nothing yet, the forwarder
watches the resource as soon as the cluster serves it. KUBERELAY_NAMESPACES,
_NAMESPACE_SELECTOR, _LABEL_SELECTOR, _FIELD_SELECTOR, and _FILTER select objects.

'forwarder resources' shows what is watched, what is not, and why. 'get' and 'tail' read
only the bus. They ignore the version, and know only the short names of built-in
resources.`

const connectingTopic = `The cluster is that of $KUBECONFIG or ~/.kube/config, or, in a pod, the pod's own
cluster. The commands get, tail, forget, status, and bundle don't connect to a cluster.

KUBERELAY_SINK, and KUBERELAY_NATS_URL or KUBERELAY_KAFKA_BROKERS, name the bus. Its
credentials are in files. With NATS and without KUBERELAY_NATS_URL, the bus is the
built-in server of a forwarder on this machine, at KUBERELAY_NATS_LISTEN. The token of
that server is in KUBERELAY_DATA_DIR.

status, trace, check, and bundle ask the forwarder on this machine, at
KUBERELAY_LISTEN_ADDR. For status, trace, and bundle, --address names another forwarder:

  kubectl exec deploy/kuberelay -- /forwarder status
  forwarder status --address=kuberelay.kuberelay.svc:8080
  forwarder status --address=https://host:8080 --ca-file=ca.crt --token-file=token

Run verify, check, and trace with the environment of the forwarder. In the forwarder's
pod, they have it.`

const exitCodesTopic = `For every command, 0 is success. 2 is a wrong command line or configuration, which a
restart does not fix. A command that a signal interrupts exits as if it had failed,
except run and tail, which exit with 0. The other codes are:

  run        1 failed while running
  get        1 a named object, a resource, or a cluster is not on the bus, or the bus
             could not be read
  tail       1 the bus could not be read
  verify     1 differences, 2 not everything could be read
  resources  1 the API server did not respond
  status     1 warning, 2 critical or no response; with --output=nagios: 3 the
             forwarder refused to answer
  check      1 a warning, 2 a failure
  trace      1 the bus or the consumer lacks the current state, 2 unknown
  bundle     1 a part is missing
  forget     1 refused or failed
  schema     1 the resource is not served, or the API server did not respond`

const (
	indent = "      "
	width  = 80
)

func writeVariables(w io.Writer, fields []config.Field) {
	group := ""
	for _, f := range fields {
		if f.Group != group {
			group = f.Group
			fmt.Fprintf(w, "\n%s:\n", group)
			if f.Note != "" {
				writeWrapped(w, "  ", f.Note)
			}
		}
		fmt.Fprintf(w, "  %s (%s)\n", f.Name, summary(f))
		writeWrapped(w, indent, f.Description)
	}
	fmt.Fprint(w, `
The cluster is that of $KUBECONFIG or ~/.kube/config, or, in a pod, the pod's own
cluster. An empty variable counts as not set. An unknown variable is an error.
`)
}

// summary returns the type, range, and default of a variable in a few words.
func summary(f config.Field) string {
	parts := []string{f.Type}
	if f.Bounds != "" {
		parts = append(parts, f.Bounds)
	}
	switch {
	case f.Required:
		parts = append(parts, "required")
	case f.Default != "":
		parts = append(parts, "default "+f.Default)
	default:
		parts = append(parts, "default: "+f.Unset)
	}
	return strings.Join(parts, ", ")
}

func writeWrapped(w io.Writer, indent, text string) {
	line := indent
	for word := range strings.FieldsSeq(text) {
		if len(line)+len(word) > width && line != indent {
			fmt.Fprintln(w, strings.TrimRight(line, " "))
			line = indent
		}
		line += word + " "
	}
	fmt.Fprintln(w, strings.TrimRight(line, " "))
}
