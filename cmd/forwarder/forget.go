package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/deadline"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/decode"
	"github.com/kuberelay/kuberelay/internal/forget"
	"github.com/kuberelay/kuberelay/internal/longwork"
	"github.com/kuberelay/kuberelay/internal/relay/bus"
	"github.com/kuberelay/kuberelay/internal/shape"
	"github.com/kuberelay/kuberelay/internal/sinks/subscriber"
	"github.com/kuberelay/kuberelay/internal/tail"
)

// aliveWithin is the maximum age of an event that counts as a sign of a running forwarder. The
// forwarder publishes a consistency point about once a minute, even for a resource without changes.
const aliveWithin = 5 * time.Minute

type forgetFlags struct {
	cluster            string
	dryRun, yes, force bool
}

func newForgetCommand() *cobra.Command {
	var f forgetFlags
	cmd := &cobra.Command{
		Use:   "forget --cluster=NAME",
		Short: "Delete from the bus all objects of a cluster that is gone",
		Long: `Forget retires a cluster whose forwarder is gone for good. For every object of the
cluster on the bus, it publishes a deleted event with the object's last state, as the
forwarder does when an object is deleted. Then it marks the cluster name on the bus as
forgotten, so that any cluster may use the name.

Run it with the environment of the old forwarder, and with its permissions on the bus.
It does not connect to the cluster. It refuses while the bus has events of the cluster
that are newer than 5 minutes, because a forwarder may still be running: stop it first.
A forwarder that is still running publishes its objects again.

The deleted events stay for KUBERELAY_DELETE_RETENTION. If you run the command again
after that time, it removes them, too. You can interrupt and repeat the command.

Exit codes: 0 done; 1 refused or failed; 2 wrong command line or configuration.`,
		Example: `  forwarder forget --cluster=old --dry-run
  forwarder forget --cluster=old --yes`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			name, err := tail.ParseCluster(f.cluster)
			if err != nil {
				return &config.Error{Err: fmt.Errorf("--cluster=%q: %w; see '%s --help'", f.cluster, err, cmd.CommandPath())}
			}
			return configured(cmd, config.Subscribing, func(ctx context.Context, cfg config.Config, log *slog.Logger) error {
				if own := cfg.Event.ClusterName; cfg.Kafka.TransactionalID != "" && own != "" && own != name {
					return &config.Error{Err: fmt.Errorf("KUBERELAY_KAFKA_TRANSACTIONAL_ID is set for the cluster %s: set it and KUBERELAY_CLUSTER_NAME to the values of the forwarder of the cluster %s", own, name)}
				}
				cfg.Event.ClusterName = name
				return f.run(ctx, cfg, cmd, log)
			})
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.cluster, "cluster", "", "name of the cluster on the bus (required)")
	flags.BoolVar(&f.dryRun, "dry-run", false, "print what would be deleted, and change nothing")
	flags.BoolVar(&f.yes, "yes", false, "do not ask for a confirmation")
	flags.BoolVar(&f.force, "force", false, "delete the objects even if the bus has events of the cluster that are newer than 5 minutes")
	return cmd
}

func (f *forgetFlags) run(ctx context.Context, cfg config.Config, cmd *cobra.Command, log *slog.Logger) error {
	var reading, deleting longwork.Counter
	defer showProgress(cmd, longwork.Work{Name: "reading the bus", Unit: "messages", Measure: reading.Measure},
		longwork.Work{Name: "deleting", Unit: "objects", Measure: deleting.Measure})()
	out := cmd.OutOrStdout()
	found, err := surveyOf(ctx, cfg, cmd.ErrOrStderr(), &reading)
	if err != nil {
		return err
	}
	if err := found.write(out, time.Now()); err != nil || f.dryRun {
		return err
	}
	if age := time.Since(found.newest); age < aliveWithin && !f.force {
		return fmt.Errorf("a forwarder of the cluster %s seems to be running: the bus has an event from %s ago; stop it, and wait until the event is older than %s, or use --force",
			strconv.Quote(cfg.Event.ClusterName), duration.HumanDuration(max(0, age)), duration.HumanDuration(aliveWithin))
	}
	if !f.yes {
		in := cmd.InOrStdin()
		if file, ok := in.(*os.File); !ok || !isTerminal(file) {
			return &config.Error{Err: errors.New("nothing was deleted: standard input is not a terminal, so you can't confirm; use --yes")}
		}
		if err := confirm(ctx, in, out, cfg.Event.ClusterName); err != nil {
			return err
		}
	}
	builder, err := deleteBuilder(cfg)
	if err != nil {
		return err
	}
	writer, err := bus.OpenWriter(ctx, bus.Config{Settings: cfg, Writer: "forget@" + writerName(os.Getenv), Logger: log, Registerer: prometheus.NewRegistry()})
	if err != nil {
		return err
	}
	done, err := forget.Run(ctx, forget.Config{
		Bus: writer, Builder: builder,
		InFlight: maxForgotten, Retention: cfg.Work.DeleteRetention, Now: time.Now, Logger: log, Deleting: &deleting,
	})
	if err = errors.Join(err, writer.Close()); err != nil {
		return fmt.Errorf("only %d objects were deleted: %w", done.Deleted, err)
	}
	fmt.Fprintf(out, "%d objects deleted, and the events of %d previously deleted objects removed\n", done.Deleted, done.Purged)
	if done.Claimed {
		fmt.Fprintf(out, "the cluster %s is forgotten\n", strconv.Quote(cfg.Event.ClusterName))
	}
	return nil
}

