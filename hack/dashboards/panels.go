package main

import "strings"

// query is an expression and the legend of its series.
type query struct{ expr, legend string }

// row returns a title and the panels below it.
func row(title string, of ...panel) []panel {
	return append([]panel{{Type: "row", Title: title, GridPos: gridPos{H: 1, W: columns}}}, of...)
}

func newPanel(kind, title, description string, width, height int, queries ...query) panel {
	p := panel{
		Type: kind, Title: title, Description: description + "\n\n[Metrics](" + docs + "metrics.md)",
		GridPos: gridPos{H: height, W: width}, Datasource: prometheus(), FieldConfig: &fieldConfig{Overrides: []override{}},
	}
	for i, q := range queries {
		p.Targets = append(p.Targets, target{
			RefID: string(rune('A' + i)), Datasource: prometheus(), Expr: q.expr, LegendFormat: q.legend, Range: true,
		})
	}
	return p
}

// graph returns a panel with time series. Its axis begins at 0.
func graph(title, unit, description string, queries ...query) panel {
	p := newPanel("timeseries", title, description, 8, 8, queries...)
	zero := 0.0
	p.FieldConfig.Defaults = field{
		Unit: unit, Min: &zero, Color: map[string]any{"mode": "palette-classic"},
		Custom: map[string]any{"fillOpacity": 8, "lineWidth": 1, "showPoints": "never", "spanNulls": false},
	}
	p.Options = map[string]any{
		"legend":  map[string]any{"displayMode": "list", "placement": "bottom", "showLegend": true},
		"tooltip": map[string]any{"mode": "multi", "sort": "desc"},
	}
	return p
}

// limited draws lines at the warning and the critical level.
func (p panel) limited(warning, critical float64) panel {
	p.FieldConfig.Defaults.Thresholds = levels(warning, critical)
	p.FieldConfig.Defaults.Custom["thresholdsStyle"] = map[string]any{"mode": "dashed"}
	return p
}

func levels(warning, critical float64) *thresholds {
	return &thresholds{"absolute", []step{{"green", nil}, {"yellow", &warning}, {"red", &critical}}}
}

// stat returns a panel with one number, colored by its level.
func stat(title, unit, description string, width int, of *thresholds, queries ...query) panel {
	p := newPanel("stat", title, description, width, 4, queries...)
	for i := range p.Targets {
		p.Targets[i].Instant, p.Targets[i].Range = true, false
	}
	if of == nil {
		of = &thresholds{"absolute", []step{{"text", nil}}}
	}
	p.FieldConfig.Defaults = field{Unit: unit, Thresholds: of, NoValue: "-", Color: map[string]any{"mode": "thresholds"}}
	p.Options = map[string]any{
		"colorMode": "value", "graphMode": "none", "justifyMode": "auto", "textMode": "auto",
		"reduceOptions": map[string]any{"calcs": []string{"lastNotNull"}, "fields": "", "values": false},
	}
	return p
}

// named shows the name of the series instead of its value.
func (p panel) named() panel {
	p.Options["textMode"] = "name"
	return p
}

// yesNo shows 1 and 0 as yes and no, with the given color for no.
func (p panel) yesNo(color string) panel {
	p.FieldConfig.Defaults.Mappings = []any{yesNo(color)}
	return p
}

func yesNo(color string) map[string]any {
	return map[string]any{"type": "value", "options": map[string]any{
		"0": map[string]any{"text": "no", "color": color, "index": 0},
		"1": map[string]any{"text": "yes", "color": "green", "index": 1},
	}}
}

// column is a column of a table. Its query returns one value for each row. A column without a title only
// adds its labels to the row.
type column struct {
	title, unit, expr string
	levels            *thresholds
	words             bool // show 1 and 0 as yes and no
}

// table returns a table with a row for each combination of the labels. The query of every column must
// return these labels.
func table(title, description string, height int, labels []string, columns ...column) panel {
	p := newPanel("table", title, description, 24, height)
	p.FieldConfig.Defaults = field{NoValue: "-", Custom: map[string]any{"align": "auto", "filterable": true}}
	names, order, hidden := map[string]any{}, map[string]any{}, map[string]any{"Time": true}
	for i, l := range labels {
		names[l], order[l] = strings.ToUpper(l[:1])+l[1:], i
	}
	for i, c := range columns {
		ref := string(rune('A' + i))
		p.Targets = append(p.Targets, target{RefID: ref, Datasource: prometheus(), Expr: c.expr, Format: "table", Instant: true})
		value := "Value #" + ref
		if c.title == "" {
			hidden[value] = true
			continue
		}
		names[value], order[value] = c.title, len(labels)+i
		var of []property
		if c.unit != "" {
			of = append(of, property{"unit", c.unit})
		}
		if c.levels != nil {
			of = append(of, property{"thresholds", c.levels}, property{"custom.cellOptions", map[string]any{"type": "color-text"}})
		}
		if c.words {
			of = append(of, property{"mappings", []any{yesNo("text")}})
		}
		if of != nil {
			p.FieldConfig.Overrides = append(p.FieldConfig.Overrides, override{matcher{"byName", c.title}, of})
		}
	}
	p.Transformations = []transformation{
		{"merge", map[string]any{}},
		{"organize", map[string]any{"excludeByName": hidden, "indexByName": order, "renameByName": names}},
	}
	p.Options = map[string]any{"showHeader": true, "cellHeight": "sm"}
	return p
}

// linked turns the cells of a column into links to another dashboard. The labels of the row become
// variables of that dashboard.
func (p panel) linked(title, dashboard string, labels ...string) panel {
	url := "/d/" + dashboard + "?${datasource:queryparam}"
	for _, l := range labels {
		url += "&var-" + l + "=${__data.fields." + strings.ToUpper(l[:1]) + l[1:] + "}"
	}
	p.FieldConfig.Overrides = append(p.FieldConfig.Overrides, override{matcher{"byName", title}, []property{
		{"links", []link{{Title: "Show this forwarder", URL: url}}},
	}})
	return p
}

// rate returns an expression for the rate of a counter, summed by labels.
func rate(counter, by string) string {
	return "sum by (" + by + ") (rate(" + counter + "[$__rate_interval]))"
}

// quantile returns an expression for a quantile of a histogram, by labels.
func quantile(q, histogram, by string) string {
	if by != "" {
		by = ", " + by
	}
	return "histogram_quantile(" + q + ", sum by (le" + by + ") (rate(" + histogram + "[$__rate_interval])))"
}

// quantiles returns queries for the 50%, 90%, and 99% quantiles of a histogram.
func quantiles(histogram string) []query {
	return []query{{quantile("0.5", histogram, ""), "50%"}, {quantile("0.9", histogram, ""), "90%"}, {quantile("0.99", histogram, ""), "99%"}}
}
