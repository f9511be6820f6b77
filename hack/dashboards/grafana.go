package main

// These types are the part of Grafana's JSON model that the dashboards use. They match Grafana 10 and
// later.
type (
	dashboard struct {
		UID           string     `json:"uid"`
		Title         string     `json:"title"`
		Description   string     `json:"description"`
		Tags          []string   `json:"tags"`
		Editable      bool       `json:"editable"`
		GraphTooltip  int        `json:"graphTooltip"` // 1 for a shared crosshair in all panels
		Links         []link     `json:"links"`
		Panels        []panel    `json:"panels"`
		Refresh       string     `json:"refresh"`
		SchemaVersion int        `json:"schemaVersion"`
		Templating    templating `json:"templating"`
		Time          timeRange  `json:"time"`
		Timezone      string     `json:"timezone"`
	}
	link struct {
		Title       string   `json:"title"`
		Type        string   `json:"type,omitempty"`
		URL         string   `json:"url,omitempty"`
		Tags        []string `json:"tags,omitempty"`
		IncludeVars bool     `json:"includeVars,omitempty"`
		KeepTime    bool     `json:"keepTime,omitempty"`
		TargetBlank bool     `json:"targetBlank,omitempty"`
	}
	timeRange struct {
		From string `json:"from"`
		To   string `json:"to"`
	}
	templating struct {
		List []variable `json:"list"`
	}
	variable struct {
		Name       string   `json:"name"`
		Label      string   `json:"label"`
		Type       string   `json:"type"`
		Query      string   `json:"query"`
		Definition string   `json:"definition,omitempty"`
		Datasource *source  `json:"datasource,omitempty"`
		Refresh    int      `json:"refresh"` // 1 when the dashboard loads, 2 when the time range changes
		Sort       int      `json:"sort,omitempty"`
		Multi      bool     `json:"multi,omitempty"`
		IncludeAll bool     `json:"includeAll,omitempty"`
		AllValue   string   `json:"allValue,omitempty"`
		Current    *current `json:"current,omitempty"`
	}
	current struct {
		Text  string `json:"text"`
		Value string `json:"value"`
	}
	source struct {
		Type string `json:"type"`
		UID  string `json:"uid"`
	}
	panel struct {
		ID              int              `json:"id"`
		Type            string           `json:"type"`
		Title           string           `json:"title"`
		Description     string           `json:"description,omitempty"`
		GridPos         gridPos          `json:"gridPos"`
		Datasource      *source          `json:"datasource,omitempty"`
		Targets         []target         `json:"targets,omitempty"`
		FieldConfig     *fieldConfig     `json:"fieldConfig,omitempty"`
		Options         map[string]any   `json:"options,omitempty"`
		Transformations []transformation `json:"transformations,omitempty"`
	}
	gridPos struct {
		H int `json:"h"`
		W int `json:"w"`
		X int `json:"x"`
		Y int `json:"y"`
	}
	target struct {
		RefID        string  `json:"refId"`
		Datasource   *source `json:"datasource"`
		Expr         string  `json:"expr"`
		LegendFormat string  `json:"legendFormat,omitempty"`
		Format       string  `json:"format,omitempty"`
		Instant      bool    `json:"instant,omitempty"`
		Range        bool    `json:"range,omitempty"`
	}
	fieldConfig struct {
		Defaults  field      `json:"defaults"`
		Overrides []override `json:"overrides"`
	}
	field struct {
		Unit       string         `json:"unit,omitempty"`
		Min        *float64       `json:"min,omitempty"`
		NoValue    string         `json:"noValue,omitempty"`
		Color      map[string]any `json:"color,omitempty"`
		Custom     map[string]any `json:"custom,omitempty"`
		Mappings   []any          `json:"mappings,omitempty"`
		Thresholds *thresholds    `json:"thresholds,omitempty"`
	}
	thresholds struct {
		Mode  string `json:"mode"`
		Steps []step `json:"steps"`
	}
	step struct {
		Color string   `json:"color"`
		Value *float64 `json:"value"` // nil for the lowest
	}
	override struct {
		Matcher    matcher    `json:"matcher"`
		Properties []property `json:"properties"`
	}
	matcher struct {
		ID      string `json:"id"`
		Options string `json:"options"`
	}
	property struct {
		ID    string `json:"id"`
		Value any    `json:"value"`
	}
	transformation struct {
		ID      string         `json:"id"`
		Options map[string]any `json:"options"`
	}
)

func prometheus() *source { return &source{"prometheus", "${datasource}"} }

const (
	docs    = "https://github.com/kuberelay/kuberelay/blob/main/docs/"
	columns = 24 // number of columns in Grafana's grid
)

// assemble returns a dashboard with the given rows of panels.
func assemble(uid, title, description string, variables []variable, rows ...[]panel) dashboard {
	d := dashboard{
		UID: uid, Title: title, Description: description, Tags: []string{"kuberelay"},
		Editable: true, GraphTooltip: 1, Refresh: "30s", SchemaVersion: 39, Timezone: "browser",
		Time: timeRange{"now-3h", "now"}, Templating: templating{variables},
		Links: []link{
			{Title: "Kuberelay", Type: "dashboards", Tags: []string{"kuberelay"}, IncludeVars: true, KeepTime: true},
			{Title: "Metrics", Type: "link", URL: docs + "metrics.md", TargetBlank: true},
			{Title: "Troubleshooting", Type: "link", URL: docs + "troubleshooting.md", TargetBlank: true},
		},
	}
	y := 0
	for _, row := range rows {
		x, height := 0, 0
		for _, p := range row {
			if x+p.GridPos.W > columns {
				x, y, height = 0, y+height, 0
			}
			p.ID, p.GridPos.X, p.GridPos.Y = len(d.Panels)+1, x, y
			x, height = x+p.GridPos.W, max(height, p.GridPos.H)
			d.Panels = append(d.Panels, p)
		}
		y += height
	}
	return d
}

func variables(more ...variable) []variable {
	all := func(name, label, query string) variable {
		v := ask(name, label, query)
		v.Multi, v.IncludeAll, v.AllValue, v.Current = true, true, ".*", &current{"All", "$__all"}
		return v
	}
	return append([]variable{
		{Name: "datasource", Label: "Data source", Type: "datasource", Query: "prometheus", Refresh: 1},
		all("cluster", "Cluster", "label_values(kuberelay_build_info, cluster)"),
		all("namespace", "Namespace", `label_values(kuberelay_build_info{cluster=~"$cluster"}, namespace)`),
	}, more...)
}

// ask returns a variable whose values come from Prometheus.
func ask(name, label, query string) variable {
	return variable{Name: name, Label: label, Type: "query", Query: query, Definition: query, Datasource: prometheus(), Refresh: 2, Sort: 1}
}