// deleteBuilder returns a builder that drops and hashes fields of the last states on the bus, as the
// forwarder does.
func deleteBuilder(cfg config.Config) (event.Builder, error) {
	key, err := cfg.Event.RedactionKey()
	if err != nil {
		return event.Builder{}, err
	}
	shapes, err := shape.New(cfg.Content, nil)
	if err != nil {
		return event.Builder{}, err
	}
	converter := decode.NewConverter(key, cfg.Event.ClusterName)
	return event.Builder{Cluster: cfg.Event.ClusterName, Data: event.DataForm(cfg.Content.Data), Reshape: shapes.Reshape(converter)}, nil
}

// maxForgotten limits the deletes in flight.
const maxForgotten = 256

// survey is a summary of a cluster's objects on the bus.
type survey struct {
	cluster string
	counts  []resourceCount
	total   int
	newest  time.Time // time of the last event that only a running forwarder writes
}

type resourceCount struct {
	resource string
	objects  int
}

// surveyOf counts the configured cluster's objects on the bus. If the bus has no event of the
// cluster, surveyOf returns an error that names the other clusters.
func surveyOf(ctx context.Context, cfg config.Config, messages io.Writer, reading *longwork.Counter) (survey, error) {
	s := survey{cluster: cfg.Event.ClusterName}
	cfg.Event.ClusterName = "" // so that an error can name the other clusters
	p := &tail.Present{Labels: labels.Everything(), Status: &tail.Status{W: messages}, Reading: reading}
	p.Filter.Clusters = []string{s.cluster}
	bus, err := subscriber.Open(ctx, cfg, p.Status, p.Reading)
	if err != nil {
		return s, err
	}
	defer func() { _ = bus.Close() }() // an error is harmless, because nothing is in flight
	if err := p.Read(ctx, bus, cfg.NATS.SubjectPrefix); err != nil {
		return s, subscriber.Explain(cfg, err)
	}
	objects, _ := p.Objects()
	for _, o := range objects {
		name := o.Key.GroupResource().String()
		if n := len(s.counts); n == 0 || s.counts[n-1].resource != name {
			s.counts = append(s.counts, resourceCount{resource: name})
		}
		s.counts[len(s.counts)-1].objects++
	}
	s.total, s.newest = len(objects), p.Newest
	if s.total == 0 {
		absent, _, err := findAbsent(ctx, bus, cfg, p.Status.Source, p.Filter)
		if err != nil {
			return s, err
		}
		if len(absent) > 0 {
			return s, errors.New(strings.Join(absent, "\n"))
		}
	}
	return s, nil
}

// write prints the number of objects per resource, and the age of the newest event.
func (s survey) write(w io.Writer, now time.Time) error {
	fmt.Fprintf(w, "cluster %s: %d objects on the bus", strconv.Quote(s.cluster), s.total)
	if !s.newest.IsZero() {
		fmt.Fprintf(w, ", the last event %s ago", duration.HumanDuration(max(0, now.Sub(s.newest))))
	}
	fmt.Fprintln(w)
	if s.total == 0 {
		return nil
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nRESOURCE\tOBJECTS")
	for _, c := range s.counts {
		fmt.Fprintf(table, "%s\t%d\n", strings.Trim(strconv.Quote(c.resource), `"`), c.objects)
	}
	fmt.Fprintln(table)
	return table.Flush()
}

// confirm asks the user to enter the name of the cluster. It returns an error if the answer is another one,
// and when ctx ends.
func confirm(ctx context.Context, in io.Reader, out io.Writer, cluster string) error {
	fmt.Fprintf(out, "Subscribers will see all these objects as deleted. Enter the name of the cluster to continue: ")
	answer, err := deadline.Run(ctx, func(context.Context) (string, error) { return bufio.NewReader(in).ReadString('\n') })
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if strings.TrimSpace(answer) != cluster {
		return errors.Join(errors.New("not confirmed, nothing was deleted"), err)
	}
	return nil
}
