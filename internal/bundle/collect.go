package bundle

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/deadline"
	"github.com/kuberelay/kuberelay/internal/operations"
	"github.com/kuberelay/kuberelay/internal/operations/client"
	"github.com/kuberelay/kuberelay/internal/sinks"
	"github.com/kuberelay/kuberelay/internal/status"
)

// Collector collects a bundle from a running forwarder and from the bus.
type Collector struct {
	Forwarder *client.Client
	Elsewhere bool          // the command line names the forwarder's address, so the settings might not be the forwarder's
	Settings  config.Config // of this environment
	NoLogs    bool          // leave out the log
	Timeout   time.Duration // limit for the inspection of the bus
	Command   string        // version of this command
}

// Collect requests all parts concurrently, except the bus. It reads the bus last, because the topics
// depend on the resources in the status.
func (c Collector) Collect(ctx context.Context) Bundle {
	of := func(name, filename, path, right string) part {
		return part{name: name, collect: func(ctx context.Context) ([]file, error) {
			content, err := c.Forwarder.Get(ctx, path, nil, right)
			if err != nil {
				return nil, err
			}
			return []file{{filename, content}}, nil
		}}
	}
	support := func(name, filename string) part {
		return of(name, filename, operations.SupportPath+name, operations.SupportPath+"*")
	}
	log := support("log", "log.txt")
	if c.NoLogs {
		log.skip = "--no-logs"
	}
	var d status.Document
	all := collect(ctx,
		part{name: "status", collect: func(ctx context.Context) (files []file, err error) {
			if d, err = c.Forwarder.Status(ctx, ""); err != nil {
				return nil, err
			}
			return statusFiles(d)
		}},
		of("metrics", "metrics.txt", "/metrics", "/metrics"), support("config", "config.txt"),
		support("goroutines", "goroutines.txt"), support("heap", "heap.pprof"), log,
	)
	all = append(all, collect(ctx, c.bus(d))...)
	at := c.Forwarder.URL()
	m := Manifest{Time: time.Now().UTC(), Address: at.String(), Cluster: d.Cluster, Forwarder: d.Version, Command: c.Command}
	return Bundle{m.index(all), all}
}

// statusFiles returns the document as text for people and as JSON for programs.
func statusFiles(d status.Document) ([]file, error) {
	var files []file
	for _, f := range []struct{ name, printer string }{{"status.txt", "table"}, {"status.json", "json"}} {
		var content bytes.Buffer
		if err := status.Printers()[f.printer](&content, d); err != nil {
			return nil, err
		}
		files = append(files, file{f.name, content.Bytes()})
	}
	return files, nil
}

// bus returns the part that inspects the stream or the topics with the settings of this environment. It skips
// the part if the sink is stdout, or if these settings can't be those of the forwarder's bus.
func (c Collector) bus(d status.Document) part {
	p, cfg := part{name: "bus"}, c.Settings
	cfg.Event.ClusterName = cmp.Or(d.Cluster, cfg.Event.ClusterName, "unknown")
	switch {
	case d.Bus.Sink != "" && d.Bus.Sink != cfg.Event.Sink:
		p.skip = fmt.Sprintf("the forwarder publishes to %s, and this environment has the settings of %s", d.Bus.Sink, cfg.Event.Sink)
	case cfg.Event.Sink == config.SinkStdout:
		p.skip = "KUBERELAY_SINK is stdout"
	case cfg.BuiltInServer() && c.Elsewhere:
		p.skip = "this environment has no settings of the bus; status.json has what the forwarder knows"
	}
	p.collect = func(ctx context.Context) ([]file, error) {
		ctx, cancel := context.WithTimeout(ctx, c.Timeout)
		defer cancel()
		if cfg.Event.Sink == config.SinkKafka {
			var watched []schema.GroupResource
			for _, r := range d.Resources {
				watched = append(watched, schema.ParseGroupResource(r.Name))
			}
			found, err := sinks.InspectKafka(ctx, cfg, watched)
			if err != nil {
				return nil, deadline.Explain(ctx, err, c.Timeout)
			}
			return kafkaFile(found)
		}
		found, err := sinks.InspectNATS(ctx, cfg)
		if err != nil {
			return nil, deadline.Explain(ctx, err, c.Timeout)
		}
		return natsFile(found)
	}
	return p
}
