// Command prometheus evaluates alerting rules and queries over scraped metrics, using the
// Prometheus engine as a library. It reads the input as JSON from standard input and writes the
// output as JSON to standard output. Its module also builds promtool, which runs the unit tests of
// the alerts.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"
)

// input lists the scrapes and the rules and queries to evaluate. Times are in seconds.
type input struct {
	Scrapes []scrape
	Until   int64    // alerts and queries are evaluated every minute from 0 to this time
	Rules   string   // the content of a rule file, or ""
	Queries []string // each query has a result in the output
}

// scrape is one scrape of a target.
type scrape struct {
	At     int64
	Labels map[string]string // the target's labels
	Up     bool
	Text   string // the metrics in the text exposition format
}

type output struct {
	Firing  []firing
	Results []result
}

// firing is an alert that fires at the time At.
type firing struct {
	At                  int64
	Labels, Annotations map[string]string
}

type result struct {
	Series int      // number of series that the query returns
	Empty  []string // selectors in the query that never match a series
	Error  string
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "prometheus:", err)
		os.Exit(1)
	}
}

func run(r io.Reader, w io.Writer) error {
	var in input
	if err := json.NewDecoder(r).Decode(&in); err != nil {
		return err
	}
	scraped, err := parse(in.Scrapes)
	if err != nil {
		return err
	}
	e := evaluation{
		until: in.Until, scraped: scraped, parser: parser.NewParser(parser.Options{}),
		engine: promql.NewEngine(promql.EngineOpts{MaxSamples: 50_000_000, Timeout: time.Minute, EnableAtModifier: true, EnableNegativeOffset: true}),
	}
	var out output
	if out.Firing, err = e.alerts(in.Rules); err != nil {
		return err
	}
	for _, q := range in.Queries {
		out.Results = append(out.Results, e.query(q))
	}
	return json.NewEncoder(w).Encode(out)
}

type evaluation struct {
	until   int64
	scraped storage.Queryable
	parser  parser.Parser
	engine  *promql.Engine
}

// alerts evaluates the rules as Prometheus does and returns the firing alerts.
func (e evaluation) alerts(content string) ([]firing, error) {
	groups, errs := rulefmt.Parse([]byte(content), false, model.UTF8Validation, e.parser, promslog.NewNopLogger())
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	var all []*rules.AlertingRule
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			if r.Alert == "" {
				continue
			}
			expr, err := e.parser.ParseExpr(r.Expr)
			if err != nil {
				return nil, fmt.Errorf("alert %s: %w", r.Alert, err)
			}
			all = append(all, rules.NewAlertingRule(r.Alert, expr, time.Duration(r.For), time.Duration(r.KeepFiringFor),
				labels.FromMap(r.Labels), labels.FromMap(r.Annotations), labels.EmptyLabels(), "", true, promslog.NewNopLogger()))
		}
	}
	ask := rules.EngineQueryFunc(e.engine, e.scraped)
	var fired []firing
	for at := int64(0); at <= e.until; at += 60 {
		for _, r := range all {
			if _, err := r.Eval(context.Background(), 0, time.Unix(at, 0), ask, nil, 0); err != nil {
				return nil, fmt.Errorf("alert %s: %w", r.Name(), err)
			}
			for _, a := range r.ActiveAlerts() {
				if a.State == rules.StateFiring {
					fired = append(fired, firing{at, a.Labels.Map(), a.Annotations.Map()})
				}
			}
		}
	}
	return fired, nil
}

// query evaluates a query and each of its selectors.
func (e evaluation) query(q string) (r result) {
	expr, err := e.parser.ParseExpr(q)
	if err == nil {
		r.Series, err = e.series(q)
	}
	if err != nil {
		r.Error = err.Error()
		return r
	}
	for _, matchers := range parser.ExtractSelectors(expr) {
		selector := (&parser.VectorSelector{LabelMatchers: matchers}).String()
		n, err := e.series(selector)
		if err != nil {
			r.Error = err.Error()
		}
		if n == 0 && !slices.Contains(r.Empty, selector) {
			r.Empty = append(r.Empty, selector)
		}
	}
	return r
}

// series returns the number of series that an expression returns when it is evaluated every minute
// from 0.
func (e evaluation) series(expr string) (int, error) {
	ctx := context.Background()
	q, err := e.engine.NewRangeQuery(ctx, e.scraped, nil, expr, time.Unix(0, 0), time.Unix(e.until, 0), time.Minute)
	if err != nil {
		return 0, err
	}
	defer q.Close()
	m, err := q.Exec(ctx).Matrix()
	return len(m), err
}
