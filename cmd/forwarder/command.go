package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	"k8s.io/klog/v2"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/filter"
	"github.com/kuberelay/kuberelay/internal/loglimit"
	"github.com/kuberelay/kuberelay/internal/longwork"
	"github.com/kuberelay/kuberelay/internal/longwork/bar"
	"github.com/kuberelay/kuberelay/internal/projection"
	"github.com/kuberelay/kuberelay/internal/selector"
	"github.com/kuberelay/kuberelay/internal/terminal"
)

func newRootCommand() *cobra.Command {
	runCommand := newRunCommand()
	root := &cobra.Command{
		Use:   "forwarder",
		Short: "Keep an exact, always current copy of Kubernetes resources on a message bus",
		Long: `Forwarder watches Kubernetes resources and keeps an exact, ordered, always current copy
of them on a message bus, NATS JetStream or Kafka, as CloudEvents.

Without a command, forwarder does the same as 'forwarder run'. Environment variables
configure it. To try it: KUBERELAY_RESOURCES=pods forwarder`,
		Args:          usage(noCommand),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	// The version flag and listTopics don't use cobra's templates. Templates need text/template, which
	// calls methods by name, so the linker would keep every exported method, and the binary would be a
	// fourth larger.
	version := root.Flags().BoolP("version", "v", false, "the same as the command version")
	root.Flags().Lookup("version").Hidden = true // the help lists the command
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if *version {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), versionLine())
			return err
		}
		return runCommand.RunE(cmd, args)
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &config.Error{Err: fmt.Errorf("%w%s; see '%s --help'", err, similarFlag(cmd, err), cmd.CommandPath())}
	})
	addGroup(root, "Forward", runCommand, newConfigCommand(), newResourcesCommand(), newSchemaCommand())
	addGroup(root, "Read the bus", newGetCommand(), newTailCommand(), newVerifyCommand())
	addGroup(root, "Operate", newStatusCommand(), newTraceCommand(), newCheckCommand(), newBundleCommand(), newForgetCommand())
	addGroup(root, "Other", newVersionCommand())
	root.SetHelpCommandGroupID("Other")
	root.SetCompletionCommandGroupID("Other")
	root.AddCommand(newTopics()...)
	listTopics(root)
	return root
}

// similarFlag suggests a flag in place of a mistyped one. It returns "" if no flag is similar.
func similarFlag(cmd *cobra.Command, err error) string {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return ""
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if name := selector.Similar(unknown.GetSpecifiedName(), names); name != "" {
		return "; did you mean --" + name + "?"
	}
	return ""
}

// noCommand returns an error for an argument that is not a command. The error suggests similar
// commands.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	hint := ""
	if names := cmd.SuggestionsFor(args[0]); len(names) > 0 {
		hint = fmt.Sprintf("; did you mean %s?", strings.Join(names, " or "))
	}
	return fmt.Errorf("unknown command %q for %q%s", args[0], cmd.CommandPath(), hint)
}

// usage wraps an argument check so that its error is a [config.Error].
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return &config.Error{Err: fmt.Errorf("%w; see '%s --help'", err, cmd.CommandPath())}
		}
		return nil
	}
}

// loadConfig reads the configuration from the environment. Its error names the command that lists the
// variables.
func loadConfig(need config.Need) (config.Config, error) {
	cfg, err := config.Load(need, contentChecks()...)
	if err != nil {
		return config.Config{}, &config.Error{Err: fmt.Errorf("invalid configuration:\n%w\n'forwarder help environment' lists every variable", err)}
	}
	return cfg, nil
}

// klogOnce sets client-go's logger only once. The logger is global, and tests run several commands in
// one process.
var klogOnce sync.Once

// configured loads the configuration, creates a logger, and passes both to do. The logger writes to
// standard error and to the additional writers. client-go uses the same logger.
func configured(cmd *cobra.Command, need config.Need, do func(context.Context, config.Config, *slog.Logger) error, also ...io.Writer) error {
	cfg, err := loadConfig(need)
	if err != nil {
		return err
	}
	log, err := newLogger(cfg.Operations, cmd.ErrOrStderr(), also...)
	if err != nil {
		return err
	}
	limited := loglimit.New(log.Handler())
	defer limited.Flush()
	log = slog.New(limited)
	klogOnce.Do(func() { klog.SetSlogLogger(log) })
	return do(cmd.Context(), cfg, log)
}

// contentChecks returns checks for the variables that select objects and fields by content.
func contentChecks() []config.Check {
	return []config.Check{
		{Name: "KUBERELAY_FILTER", Run: func(cfg config.Config) error {
			_, err := filter.Compile(cfg.Content.Filter)
			return err
		}},
		{Name: "KUBERELAY_DROP_FIELDS", Run: func(cfg config.Config) error {
			_, err := projection.ParseDrop(cfg.Content.DropFields)
			return err
		}},
		{Name: "KUBERELAY_HASH_FIELDS", Run: func(cfg config.Config) error {
			_, err := projection.ParseHash(cfg.Content.HashFields)
			return err
		}},
	}
}

// newLogger returns a logger that writes to w and to the additional writers. If no format is
// configured, it writes text if w is a terminal, and JSON otherwise.
func newLogger(c config.Operations, w io.Writer, also ...io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return nil, fmt.Errorf("make the log: %w", err)
	}
	options := &slog.HandlerOptions{Level: level}
	to := io.MultiWriter(append(also, w)...) // w is last, because MultiWriter stops at the first error
	if c.LogFormat == config.LogText || c.LogFormat == "" && isTerminal(w) {
		return slog.New(slog.NewTextHandler(to, options)), nil
	}
	return slog.New(slog.NewJSONHandler(to, options)), nil
}

// showProgress shows the progress of a command's work if standard error is a terminal, until stop is
// called. Until then, the command must write only to the outputs of cmd.
func showProgress(cmd *cobra.Command, works ...longwork.Work) (stop func()) {
	out, errs, stop := bar.Show(cmd.OutOrStdout(), cmd.ErrOrStderr(), works...)
	cmd.SetOut(out)
	cmd.SetErr(errs)
	return stop
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}

func newConfigCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check the configuration and print the values in effect",
		Long: `Config checks the environment as 'forwarder run' does, without connecting to
anything, and prints each value and its source. For a file, it prints the path,
never the content.

Exit codes: 0 ok; 2 wrong command line or configuration.`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			write, ok := map[string]func(io.Writer, []config.Value) error{"text": writeText, "json": writeJSON}[output]
			if !ok {
				return &config.Error{Err: fmt.Errorf("--output=%q: use text or json", output)}
			}
			cfg, err := loadConfig(config.Forwarding)
			if err != nil {
				return err
			}
			return write(cmd.OutOrStdout(), cfg.Effective())
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

func writeText(w io.Writer, values []config.Value) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "VARIABLE\tVALUE\tSOURCE")
	for _, v := range values {
		value := v.Value
		if value == "" {
			value = "(" + v.Unset + ")"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", v.Name, strings.ReplaceAll(value, "\n", " "), source(v))
	}
	return table.Flush()
}

func writeJSON(w io.Writer, values []config.Value) error {
	type entry struct {
		Name   string `json:"name"`
		Value  string `json:"value"`
		Source string `json:"source"`
	}
	var entries []entry
	for _, v := range values {
		entries = append(entries, entry{v.Name, v.Value, source(v)})
	}
	return terminal.WriteJSON(w, entries)
}

func source(v config.Value) string {
	if v.Set {
		return "environment"
	}
	return "default"
}
