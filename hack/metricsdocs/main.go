// Metricsdocs prints docs/metrics.md. The tables have every metric that the forwarder's packages register.
// The text around the tables comes from a template.
package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"text/template"

	"github.com/kuberelay/kuberelay/hack/markdown"
	"github.com/kuberelay/kuberelay/internal/checkpoint"
	"github.com/kuberelay/kuberelay/internal/fleet"
	"github.com/kuberelay/kuberelay/internal/forward"
	"github.com/kuberelay/kuberelay/internal/informers"
	"github.com/kuberelay/kuberelay/internal/leader"
	"github.com/kuberelay/kuberelay/internal/ledger"
	"github.com/kuberelay/kuberelay/internal/operations"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/nats"
	"github.com/kuberelay/kuberelay/internal/reconcile"
	"github.com/kuberelay/kuberelay/internal/relay"
	"github.com/kuberelay/kuberelay/internal/resolve"
)

//go:embed metrics.md.tmpl
var page string

// nowhere is an address that refuses connections.
const nowhere = "127.0.0.1:1"

func main() {
	if err := write(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "metricsdocs:", err)
		os.Exit(1)
	}
}

func write(w io.Writer) error {
	var c catalogue
	if err := register(&c); err != nil {
		return err
	}
	t, err := template.New("metrics.md").Funcs(template.FuncMap{"cell": markdown.Cell, "join": strings.Join}).Parse(page)
	if err != nil {
		return err
	}
	var own, others []metric
	for _, m := range c.Metrics() {
		switch {
		case strings.HasPrefix(m.Name, "go_"), strings.HasPrefix(m.Name, "process_"):
			// The page leaves these metrics out, because they depend on the version of Go and the platform.
		case strings.HasPrefix(m.Name, "kuberelay_"):
			own = append(own, m)
		default:
			others = append(others, m)
		}
	}
	return t.Execute(w, map[string][]metric{"Own": own, "Others": others})
}

// register registers the metrics of a forwarder with both buses. It doesn't connect to a bus.
func register(c *catalogue) error {
	log := slog.New(slog.DiscardHandler)
	operations.Register(c, "", "")
	operations.InformerMetrics(c)
	operations.WorkqueueMetrics(c)
	operations.LeaderElectionMetrics(c)
	informers.New(informers.Config{Ledger: ledger.New(), Logger: log, Registerer: c, Standby: true})
	reconcile.New(reconcile.Config{Logger: log, Registerer: c})
	forward.New(forward.Config{Logger: log, Registerer: c})
	checkpoint.New(ledger.New().NewTerm()).Register(c)
	(&checkpoint.Retention{Checkpoint: checkpoint.New(ledger.New().NewTerm())}).Register(c)
	c.MustRegister(resolve.New(resolve.Config{}))
	leader.New(leader.Config{Logger: log, Registerer: c})
	if _, err := relay.New(relay.Config{Logger: log, Registerer: c}); err != nil {
		return err
	}
	c.MustRegister(fleet.New(fleet.Config{}))
	publish.NewInvalid(c, log)

	onNATS, err := nats.Connect(context.Background(), nats.Options{Connection: nats.Connection{URLs: []string{"nats://" + nowhere}, Cluster: "docs", Registerer: c}})
	if err != nil {
		return err
	}
	onKafka, err := kafka.Open(kafka.Options{Broker: broker.Options{Addrs: []string{nowhere}}, Cluster: "docs", Topic: "docs", Registerer: c})
	if err != nil {
		return errors.Join(err, onNATS.Close())
	}
	return cmp.Or(onNATS.Close(), onKafka.Close())
}
